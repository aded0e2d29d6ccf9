/** A token: an integer tag above 0. 0 is padding. */
export type Tag = number;
/** Columns or positions `[from, to)`. */
export type Range = [number, number];

/** Which columns a cache keeps. */
export type Cache = { kind: "full" } | { kind: "rotating"; max_size: number; sinks?: number };
/** A row that joins: its tokens, or the name an extraction saved it under. */
export type JoinRow = Tag[] | { from: string };

/** One operation of a scenario. */
export type Op =
  | { op: "merge"; rows: JoinRow[] }
  | { op: "empty"; rows: number }
  | { op: "prepare"; lengths: number[]; left_padding?: number[]; right_padding?: number[] }
  | { op: "append"; tokens: Tag[][] }
  | { op: "finalize" }
  | { op: "filter"; keep: number[] }
  | { op: "extend"; rows: JoinRow[] }
  | { op: "extract"; row: number; limit?: number; as?: string }
  | { op: "trim"; n: number }
  | { op: "round_begin" }
  | { op: "round_commit" }
  | { op: "round_rollback"; keep: number | number[] }
  | { op: "donor" }
  | { op: "adopt"; state: State; cells: Tag[][] }
  | { op: "snapshot"; name: string }
  | { op: "restore"; name: string };

/** A cache and what is done to it. */
export interface Scenario {
  cache: Cache;
  ops: Op[];
}

/** A line of a scenario file. */
export interface Line {
  id?: string;
  scenario: Scenario;
}

export interface Options {
  /** Show what mlx-lm 0.32.2 does, faults included. */
  upstream?: boolean;
  /** How planes get spare columns. */
  growth?: { step?: number; reserve?: number };
}

/** What every refusal throws. */
export interface PlanError extends Error {
  name: "PlanError";
  /** The place of the operation in the scenario. */
  step: number | null;
  op: string | null;
  field: string | null;
}

/** The integers of a group. */
export interface State {
  offsets: number[];
  left_pad: number[];
  prefill_ends?: number[];
  ring_index?: number;
  total_offset?: number;
  rotated?: boolean;
  width?: number;
}

/** An operation on the columns of every plane of a layer. */
export type ColumnOp =
  | { do: "grow"; columns: number }
  | { do: "write"; at: number; columns: number }
  | { do: "scatter"; starts: number[]; columns: number }
  | { do: "pin"; runs: { row: number; incoming: Range; at: number }[] }
  | { do: "concat"; columns: number }
  | { do: "slice"; ranges: Range[] }
  | { do: "roll"; over: Range; shifts: number[] }
  | { do: "pad_left"; at: number; columns: number }
  | { do: "take_rows"; rows: number[] }
  | { do: "join"; rows: ({ empty: number } | { source: Range })[][] }
  | { do: "copy_row"; row: number; ranges: Range[] }
  | { do: "copy_columns"; ranges: Range[] };

export interface Action {
  op: ColumnOp;
  words: string;
}

/** What the next append is part of. */
export type Phase =
  | { kind: "decode" }
  | { kind: "prefill"; ends: number[] | null; remaining: number | null }
  | { kind: "round"; saved: number[]; taken: number[] };

/** Something that must always hold. */
export interface Invariant {
  name: string;
  words: string;
  holds: boolean;
  /** The first place where it does not. */
  broken?: string;
}

/** The planes that all rows share. */
export interface Planes {
  capacity: number;
  pinned: number;
  active: number;
  window: number | null;
  head: number | null;
  rotation: number;
  rotated: boolean;
}

/** What `annulus plan replay` says of an operation. */
export interface Entry {
  state?: State;
  rope_offsets?: number[];
  fetched?: Tag[][];
  mask?: string[][];
  sees?: (Tag[] | null)[][];
  visible?: Tag[][];
  tokens?: Tag[];
  offset?: number;
  offsets?: number[];
  starts?: number[];
  ends?: number[];
  width?: number;
  ops?: (ColumnOp | { do: "fetch"; columns: Range })[];
}

export type CellKind = "spare" | "live" | "sink" | "left_padding" | "trailing_padding" | "rejected";

export interface Cell {
  kind: CellKind;
  tag: Tag;
  position: number | null;
  evicted_next: boolean;
}

export interface Query {
  position: number | null;
  expected: number[];
  seen: number[];
  wrong: number[];
  hidden: number[];
  holds: boolean;
}

/** What a donor lends: a copy of some columns, and which of them a reader may read. */
export interface Donor {
  width: number;
  /** How many of the columns, on the left, are pinned. */
  pinned: number;
  rows: {
    /** The position of its next token. */
    offset: number;
    /** The columns of the copy that may be read: pinned ones, then the newest. */
    valid: Range[];
    /** The positions there. */
    positions: Range[];
    /** The physical columns that these are copies of. */
    columns: Range[];
    words: string;
  }[];
}

/** The group after one operation, and how it came about. */
export interface Frame {
  op: string;
  words: string;
  ops: Action[];
  moved: number;
  entry: Entry;
  phase: Phase;
  planes: Planes & { order: number[] };
  rows: { offset: number; valid: number; left_pad: number; end?: number; held: Range[]; cells: Cell[] }[];
  mask?: { kind: "none" | "causal" | "runs"; words: string; fetch: Range; runs: Range[][][] };
  queries?: Query[][];
  donor?: Donor;
  invariants: Invariant[];
}

/** A scenario, frame by frame. */
export interface Inspection {
  id: unknown;
  frames: Frame[];
}

/** A step of an `Inspector`, its cells and queries excepted. */
export interface Head {
  step: number;
  op: string;
  words: string;
  ops: Action[];
  moved: number;
  state: State | null;
  rope_offsets: number[] | null;
  tokens: Tag[] | null;
  offset: number | null;
  phase: Phase;
  planes: Planes;
  rows: { offset: number; valid: number; left_pad: number; end: number | null; held: Range[] }[];
  mask: { kind: "none" | "causal" | "runs"; words: string; fetch: Range; queries: number } | null;
  donor: Donor | null;
  invariants: Invariant[];
  broken_queries: number;
}

/** A query beside the definition, its positions as ranges. */
export interface Compared {
  position: number | null;
  expected: Range[];
  seen: Range[];
  /** The physical columns that it sees and must not. */
  wrong: number[];
  /** The physical columns that it must see and does not. */
  hidden: number[];
  holds: boolean;
}

/** A scenario in an engine's words. */
export interface Guide {
  cache: Cache;
  cards: Card[];
}

export type Card =
  | { do: "prefill"; lengths: number[]; padding: "alone" | "left" | "right"; chunk: number | null }
  | { do: "decode"; steps: number }
  | { do: "draft"; columns: number[]; accept: number[] }
  | { do: "join"; lengths: number[] }
  | { do: "leave"; rows: number[] }
  | { do: "op"; op: Op };

/** What a guide spells out to. */
export interface Built {
  scenario: Scenario;
  /** The operations of each card. */
  spans: Range[];
  stopped?: { card: number; field: string; message: string };
}

/** How the numbers of a key or value are stored. */
export type Format =
  | { kind: "plain"; bits: number }
  | { kind: "affine"; bits: number; group: number; scale_bits: number };

export interface Heads {
  kv_heads: number;
  head_dim: number;
}

export interface Model {
  name: string;
  layers: { count: number; window: number | null; heads: Heads }[];
}

export interface Memory {
  /** The columns of each kind of layer, in the model's order. */
  columns: number[];
  /** `bytes`: all layers, all rows; `column`: all layers, one column of one row. */
  formats: { name: string; format: Format; bytes: number; column: number }[];
}
