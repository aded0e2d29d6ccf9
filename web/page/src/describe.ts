// Cells and queries in words.
import { EVICTED_NEXT, NO_POSITION, type Range } from "./planner.ts";
import { KIND_WORDS, kindOf } from "./draw/palette.ts";
import type { Still } from "./reel.ts";

/** `0–3, 7`: positions or columns. */
export function ranges(list: Range[]): string {
  if (list.length === 0) return "nothing";
  return list.map(([from, to]) => (to - from === 1 ? `${from}` : `${from}–${to - 1}`)).join(", ");
}

export interface CellWords {
  kind: string;
  position: number | null;
  tag: number | null;
  goes: boolean;
}

export function cell(still: Still, row: number, column: number): CellWords {
  const code = still.kinds[row * still.head.planes.capacity + column];
  const [position, tag] = [still.positions(row)[column], still.tags(row)[column]];
  return {
    kind: KIND_WORDS[kindOf(code)],
    position: position === NO_POSITION ? null : position,
    tag: tag === 0 ? null : tag,
    goes: (code & EVICTED_NEXT) !== 0,
  };
}

export function cellWords(still: Still, row: number, column: number): string {
  const { kind, position, tag, goes } = cell(still, row, column);
  const parts = [`row ${row}, column ${column}: ${kind}`];
  if (position !== null) parts.push(`position ${position}`);
  if (tag !== null) parts.push(`tag ${tag}`);
  if (goes) parts.push("dropped next");
  if (still.head.donor) parts.push(lends(still, row, column) ? "lent" : "not lent");
  if (still.head.mask) parts.push(`seen by ${seers(still, row, column)}`);
  return parts.join(" · ");
}

/** Whether a donor lends a column of a row. */
const lends = (still: Still, row: number, column: number): boolean =>
  still.head.donor?.rows[row]?.columns.some(([from, to]) => from <= column && column < to) ?? false;

/** The queries of a row that see a column. */
function seers(still: Still, row: number, column: number): string {
  const queries = still.queries(row);
  const seen = still.runs(row).flatMap((runs, index) => {
    const position = queries[index]?.position ?? null;
    return position !== null && runs.some(([from, to]) => from <= column && column < to) ? [position] : [];
  });
  if (seen.length === 0) return "no query";
  return `the ${seen.length === 1 ? "query" : "queries"} at ${ranges(joined(seen))}`;
}

/** Ascending numbers as ranges. */
function joined(numbers: number[]): Range[] {
  const list: Range[] = [];
  for (const n of numbers) {
    const last = list.at(-1);
    if (last && last[1] === n) last[1]++;
    else list.push([n, n + 1]);
  }
  return list;
}

export function queryWords(still: Still, row: number, index: number): string {
  const query = still.queries(row)[index];
  if (!query) return "";
  if (query.position === null) return `row ${row}: a padding query, compared with nothing`;
  const seen = `row ${row}, query at position ${query.position}: sees positions ${ranges(query.seen)}`;
  if (query.holds) return `${seen} · as defined`;
  const wrong = query.wrong.length > 0 ? ` · sees what it must not, in column ${query.wrong.join(", ")}` : "";
  const lost = query.hidden.length > 0 ? ` · does not see column ${query.hidden.join(", ")}` : "";
  return `${seen} · must see ${ranges(query.expected)}${lost}${wrong}`;
}
