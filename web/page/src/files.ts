// Files in and out: scenarios, geometry logs, pictures, text for the clipboard.
import { Log, isLog } from "./log.ts";
import type { Scenario } from "./planner.ts";
import { rustTest } from "./planner.ts";
import { format, guideOf, parse } from "./scenario-text.ts";
import { encode, LONGEST_LINK } from "./share.ts";
import { open, say, stepOf, watch, type State } from "./state.ts";

/** Opens a scenario, a file of scenarios (its first) or a geometry log. */
export async function openFile(file: File): Promise<void> {
  openText(await file.text(), file.name);
}

export function openText(text: string, name: string): void {
  try {
    if (isLog(text)) openLog(text);
    else openScenario(text, name);
  } catch (error) {
    say(`${name}: ${(error as Error).message}`);
  }
}

function openLog(text: string): void {
  const log = new Log();
  for (const line of text.split("\n")) if (line.trim()) log.read(line);
  if (!log.runs[0]) throw new Error("the log holds no operation");
  watch(log, log.runs[0], false);
  const broken = log.runs.find((run) => run.reel.problem);
  say(broken ? `${broken.name}: ${broken.reel.problem?.message}` : `${log.runs.length} runs, all as recorded.`);
}

function openScenario(text: string, name: string): void {
  const lines = text.split("\n").filter((line) => line.trim());
  const whole = lines.length > 1 && !lines.every((line) => line.startsWith("{") && line.trimEnd().endsWith("}"));
  const { name: id, scenario } = parse(whole ? text : lines[0] ?? "");
  open(id ?? name, guideOf(scenario), { side: "json" });
  if (!whole && lines.length > 1) say(`${name} holds ${lines.length} scenarios; this is the first.`);
}

/** The scenario on screen. Of a log, everything since the last gap. */
export function scenarioOf(state: State): Scenario | null {
  if (!state.live) return state.built?.scenario ?? null;
  const { cache, ops } = state.live.run;
  const gap = ops.findLastIndex((op) => op.op === "adopt");
  return { cache, ops: gap > 0 ? ops.slice(gap) : ops };
}

export function save(state: State): void {
  const scenario = scenarioOf(state);
  if (scenario) download(new Blob([JSON.stringify({ id: state.name, scenario }) + "\n"]), `${fileName(state.name)}.jsonl`);
}

export async function copyLink(state: State): Promise<void> {
  const { name, guide, row, order, form, upstream } = state;
  const hash = await encode({ name, guide, step: stepOf(state), row, order, form, compare: upstream !== null });
  if (hash.length > LONGEST_LINK) return say("This scenario is too long for a link. Save or copy its JSON instead.");
  await copy(`${location.href.split("#")[0]}#${hash}`, "The link");
}

export async function copyJson(state: State): Promise<void> {
  const scenario = scenarioOf(state);
  if (scenario) await copy(format(scenario), "The scenario");
}

export async function copyRustTest(state: State): Promise<void> {
  const scenario = scenarioOf(state);
  if (scenario) await copy(rustTest({ id: state.name, scenario }), "A Rust test");
}

async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} is on the clipboard.`);
  } catch {
    // Without permission, or over plain HTTP from another machine, there is no clipboard.
    download(new Blob([text]), "annulus.txt");
    say(`${what} was saved as a file: the clipboard is not allowed here.`);
  }
}

export const fileName = (name: string): string => name.replaceAll(/[^\w.-]+/g, "-").replaceAll(/^-+|-+$/g, "") || "scenario";

export function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
