// Colours and patterns by kind. A kind is told by its pattern too, never by colour alone.
import { KINDS, type CellKind } from "../planner.ts";

export interface Ink {
  fill: string;
  line: string;
  text: string;
}

export interface Palette {
  dark: boolean;
  page: string;
  text: string;
  muted: string;
  line: string;
  accent: string;
  link: string;
  wrong: string;
  seen: string;
  kinds: Record<CellKind, Ink>;
}

const LIGHT: Palette = {
  dark: false, page: "#ffffff", text: "#1b222d", muted: "#596273", line: "#d4d9e1", accent: "#0b5cad", link: "#7b2fb0",
  wrong: "#c0162c", seen: "#3f7fc4",
  kinds: {
    spare: { fill: "#ffffff", line: "#d4d9e1", text: "#596273" },
    live: { fill: "#cfe1f8", line: "#8db3e2", text: "#0f2f57" },
    sink: { fill: "#c3e9d8", line: "#1f7a58", text: "#0b3d2b" },
    left_padding: { fill: "#eceef1", line: "#a9b0bb", text: "#596273" },
    trailing_padding: { fill: "#fbe9c6", line: "#b9822a", text: "#5c3d08" },
    rejected: { fill: "#f8d7da", line: "#b9505c", text: "#6d1420" },
  },
};

const DARK: Palette = {
  dark: true, page: "#12161c", text: "#e4e8ef", muted: "#a2acbb", line: "#39424f", accent: "#7ab8ff", link: "#d29bff",
  wrong: "#ff7381", seen: "#4d8fd6",
  kinds: {
    spare: { fill: "#12161c", line: "#39424f", text: "#a2acbb" },
    live: { fill: "#1f4470", line: "#4a7ab3", text: "#e3efff" },
    sink: { fill: "#17503c", line: "#57b892", text: "#dcf7ec" },
    left_padding: { fill: "#252b34", line: "#5a6472", text: "#a2acbb" },
    trailing_padding: { fill: "#4d3a14", line: "#c99a49", text: "#fbe9c6" },
    rejected: { fill: "#56222b", line: "#cf6f7b", text: "#ffdde1" },
  },
};

export function palette(): Palette {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return dark ? DARK : LIGHT;
}

/** The words of the legend. */
export const KIND_WORDS: Record<CellKind, string> = {
  live: "a token",
  sink: "a pinned token",
  left_padding: "padding before",
  trailing_padding: "padding after",
  rejected: "taken back",
  spare: "spare",
};

const patterns = new Map<string, CanvasPattern | null>();

/** The pattern of a kind, drawn once for each theme. */
export function patternOf(kind: CellKind, palette: Palette): CanvasPattern | null {
  const key = `${kind} ${palette.dark}`;
  let pattern = patterns.get(key);
  if (pattern === undefined) patterns.set(key, (pattern = makePattern(kind, palette)));
  return pattern;
}

function makePattern(kind: CellKind, palette: Palette): CanvasPattern | null {
  const stroke = STROKES[kind];
  if (!stroke) return null;
  const tile = document.createElement("canvas");
  tile.width = tile.height = TILE;
  const ctx = tile.getContext("2d")!;
  ctx.strokeStyle = ctx.fillStyle = palette.kinds[kind].line;
  ctx.lineWidth = 1;
  stroke(ctx);
  return ctx.createPattern(tile, "repeat");
}

const TILE = 8;

const STROKES: Record<CellKind, ((ctx: CanvasRenderingContext2D) => void) | null> = {
  spare: null,
  live: null,
  sink: (ctx) => {
    ctx.beginPath();
    for (const [x, y] of [[2, 2], [6, 6]]) ctx.arc(x, y, 1, 0, 2 * Math.PI), ctx.closePath();
    ctx.fill();
  },
  left_padding: (ctx) => diagonals(ctx, 1),
  trailing_padding: (ctx) => diagonals(ctx, -1),
  rejected: (ctx) => (diagonals(ctx, 1), diagonals(ctx, -1)),
};

/** Diagonals that meet at the edges of the tile: rising for 1, falling for -1. */
function diagonals(ctx: CanvasRenderingContext2D, direction: 1 | -1): void {
  ctx.beginPath();
  for (const shift of [-TILE, 0, TILE]) {
    ctx.moveTo(shift - 1, direction > 0 ? TILE + 1 : -1);
    ctx.lineTo(shift + TILE + 1, direction > 0 ? -1 : TILE + 1);
  }
  ctx.stroke();
}

export const kindOf = (code: number): CellKind => KINDS[code & 7];
