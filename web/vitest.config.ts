import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig(({ mode }) => ({
  root: here("."),
  resolve: { alias: { "@annulus/plan": here("./package/node.js") } },
  test: {
    include: [mode === "bench" ? "tests/**/*.bench.ts" : "tests/**/*.test.ts"],
    // What passes passes at once: these are for a machine that is busy with something else.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 30_000 } },
    // Two cores are a common machine; browsers and the type check take more than one each.
    fileParallelism: false,
  },
}));
