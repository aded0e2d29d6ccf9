import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  root: here("./page"),
  // Relative addresses: the folder works from any static host and below any path.
  base: "./",
  resolve: { alias: { "@annulus/plan": here("./package/browser.js") } },
  build: {
    outDir: here("./dist"),
    emptyOutDir: true,
    // The wasm is awaited at the top of a module.
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
