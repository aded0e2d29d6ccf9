// The steps of one scenario as the planner planned them, and the order in which they are asked for.
import type { Compared, Head, Op, Range, Scenario, State } from "./planner.ts";
import { Inspector, NO_POSITION, problemOf, type Problem } from "./planner.ts";

/** What the timeline shows of a step. */
export interface Summary {
  op: string;
  moved: number;
  rows: number;
  /** The columns worth showing: those in use and a few spare ones. */
  columns: number;
  holds: boolean;
}

/** One step. What is large is fetched from the planner when it is first looked at. */
export class Still {
  readonly head: Head;
  readonly #inspector: Inspector;
  readonly #step: number;
  #kinds?: Uint8Array;
  #order?: Uint32Array;
  #place?: Int32Array;
  readonly #positions = new Map<number, Int32Array>();
  readonly #tags = new Map<number, Float64Array>();
  readonly #runs = new Map<number, Range[][]>();
  readonly #queries = new Map<number, Compared[]>();

  constructor(inspector: Inspector, step: number) {
    this.#inspector = inspector;
    this.#step = step;
    this.head = inspector.head(step);
  }

  get kinds(): Uint8Array {
    return (this.#kinds ??= this.#inspector.kinds(this.#step));
  }

  positions(row: number): Int32Array {
    return remember(this.#positions, row, () => this.#inspector.positions(this.#step, row));
  }

  tags(row: number): Float64Array {
    return remember(this.#tags, row, () => this.#inspector.tags(this.#step, row));
  }

  /** Physical columns by age: those in use from the oldest on, then the spare ones. */
  get order(): Uint32Array {
    if (!this.#order) {
      const used = this.#inspector.order(this.#step);
      const order = new Uint32Array(this.head.planes.capacity);
      order.set(used);
      const taken = new Set(used);
      let next = used.length;
      for (let column = 0; column < order.length; column++) if (!taken.has(column)) order[next++] = column;
      this.#order = order;
    }
    return this.#order;
  }

  /** Where each physical column stands in `order`. */
  get place(): Int32Array {
    if (!this.#place) {
      const place = new Int32Array(this.order.length);
      this.order.forEach((column, at) => (place[column] = at));
      this.#place = place;
    }
    return this.#place;
  }

  /** The visible runs of every query of a row, in physical columns. */
  runs(row: number): Range[][] {
    return remember(this.#runs, row, () => this.#inspector.runs(this.#step, row));
  }

  /** Columns that a copy of a row would take although they hold no token of it: a broken law, so nearly always none. */
  emptyHeld(): { row: number; column: number }[] {
    if (this.head.invariants.every((law) => law.name !== "held" || law.holds)) return [];
    return this.head.rows.flatMap(({ held }, row) =>
      held.flatMap(([from, to]) =>
        Array.from({ length: to - from }, (_, i) => ({ row, column: from + i })).filter(
          ({ column }) => this.positions(row)[column] === NO_POSITION,
        ),
      ),
    );
  }

  /** Columns that a donor lends. */
  *lent(): Generator<{ row: number; column: number }> {
    for (const [row, { columns }] of (this.head.donor?.rows ?? []).entries()) {
      for (const [from, to] of columns) for (let column = from; column < to; column++) yield { row, column };
    }
  }

  /** Every query of a row beside the definition. */
  queries(row: number): Compared[] {
    return remember(this.#queries, row, () => this.#inspector.queries(this.#step, row));
  }
}

function remember<T>(cache: Map<number, T>, key: number, make: () => T): T {
  let value = cache.get(key);
  if (value === undefined) cache.set(key, (value = make()));
  return value;
}

/** A scenario as it is planned, step by step. */
export class Reel {
  readonly summaries: Summary[] = [];
  /** Why it stopped, when it did. */
  problem: Problem | null = null;
  done = false;
  #inspector: Inspector | null = null;
  #last: { step: number; still: Still } | null = null;

  constructor(scenario: Scenario, readonly upstream: boolean) {
    try {
      this.#inspector = new Inspector(scenario, { upstream });
      this.done = this.#inspector.total === 0;
    } catch (error) {
      this.problem = problemOf(error);
      this.done = true;
    }
  }

  get length(): number {
    return this.#inspector?.length ?? 0;
  }

  /** The first step that is still kept. */
  get first(): number {
    return this.#inspector?.first ?? 0;
  }

  get total(): number {
    return this.#inspector?.total ?? 0;
  }

  /** Plans operations until the deadline, at least one. */
  advance(deadline: number): void {
    const inspector = this.#inspector;
    while (inspector && !this.done) {
      try {
        this.done = !inspector.advance();
        this.#summarize();
      } catch (error) {
        this.problem = problemOf(error);
        this.done = true;
      }
      if (performance.now() > deadline) return;
    }
  }

  /** Adds an operation of a running server, and the state it recorded. */
  push(op: Op, state: State | undefined): void {
    if (!this.#inspector || this.problem) return;
    try {
      this.#inspector.push(op, state);
    } catch (error) {
      this.problem = problemOf(error);
    }
    if (this.summaries.length < this.length) this.#summarize();
  }

  /** Forgets the oldest steps beyond so many cells. */
  forget(cells: number): void {
    this.#inspector?.forget(cells);
  }

  still(step: number): Still | null {
    if (!this.#inspector || step < this.first || step >= this.length) return null;
    if (this.#last?.step !== step) this.#last = { step, still: new Still(this.#inspector, step) };
    return this.#last.still;
  }

  /** Gives the planner's memory back. */
  free(): void {
    this.#inspector?.free();
    this.#inspector = null;
    this.#last = null;
  }

  #summarize(): void {
    if (!this.#inspector) return;
    const { op, moved, rows, planes, invariants } = this.#inspector.head(this.length - 1);
    const columns = Math.min(planes.capacity, planes.pinned + planes.active + SPARE_SHOWN);
    this.summaries.push({ op, moved, rows: rows.length, columns, holds: invariants.every((law) => law.holds) });
  }
}

/** Spare columns drawn behind those in use; there may be hundreds, all alike. */
const SPARE_SHOWN = 2;
