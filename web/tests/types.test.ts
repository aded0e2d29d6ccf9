// The hand-written types hold: real output of every kind is compiled as a literal of its type, which refuses a field that is
// missing and one that is not declared.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Inspector, build, inspect, modelMemory, models, type Guide, type Line, type Options } from "@annulus/plan";
import { expect, test } from "vitest";
import { PRESETS } from "../page/src/presets.ts";
import { compile } from "./compile.ts";
import { CASES } from "./native.ts";

/** Scenarios that between them hold every operation, cut so that the compiler has little to read. */
function samples(): Line[] {
  const lines = ["mlx-lm-scenarios", "round-scenarios", "sink-scenarios"].flatMap((file) =>
    readFileSync(join(CASES, `${file}.jsonl`), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line) as Line),
  );
  const seen = new Set<string>();
  return lines.filter(({ scenario }) => {
    const fresh = scenario.ops.map((op) => `${scenario.cache.kind} ${op.op}`).filter((name) => !seen.has(name));
    fresh.forEach((name) => seen.add(name));
    return fresh.length > 0;
  }).concat(DONOR);
}

/** No recorded run holds one. */
const DONOR: Line = {
  scenario: {
    cache: { kind: "rotating", max_size: 4, sinks: 1 },
    ops: [{ op: "merge", rows: [[1000, 1001, 1002, 1003, 1004], [2000]] }, { op: "donor" }],
  },
};

test("real output compiles against the types", () => {
  const literals: string[] = [];
  const literal = (type: string, value: unknown) => literals.push(`export const _${literals.length}: P.${type} = ${JSON.stringify(value)};`);
  for (const { id, scenario } of samples()) {
    literal("Line", { id, scenario });
    for (const upstream of [false, true]) literal("Inspection", attempt({ id, scenario }, { upstream }));
    const inspector = new Inspector({ scenario });
    while (inspector.advance());
    for (let step = 0; step < inspector.length; step++) {
      literal("Head", inspector.head(step));
      literal("Compared[]", inspector.queries(step, 0));
      literal("Range[][]", inspector.runs(step, 0));
    }
    inspector.free();
  }
  for (const { guide } of PRESETS.filter((preset) => preset.group !== "Large")) {
    literal("Guide", guide satisfies Guide);
    literal("Built", build(guide));
  }
  literal("Built", build({ cache: { kind: "full" }, cards: [{ do: "join", lengths: [1] }, { do: "leave", rows: [7] }] }));
  literal("Model[]", models());
  literal("Memory", modelMemory("Gemma 3 4B", 100, 2));
  expect(literals.length).toBeGreaterThan(200);

  // Inside the package, so that the compiler finds what an import of it finds.
  const web = fileURLToPath(new URL("..", import.meta.url));
  const folder = mkdtempSync(join(web, "node_modules/.types-"));
  try {
    writeFileSync(join(folder, "literals.ts"), `import type * as P from "../../package/index.js";\n${literals.join("\n")}\n`);
    compile(folder, "literals.ts", "bundler");
  } finally {
    rmSync(folder, { recursive: true });
  }
});

/** Upstream may refuse where we do not; what came before is no `Inspection` then, but the right one is. */
function attempt(line: Line, options: Options) {
  try {
    return inspect(line, options);
  } catch {
    return inspect(line);
  }
}
