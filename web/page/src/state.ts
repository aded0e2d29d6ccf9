// The state of the page, and everything that may happen to it.
import type { Built, Guide } from "./planner.ts";
import { build, problemOf, type Problem } from "./planner.ts";
import type { Log, Run } from "./log.ts";
import { preset, type Preset } from "./presets.ts";
import { Reel } from "./reel.ts";
import type { Shared } from "./share.ts";
import { TOUR } from "./tour.ts";
import { slices } from "./slices.ts";

export type Order = "physical" | "temporal";
export type Form = "dense" | "runs";
export type Side = "gallery" | "build" | "json" | "learn";
export type Pane = "rows" | "laws" | "memory" | "live" | "try";

export interface State {
  name: string;
  guide: Guide;
  /** What the guide spells out to; null while it is no guide. */
  built: Built | null;
  /** Why it is no guide. */
  unreadable: Problem | null;
  right: Reel;
  /** The same by upstream's rules, while the two are compared. */
  upstream: Reel | null;
  /** The preset this came from, until it is edited. */
  preset: Preset | null;
  /** The log that is looked at instead of the guide. */
  live: { log: Log; run: Run; follow: boolean } | null;
  /** The step that is wanted; `stepOf` is the one shown. */
  step: number;
  row: number;
  order: Order;
  form: Form;
  side: Side;
  pane: Pane;
  stop: number;
  playing: boolean;
  /** The model whose bytes are counted; the first one shown has layers of both kinds. */
  model: string;
  /** What is said at the foot of the page. */
  notice: string;
  /** Counts what reels have gained, so that views notice. */
  grown: number;
}

const empty = (): Reel => new Reel({ cache: { kind: "full" }, ops: [] }, false);

let state: State = {
  name: "", guide: { cache: { kind: "full" }, cards: [] }, built: null, unreadable: null,
  right: empty(), upstream: null, preset: null, live: null,
  step: 0, row: 0, order: "physical", form: "dense", side: "gallery", pane: "rows", stop: 0,
  playing: false, model: "Gemma 3 4B", notice: "", grown: 0,
};

const listeners = new Set<() => void>();

export const get = (): State => state;

export function set(change: Partial<State>): void {
  state = { ...state, ...change };
  for (const listener of [...listeners]) listener();
}

export function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Shows a guide from its beginning. */
export function open(name: string, guide: Guide, change: Partial<State> & { compare?: boolean } = {}): void {
  const { compare = false, ...rest } = change;
  load(guide, compare, { name, live: null, preset: null, row: 0, step: Infinity, playing: false, notice: "", ...rest });
}

/** Shows an edited guide at the step one was looking at. */
export function edit(guide: Guide): void {
  const { name, preset, upstream } = state;
  const edited = preset ? `${name}, edited` : name;
  load(guide, upstream !== null, { name: edited, live: null, preset: null, notice: "" });
}

export function openPreset(chosen: Preset): void {
  const { id, name, guide, step, upstream } = chosen;
  open(name, guide, { preset: preset(id), compare: upstream !== undefined, order: "physical", ...(step === undefined ? {} : { step }) });
}

export function openShared(shared: Shared): void {
  const { name, guide, step, row, order, form, compare } = shared;
  open(name, guide, { step, row, order, form, compare, side: "build" });
}

export function openStop(stop: number): void {
  const { preset: id, step, row = 0, order = "physical", compare = false, look } = TOUR[stop];
  const chosen = preset(id);
  const pane = look === "laws" ? "laws" : "rows";
  open(chosen.name, chosen.guide, { preset: chosen, step, row, order, compare, stop, pane, side: "learn" });
}

export function compare(on: boolean): void {
  if (state.live) return;
  state.upstream?.free();
  const upstream = on && state.built ? new Reel(state.built.scenario, true) : null;
  set({ upstream });
  if (upstream) plan();
}

/** Looks at a run of a log. */
export function watch(log: Log, run: Run, follow: boolean): void {
  state.upstream?.free();
  if (!state.live) state.right.free();
  set({
    live: { log, run, follow }, name: run.name, right: run.reel, upstream: null, preset: null, built: null, row: 0,
    step: follow ? Infinity : run.reel.first, playing: false, grown: state.grown + 1,
  });
}

/** The last step that was planned on either side. */
export const lastStep = (s: State = state): number => Math.max(s.right.length, s.upstream?.length ?? 0, 1) - 1;

/** The step that is shown. A page that follows a server, or has not planned far enough, wants a later one. */
export const stepOf = (s: State): number => Math.max(s.right.first, Math.min(s.step, lastStep(s)));

export function goto(step: number): void {
  set({ step: Math.max(0, step) });
}

export function say(notice: string): void {
  set({ notice });
}

/** Which load is the newest: an older one stops when it sees another number. */
let newest = 0;

function load(guide: Guide, compare: boolean, change: Partial<State>): void {
  if (!state.live) state.right.free();
  state.upstream?.free();
  const { built, unreadable } = spellOut(guide);
  const right = built ? new Reel(built.scenario, false) : empty();
  const upstream = compare && built ? new Reel(built.scenario, true) : null;
  set({ ...change, guide, built, unreadable, right, upstream });
  plan();
}

function spellOut(guide: Guide): { built: Built | null; unreadable: Problem | null } {
  try {
    return { built: build(guide), unreadable: null };
  } catch (error) {
    return { built: null, unreadable: problemOf(error) };
  }
}

/** Plans what is not planned yet, a slice of time after the other, so that the page stays quick on large scenarios. */
function plan(): void {
  const load = ++newest;
  const { right, upstream } = state;
  slices((deadline) => {
    if (load !== newest) return false;
    right.advance(deadline);
    upstream?.advance(deadline);
    set({ grown: state.grown + 1 });
    return !right.done || upstream?.done === false;
  });
}
