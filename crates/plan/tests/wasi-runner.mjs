// Runs a WASI program under Node: cargo's runner for the tests on wasm32-wasip1.
//
// Node 20 may die of a segmentation fault while it tears a large module down, after the program has ended. So the program runs
// in a child that writes the status with which it ended to a pipe, at once and not through the event loop, and then ends itself
// without any tearing down. A child that dies before it could write has failed.
import { spawn } from "node:child_process";
import { writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { WASI } from "node:wasi";

const CHILD = "--as-child";
const STATUS = 3;

if (process.argv[2] === CHILD) {
  const [program, ...args] = process.argv.slice(3);
  const wasi = new WASI({ version: "preview1", args: [program, ...args], env: process.env, preopens: { "/": "/" } });
  const { instance } = await WebAssembly.instantiate(await readFile(program), wasi.getImportObject());
  writeSync(STATUS, String(wasi.start(instance)));
  process.kill(process.pid, "SIGKILL");
} else {
  const command = [...process.execArgv, fileURLToPath(import.meta.url), CHILD, ...process.argv.slice(2)];
  const child = spawn(process.execPath, command, { stdio: ["inherit", "inherit", "inherit", "pipe"] });
  let written = "";
  child.stdio[STATUS].on("data", (data) => (written += data));
  child.on("close", () => process.exit(written === "" ? 1 : Number(written)));
}
