// What the builder knows of cards: their fields, and which field of a card a refusal of the planner belongs to.
import type { Card, Op } from "./planner.ts";
import type { Problem } from "./planner.ts";
import type { State } from "./state.ts";

/** A list of numbers, one number, a choice, or JSON. */
export type Kind = "numbers" | "number" | "optional" | "side" | "json";

export interface Field {
  name: string;
  label: string;
  kind: Kind;
  hint: string;
}

export const TITLES: Record<Card["do"], string> = {
  prefill: "Prompts", decode: "Decode", draft: "Draft", join: "Rows join", leave: "Rows leave", op: "Operation",
};

const FIELDS: Record<Exclude<Card["do"], "op">, Field[]> = {
  prefill: [
    { name: "lengths", label: "Lengths", kind: "numbers", hint: "one number a row" },
    { name: "padding", label: "Padding", kind: "side", hint: "" },
    { name: "chunk", label: "Chunk", kind: "optional", hint: "all at once" },
  ],
  decode: [{ name: "steps", label: "Steps", kind: "number", hint: "one token a row each" }],
  draft: [
    { name: "columns", label: "Drafted", kind: "numbers", hint: "one number an append" },
    { name: "accept", label: "Accepted", kind: "numbers", hint: "one number a row" },
  ],
  join: [{ name: "lengths", label: "Lengths", kind: "numbers", hint: "one number a new row" }],
  leave: [{ name: "rows", label: "Rows", kind: "numbers", hint: "counted from 0" }],
};

/** The fields of a card; an operation has those it is written with. */
export function fieldsOf(card: Card): Field[] {
  if (card.do !== "op") return FIELDS[card.do];
  const names = Object.keys(card.op ?? {}).filter((name) => name !== "op");
  return names.map((name) => ({ name, label: name, kind: "json", hint: "JSON" }));
}

export function valueOf(card: Card, name: string): unknown {
  return (card.do === "op" ? (card.op as unknown as Record<string, unknown>) : (card as unknown as Record<string, unknown>))[name];
}

export function withValue(card: Card, name: string, value: unknown): Card {
  if (card.do === "op") return { do: "op", op: { ...card.op, [name]: value } as Op };
  return { ...card, [name]: value } as Card;
}

export function write(kind: Kind, value: unknown): string {
  if (kind === "numbers") return Array.isArray(value) ? value.join(", ") : String(value ?? "");
  if (kind === "json") return JSON.stringify(value);
  return value === null || value === undefined ? "" : String(value);
}

/** What was typed as a value; throws a sentence when it is none. */
export function read(kind: Kind, text: string): unknown {
  const number = (word: string): number => {
    if (!/^\d{1,9}$/.test(word)) throw new Error(`${word === "" ? "nothing" : JSON.stringify(word)} is no number`);
    return Number(word);
  };
  const trimmed = text.trim();
  switch (kind) {
    case "numbers": return trimmed === "" ? [] : trimmed.split(/[\s,]+/).map(number);
    case "number": return number(trimmed);
    case "optional": return trimmed === "" ? null : number(trimmed);
    case "side": return trimmed;
    case "json": return JSON.parse(text);
  }
}

/** A card to begin with, for as many rows as there are. */
export function fresh(kind: Card["do"], rows: number): Card {
  const each = (n: number) => Array.from({ length: Math.max(rows, 1) }, (_, row) => (row === 0 ? n : n - 1));
  switch (kind) {
    case "prefill": return { do: "prefill", lengths: rows > 0 ? each(2) : [5, 2], padding: "right", chunk: null };
    case "decode": return { do: "decode", steps: 1 };
    case "draft": return { do: "draft", columns: [3], accept: each(2) };
    case "join": return { do: "join", lengths: [3] };
    case "leave": return { do: "leave", rows: [0] };
    case "op": return { do: "op", op: { op: "trim", n: 1 } };
  }
}

/** A refusal at its card. */
export interface Placed {
  card: number | "cache";
  field: string | null;
  message: string;
}

/** Where the refusal of the scenario belongs in the builder. */
export function placed(state: State): Placed | null {
  const { built, guide, unreadable, right } = state;
  if (unreadable) return { card: "cache", field: null, message: unreadable.message };
  if (built?.stopped && !right.problem) return built.stopped;
  const problem = right.problem;
  if (!built || !problem) return null;
  if (problem.step === null) return { card: "cache", field: problem.field, message: problem.message };
  const { step } = problem;
  const card = built.spans.findIndex(([from, to]) => from <= step && step < to);
  return { card, field: card >= 0 ? fieldOf(guide.cards[card], problem) : null, message: problem.message };
}

/** The field of a card from which the refused field of an operation was made. */
function fieldOf(card: Card, problem: Problem): string | null {
  const field = problem.field?.split(".")[0] ?? null;
  if (card.do === "op") return field === "op" ? null : field;
  const made: Record<string, string> = MADE[card.do];
  return made[field ?? ""] ?? null;
}

const MADE: Record<Exclude<Card["do"], "op">, Record<string, string>> = {
  prefill: { lengths: "lengths", left_padding: "lengths", right_padding: "lengths", tokens: "lengths", rows: "lengths", op: "padding" },
  decode: { tokens: "steps" },
  draft: { tokens: "columns", keep: "accept" },
  join: { rows: "lengths" },
  leave: { keep: "rows" },
};
