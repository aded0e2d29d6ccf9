// The mask: queries by columns, one line a query, below the columns they see.
import type { Compared, Range } from "../planner.ts";
import type { Still } from "../reel.ts";
import type { Form, Order } from "../state.ts";
import { FONT, GUTTER, columnAt, inSight, xOf, type Area } from "./canvas.ts";
import type { Palette } from "./palette.ts";
import { view } from "./viewport.ts";

export interface MaskPicture {
  still: Still;
  order: Order;
  form: Form;
  palette: Palette;
  selected: number;
  /** The query under the pointer. */
  query: { row: number; index: number } | null;
  /** The cell under the pointer: the queries of its row that see it are marked. */
  cell: { row: number; column: number } | null;
}

const TALLEST = 20;
const LOWEST = 8;

export const lines = (still: Still): number => still.head.rows.length * (still.head.mask?.queries ?? 0);

export const lineHeight = (still: Still, height: number): number =>
  Math.max(LOWEST, Math.min(TALLEST, (height - 4) / Math.max(1, lines(still))));

/** The query under a pixel. */
export function queryAt(still: Still, y: number, height: number): { row: number; index: number } | null {
  const queries = still.head.mask?.queries ?? 0;
  const line = Math.floor((y - 2 + view.top.mask) / lineHeight(still, height));
  return queries > 0 && line >= 0 && line < lines(still)
    ? { row: Math.floor(line / queries), index: line % queries }
    : null;
}

export function drawMask(area: Area, picture: MaskPicture): void {
  const { ctx, width, height } = area;
  const { still } = picture;
  const queries = still.head.mask?.queries ?? 0;
  const tall = lineHeight(still, height);
  view.top.mask = Math.min(view.top.mask, Math.max(0, lines(still) * tall - height + 4));
  const first = Math.floor(view.top.mask / tall);
  const last = Math.min(lines(still), Math.ceil((view.top.mask + height) / tall));
  for (let line = first; line < last; line++) {
    const [row, index] = [Math.floor(line / queries), line % queries];
    const y = 2 + line * tall - view.top.mask;
    const compared = still.queries(row)[index];
    drawName(ctx, picture, row, index, compared, y, tall);
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, 0, width - GUTTER, height);
    ctx.clip();
    drawLine(area, picture, row, index, compared, y, tall);
    ctx.restore();
  }
}

function drawName(ctx: CanvasRenderingContext2D, picture: MaskPicture, row: number, index: number, compared: Compared, y: number, tall: number): void {
  const { palette, query } = picture;
  const mine = query?.row === row && query.index === index;
  const pointed = seesPointed(picture, row, index);
  if (index === 0 && row > 0) {
    ctx.strokeStyle = palette.line;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(0, y - 0.5);
    ctx.lineTo(GUTTER, y - 0.5);
    ctx.stroke();
  }
  if (pointed || mine) {
    ctx.fillStyle = palette.link;
    ctx.fillRect(0, y, 3, tall - 1);
  }
  ctx.fillStyle = compared.holds ? (mine || pointed ? palette.text : palette.muted) : palette.wrong;
  ctx.font = FONT(Math.min(11.5, tall - 0.5), mine || pointed || !compared.holds ? 700 : 400);
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const where = compared.position === null ? "pad" : `p${compared.position}`;
  ctx.fillText(`${compared.holds ? "" : "! "}r${row} ${where}`, GUTTER - 8, y + tall / 2);
}

/** Whether a query sees the cell under the pointer. */
function seesPointed({ still, cell }: MaskPicture, row: number, index: number): boolean {
  if (cell?.row !== row) return false;
  return within(still.runs(row)[index] ?? [], cell.column);
}

const within = (runs: Range[], column: number): boolean => runs.some(([from, to]) => from <= column && column < to);

/** What a query makes of a column. */
const Shown = { Out: 0, Masked: 1, Seen: 2, Wrong: 3, Hidden: 4 } as const;

/** One query spelled out over the physical columns; the same memory serves every line. */
let spelled = new Uint8Array(0);

function spellOut(still: Still, runs: Range[], compared: Compared): Uint8Array {
  const { capacity } = still.head.planes;
  if (spelled.length < capacity) spelled = new Uint8Array(capacity);
  const [low, high] = still.head.mask!.fetch;
  spelled.fill(Shown.Out).fill(Shown.Masked, low, high);
  for (const [from, to] of runs) spelled.fill(Shown.Seen, from, to);
  for (const column of compared.wrong) spelled[column] = Shown.Wrong;
  for (const column of compared.hidden) spelled[column] = Shown.Hidden;
  return spelled;
}

function drawLine(area: Area, picture: MaskPicture, row: number, index: number, compared: Compared, y: number, tall: number): void {
  const { still, order, palette, form } = picture;
  const shown = spellOut(still, still.runs(row)[index] ?? [], compared);
  const [from, to] = inSight(area, still.head.planes.capacity);
  let start = from;
  while (start < to) {
    const kind = shown[columnAt(still, order, start)];
    let end = start + 1;
    while (end < to && shown[columnAt(still, order, end)] === kind) end++;
    if (kind !== Shown.Out) drawRun(area.ctx, palette, kind, start, end, y, tall, form, compared.position === null);
    start = end;
  }
}

function drawRun(
  ctx: CanvasRenderingContext2D, palette: Palette, kind: number, start: number, end: number,
  y: number, tall: number, form: Form, padding: boolean,
): void {
  const h = Math.max(2, tall - 2);
  const separate = form === "dense" && view.scale >= 5;
  const boxes = separate ? Array.from({ length: end - start }, (_, i) => [start + i, start + i + 1]) : [[start, end]];
  for (const [a, b] of boxes) {
    const [x, w] = [xOf(a) + (separate ? 1.5 : 0), (b - a) * view.scale - (separate ? 3 : 0)];
    if (kind === Shown.Masked) {
      ctx.fillStyle = palette.line;
      if (separate) ctx.fillRect(x + w / 2 - 1, y + h / 2 - 1, 2, 2);
      else ctx.fillRect(x, y + h / 2, w, 1);
    } else if (kind === Shown.Hidden) {
      ctx.strokeStyle = palette.wrong;
      ctx.lineWidth = 2;
      ctx.setLineDash([3, 2]);
      ctx.strokeRect(x + 1, y + 1, Math.max(1, w - 2), h - 2);
      ctx.setLineDash([]);
    } else {
      ctx.fillStyle = kind === Shown.Wrong ? palette.wrong : padding ? palette.line : palette.seen;
      ctx.fillRect(x, y, Math.max(1, w), h);
    }
  }
  if (form === "runs" && kind === Shown.Seen) nameRun(ctx, palette, start, end, y, h, padding);
}

/** The run as the engine is handed it. */
function nameRun(ctx: CanvasRenderingContext2D, palette: Palette, start: number, end: number, y: number, h: number, padding: boolean): void {
  const name = `${start} – ${end - 1}`;
  if ((end - start) * view.scale < name.length * 6.5 || h < 11) return;
  ctx.fillStyle = padding ? palette.text : palette.dark ? "#0b1118" : "#ffffff";
  ctx.font = FONT(Math.min(11, h - 3), 600);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(name, xOf((start + end) / 2), y + h / 2 + 0.5);
}
