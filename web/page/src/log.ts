// The geometry log of a server: lines of JSON, the operations of several groups and layouts interleaved.
import type { Cache, Op, State } from "./planner.ts";
import { Reel } from "./reel.ts";

/** Steps of a run are forgotten, oldest first, beyond so many cells: about 100 MB. */
const CELLS_KEPT = 1 << 23;

/** One layout of one group, as it came. */
export interface Run {
  key: string;
  name: string;
  cache: Cache;
  ops: Op[];
  reel: Reel;
}

type Entry =
  | { group: unknown; layouts: Cache[] }
  | { group: unknown; layout: number; seq: number; op: Op; state?: State };

/** A log as far as it was read. */
export class Log {
  readonly runs: Run[] = [];
  readonly #layouts = new Map<string, Cache[]>();

  /** Reads a line and returns the run it belongs to; null for a line that names layouts. Throws when it is no line of a log. */
  read(line: string): Run | null {
    const entry = JSON.parse(line) as Entry;
    if (entry?.group === undefined) throw new Error("a line of a geometry log names its group");
    const group = JSON.stringify(entry.group);
    if ("layouts" in entry) {
      this.#layouts.set(group, entry.layouts);
      return null;
    }
    const run = this.#run(group, entry.layout);
    run.ops.push(entry.op);
    run.reel.push(entry.op, entry.state);
    run.reel.forget(CELLS_KEPT);
    return run;
  }

  #run(group: string, layout: number): Run {
    const key = `${group}/${layout}`;
    const known = this.runs.find((run) => run.key === key);
    if (known) return known;
    const cache = this.#layouts.get(group)?.[layout];
    if (!cache) throw new Error(`group ${group} did not say what its layout ${layout} is`);
    const window = cache.kind === "rotating" ? `a window of ${cache.max_size}` : "full attention";
    const reel = new Reel({ cache, ops: [] }, false);
    const run: Run = { key, name: `group ${group}, ${window}`, cache, ops: [], reel };
    this.runs.push(run);
    return run;
  }
}

/** Whether a text is a geometry log rather than scenarios. */
export function isLog(text: string): boolean {
  const first = text.split("\n").find((line) => line.trim() !== "") ?? "";
  return first.includes('"group"') && !first.includes('"scenario"');
}
