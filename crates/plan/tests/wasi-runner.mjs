// Runs a WASI program under Node: cargo's runner for the tests on wasm32-wasip1.
import { readFile } from "node:fs/promises";
import { setFlagsFromString } from "node:v8";
import { WASI } from "node:wasi";

// Node 20 corrupts its own heap when a program that runs for long calls WASI by V8's fast calls: the program ends, and Node dies
// of a segmentation fault before it can say how.
setFlagsFromString("--no-turbo-fast-api-calls");

const [program, ...args] = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args: [program, ...args], env: process.env, preopens: { "/": "/" } });
const { instance } = await WebAssembly.instantiate(await readFile(program), wasi.getImportObject());
process.exitCode = wasi.start(instance);
