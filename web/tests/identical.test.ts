// The wasm and the native planner print the same text for every recorded scenario.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { replay } from "@annulus/plan";
import { expect, test } from "vitest";
import { CASES, LOG, nativeReplay } from "./native.ts";

const FILES: [string, number][] = [
  ["mlx-lm-scenarios.jsonl", 400],
  ["round-scenarios.jsonl", 300],
  ["sink-scenarios.jsonl", 60],
  ["error-scenarios.jsonl", 46],
];

for (const [file, count] of FILES) {
  test(`${count} lines of ${file} replay to identical text`, () => {
    const lines = readFileSync(join(CASES, file), "utf8").split("\n").filter(Boolean);
    expect(lines).toHaveLength(count);
    const native = nativeReplay(lines.join("\n")).split("\n").filter(Boolean);
    expect(native).toHaveLength(count);
    lines.forEach((line, i) => expect(replay(line), `line ${i + 1}`).toBe(`${native[i]}\n`));
  });
}

const DONOR = { cache: { kind: "rotating", max_size: 2 }, ops: [{ op: "merge", rows: [[1, 2, 3], [4]] }, { op: "donor" }] };

test("a geometry log, a donor, and what is no scenario at all replay to identical text", () => {
  for (const text of [readFileSync(LOG, "utf8"), JSON.stringify({ scenario: DONOR }), "", "[]\n", "{\n", '{"id": {"b": 1, "a": 2}}\n']) {
    expect(replay(text)).toBe(nativeReplay(text));
  }
});
