// The parts of the page that need no browser.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { fieldsOf, read, write } from "../page/src/cards.ts";
import { Log, isLog } from "../page/src/log.ts";
import { bytes, count } from "../page/src/numbers.ts";
import { build } from "../page/src/planner.ts";
import { PRESETS, preset } from "../page/src/presets.ts";
import { Reel } from "../page/src/reel.ts";
import { format, guideOf, lineOfStep, parse } from "../page/src/scenario-text.ts";
import { decode, encode, LONGEST_LINK, type Shared } from "../page/src/share.ts";
import { TOUR } from "../page/src/tour.ts";
import { LOG } from "./native.ts";

function played(guide: Parameters<typeof build>[0], upstream: boolean): Reel {
  const reel = new Reel(build(guide).scenario, upstream);
  while (!reel.done) reel.advance(Infinity);
  return reel;
}

const broken = (reel: Reel, step: number) => reel.still(step)!.head.invariants.filter((law) => !law.holds).map((law) => law.name);

test("every preset runs to its end, breaks no law, and opens at a step it has", () => {
  for (const { id, guide, step } of PRESETS) {
    const built = build(guide);
    expect(built.stopped, id).toBeUndefined();
    // The large one is played by the benchmark; here its first step must do.
    const reel = id === "large" ? new Reel({ ...built.scenario, ops: built.scenario.ops.slice(0, 1) }, false) : played(guide, false);
    while (!reel.done) reel.advance(Infinity);
    expect(reel.problem, id).toBeNull();
    expect(reel.summaries.filter((s) => !s.holds), id).toEqual([]);
    expect(step ?? 0, id).toBeLessThan(built.scenario.ops.length);
    reel.free();
  }
});

test("each preset with two answers shows upstream's fault at the step it opens at, and nowhere the same as ours", () => {
  const faults = PRESETS.filter((p) => p.upstream).map(({ id, guide, step }) => {
    const reel = played(guide, true);
    return [id, reel.problem?.step === step ? "refused" : broken(reel, step!).join()];
  });
  expect(Object.fromEntries(faults)).toEqual({ "br-01": "definition", "br-02": "refused", "br-03": "definition", padding: "held" });
});

test("upstream's lost key of BR-01 is position 0 of the first row, in column 0", () => {
  const [query] = played(preset("br-01").guide, true).still(3)!.queries(0);
  expect(query).toMatchObject({ position: 2, expected: [[0, 3]], seen: [[1, 3]], hidden: [0], wrong: [], holds: false });
});

test("W+S-1 columns after a block, W after the next step", () => {
  const reel = played(preset("br-17").guide, false);
  expect([reel.still(1)!.head.planes.active, reel.still(2)!.head.planes.active]).toEqual([6 + 4 - 1, 6]);
});

test("every stop of the tour exists", () => {
  expect(TOUR.length).toBeGreaterThanOrEqual(8);
  expect(TOUR.length).toBeLessThanOrEqual(12);
  for (const stop of TOUR) {
    expect(preset(stop.preset).id).toBe(stop.preset);
    const { ops } = build(preset(stop.preset).guide).scenario;
    expect(stop.step, stop.title).toBeLessThan(ops.length);
  }
});

test("a link restores what was shared and stays short", async () => {
  const shared: Shared = { name: "Größe", guide: preset("ragged").guide, step: 3, row: 1, order: "temporal", form: "runs", compare: true };
  const hash = await encode(shared);
  expect(hash.length).toBeLessThan(300);
  expect(hash).toMatch(/^s=[\w-]+$/);
  expect(await decode(`#${hash}`)).toEqual(shared);
  const large = await encode({ ...shared, guide: preset("large").guide });
  expect(large.length).toBeLessThan(LONGEST_LINK);
});

test("a damaged or hostile link restores nothing, and a strange one falls back", async () => {
  for (const hash of ["", "#s=", "#s=***", "#s=AAAA", "#other=1"]) expect(await decode(hash)).toBeNull();
  const strange = { guide: { cards: [] }, step: -3, row: "x", order: "sideways" } as unknown as Shared;
  expect(await decode(`#${await encode(strange)}`)).toMatchObject({ name: "shared", step: 0, row: 0, order: "physical", compare: false });
});

test("a scenario is written one operation a line and read back", () => {
  const { scenario } = build(preset("join").guide);
  const text = format(scenario);
  expect(parse(text)).toEqual({ name: null, scenario });
  expect(parse(JSON.stringify({ id: "a", scenario })).name).toBe("a");
  expect(build(guideOf(scenario)).scenario).toEqual(scenario);
  expect(() => parse("[]")).toThrow("a scenario is an object");
});

test("the line of an operation is found in text of any layout", () => {
  const text = `{"cache": {"kind": "full"},\n "ops": [\n {"op": "empty", "rows": 1},\n\n {"op": "append",\n "tokens": [[1]]}, {"op": "x}\\"{"}]}`;
  expect([0, 1, 2, 3].map((step) => lineOfStep(text, step))).toEqual([3, 5, 6, null]);
  expect(lineOfStep("{}", 0)).toBeNull();
});

test("fields are read as they are written", () => {
  expect(read("numbers", " 5, 2 7")).toEqual([5, 2, 7]);
  expect(write("numbers", [5, 2])).toBe("5, 2");
  expect(read("optional", "")).toBeNull();
  expect(() => read("number", "x")).toThrow('"x" is no number');
  expect(() => read("numbers", "5, -1")).toThrow('"-1" is no number');
  expect(fieldsOf({ do: "op", op: { op: "extract", row: 1, as: "a" } }).map((field) => field.name)).toEqual(["row", "as"]);
});

test("a geometry log is played by group and layout, and a state that differs is named", () => {
  const text = readFileSync(LOG, "utf8");
  expect(isLog(text)).toBe(true);
  expect(isLog('{"id": "a", "scenario": {}}')).toBe(false);
  const lines = text.trim().split("\n");
  const log = new Log();
  lines.forEach((line) => log.read(line));
  expect(log.runs.map((run) => [run.name, run.reel.length, run.reel.problem])).toEqual([
    ["group 3, full attention", 11, null],
    ["group 3, a window of 4", 11, null],
  ]);
  const tampered = new Log();
  lines.forEach((line) => tampered.read(line.replace('"offsets":[6,4,2],"left_pad":[0,0,2]', '"offsets":[6,4,3],"left_pad":[0,0,2]')));
  expect(tampered.runs[1].reel.problem).toMatchObject({ step: 4, op: "extend", field: "state.offsets", message: "extend.state.offsets: recorded [6,4,3], replayed [6,4,2]" });
});

test("after a gap a log starts anew", () => {
  const log = new Log();
  const state = { offsets: [3], left_pad: [0], width: 3 };
  log.read('{"group": 1, "layouts": [{"kind": "full"}]}');
  log.read('{"group": 1, "layout": 0, "seq": 1, "op": {"op": "merge", "rows": [[1]]}}');
  log.read(JSON.stringify({ group: 1, layout: 0, seq: 9, op: { op: "adopt", state, cells: [[1, 2, 3]] }, state }));
  expect(log.runs[0].reel).toMatchObject({ length: 2, problem: null });
});

test("numbers get their units", () => {
  expect([0, 999, 1000, 4_250_000, 12e9].map(bytes)).toEqual(["0 bytes", "999 bytes", "1.0 kB", "4.3 MB", "12 GB"]);
  expect([count(1, "column"), count(1234, "column")]).toEqual(["1 column", "1,234 columns"]);
});
