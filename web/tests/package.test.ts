// The npm package: what it holds, how large it is, and that it works as its README says.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build, columnBytes, inspect, Inspector, modelMemory, models, sees } from "@annulus/plan";
import type { PlanError } from "@annulus/plan";
import { afterAll, beforeAll, expect, test } from "vitest";
import { compile } from "./compile.ts";

const SOURCE = fileURLToPath(new URL("../package", import.meta.url));
const BUDGET = 200_000;

let project: string;
let installed: string;

beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), "annulus-package-"));
  const [{ filename }] = JSON.parse(execFileSync("npm", ["pack", "--json", "--pack-destination", project], { cwd: SOURCE, encoding: "utf8" }));
  installed = join(project, "node_modules/@annulus/plan");
  mkdirSync(installed, { recursive: true });
  execFileSync("tar", ["-xzf", join(project, filename), "-C", installed, "--strip-components=1"]);
});

afterAll(() => rmSync(project, { recursive: true }));

function files(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true }).filter((f) => f.isFile()).map((f) => join(f.parentPath, f.name));
}

test("what a browser loads of it takes at most 200 kB gzipped", () => {
  const loaded = files(installed).filter((file) => /\.(js|wasm)$/.test(file) && !file.endsWith("node.js"));
  const size = loaded.reduce((sum, file) => sum + gzipSync(readFileSync(file), { level: 9 }).length, 0);
  console.log(`package: ${size} bytes gzipped in ${loaded.length} files`);
  expect(size).toBeLessThanOrEqual(BUDGET);
});

test("the example of the README prints what the README says", () => {
  const readme = readFileSync(join(installed, "README.md"), "utf8");
  const [, example] = /```js\n(.*?)```/s.exec(readme)!;
  const [, output] = /It prints\n\n```\n(.*?)```/s.exec(readme)!;
  writeFileSync(join(project, "example.mjs"), example);
  expect(execFileSync("node", ["example.mjs"], { cwd: project, encoding: "utf8" })).toBe(output);
});

test("a TypeScript project reads its types", () => {
  writeFileSync(join(project, "use.ts"), `import { inspect, type Frame } from "@annulus/plan";\nexport const first: Frame = inspect({ cache: { kind: "full" }, ops: [{ op: "empty", rows: 1 }] }).frames[0];\n`);
  writeFileSync(join(project, "package.json"), '{ "type": "module" }');
  compile(project, "use.ts", "nodenext");
});

function refused(work: () => unknown): PlanError {
  try {
    work();
  } catch (error) {
    return error as PlanError;
  }
  throw new Error("nothing was refused");
}

test("a refusal is an exception with the planner's message, step, op and field", () => {
  const error = refused(() => inspect({ cache: { kind: "full" }, ops: [{ op: "empty", rows: 2 }, { op: "append", tokens: [[1000]] }] }));
  expect(error).toBeInstanceOf(Error);
  expect({ ...error }).toEqual({ name: "PlanError", step: 1, op: "append", field: "tokens" });
  expect(error.message).toBe("append.tokens: 1 entries for 2 rows");
});

test("every entry refuses by exception", () => {
  expect(refused(() => new Inspector({ cache: { kind: "rotating", max_size: 0 }, ops: [] }))).toMatchObject({ op: "cache", field: "max_size" });
  expect(refused(() => columnBytes({ kind: "affine", bits: 4, group: 48, scale_bits: 16 }, { kv_heads: 8, head_dim: 64 }))).toMatchObject({ op: "bytes", field: "group" });
  expect(refused(() => modelMemory("none", 1, 1))).toMatchObject({ field: "model" });
  expect(refused(() => inspect("{"))).toMatchObject({ name: "PlanError", step: null });
  expect(refused(() => build({} as never))).toMatchObject({ name: "PlanError" });
});

test("an inspector keeps the steps before a refusal and takes operations one by one", () => {
  const inspector = new Inspector({ cache: { kind: "rotating", max_size: 2 }, ops: [{ op: "merge", rows: [[1000, 1001]] }] });
  expect(inspector.advance()).toBe(false);
  inspector.push({ op: "append", tokens: [[1002]] });
  expect(refused(() => inspector.push({ op: "trim", n: 1 }))).toMatchObject({ step: 2, op: "trim", field: "n" });
  expect(inspector.length).toBe(2);
  // Position 2 took the column of position 0.
  expect([...inspector.positions(1, 0)]).toEqual([2, 1]);
  expect(inspector.head(1).planes).toMatchObject({ window: 2, head: 1, rotated: true });
  inspector.free();
});

test("the definition: the newest W, and the sinks", () => {
  const cache = { kind: "rotating", max_size: 4, sinks: 1 } as const;
  expect([0, 1, 6, 7, 8, 9, 10].filter((key) => sees(cache, 9, key))).toEqual([0, 7, 8, 9]);
});

test("bytes: 16 bits of 8 heads of 128, keys and values", () => {
  expect(columnBytes({ kind: "plain", bits: 16 }, { kv_heads: 8, head_dim: 128 })).toBe(2 * 8 * 128 * 2);
  expect(models().length).toBeGreaterThan(3);
});
