// The TypeScript compiler on one file, as a stranger's project would run it.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const TSC = fileURLToPath(new URL("../node_modules/typescript/bin/tsc", import.meta.url));

/** Compiles a file of a folder; throws what the compiler printed. */
export function compile(folder: string, file: string, resolution: "bundler" | "nodenext"): void {
  const module = resolution === "bundler" ? "esnext" : "nodenext";
  const options = ["--ignoreConfig", "--noEmit", "--strict", "--module", module, "--moduleResolution", resolution, "--target", "es2022", "--lib", "es2023,dom,esnext.disposable"];
  try {
    execFileSync("node", [TSC, ...options, file], { cwd: folder, encoding: "utf8" });
  } catch (error) {
    throw new Error((error as { stdout?: string }).stdout?.slice(0, 3000) ?? String(error));
  }
}
