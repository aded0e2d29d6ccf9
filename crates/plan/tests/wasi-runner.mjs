// Runs a WASI program under Node: cargo's runner for the tests on wasm32-wasip1.
//
// Node 20 may die of a segmentation fault while it tears a large module down, after the program has ended. So the program runs
// in a child that says with which status it ended; a child that dies before it could say so has failed.
import { fork } from "node:child_process";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { WASI } from "node:wasi";

const [program, ...args] = process.argv.slice(2);
if (process.send) {
  const wasi = new WASI({ version: "preview1", args: [program, ...args], env: process.env, preopens: { "/": "/" } });
  const { instance } = await WebAssembly.instantiate(await readFile(program), wasi.getImportObject());
  const status = wasi.start(instance);
  process.send(status, () => process.disconnect());
} else {
  let status = 1;
  const child = fork(fileURLToPath(import.meta.url), process.argv.slice(2));
  child.on("message", (ended) => (status = ended));
  child.on("close", () => process.exit(status));
}
