// The cache: rows by columns.
import { EVICTED_NEXT, NO_POSITION } from "../planner.ts";
import type { Still } from "../reel.ts";
import type { Order } from "../state.ts";
import { AXIS, FONT, GUTTER, columnAt, inSight, placeOf, xOf, type Area } from "./canvas.ts";
import { kindOf, patternOf, type Palette } from "./palette.ts";
import { rowHeight, view } from "./viewport.ts";

/** A cell to outline, in physical columns. */
export interface Mark {
  row: number;
  column: number;
  kind: "hidden" | "wrong" | "linked" | "cursor";
}

export interface CellsPicture {
  still: Still;
  order: Order;
  palette: Palette;
  selected: number;
  marks: Mark[];
}

export function drawCells(area: Area, picture: CellsPicture): void {
  const { ctx, width, height } = area;
  const { still } = picture;
  const rows = still.head.rows.length;
  const tall = rowHeight(rows, height - AXIS - 2);
  const most = Math.max(0, rows * tall - (height - AXIS));
  view.top.cells = Math.min(view.top.cells, most);
  const first = Math.floor(view.top.cells / tall);
  const last = Math.min(rows, Math.ceil((view.top.cells + height - AXIS) / tall));
  const yOf = (row: number) => AXIS + row * tall - view.top.cells;

  ctx.save();
  ctx.beginPath();
  ctx.rect(GUTTER, AXIS, width - GUTTER, height - AXIS);
  ctx.clip();
  for (let row = first; row < last; row++) drawRow(area, picture, row, yOf(row), tall);
  drawLines(area, picture, yOf(last));
  for (const mark of picture.marks) drawMark(ctx, picture, mark, yOf(mark.row), tall);
  ctx.restore();
  drawNames(area, picture, first, last, yOf, tall);
  drawAxis(area, picture);
}

/** Cells of one kind side by side are one rectangle: this is what keeps thousands of columns smooth. */
function drawRow(area: Area, picture: CellsPicture, row: number, y: number, tall: number): void {
  const { still, order } = picture;
  const capacity = still.head.planes.capacity;
  const base = row * capacity;
  const kinds = still.kinds;
  const [from, to] = inSight(area, capacity);
  let start = from;
  while (start < to) {
    const code = kinds[base + columnAt(still, order, start)];
    let end = start + 1;
    while (end < to && kinds[base + columnAt(still, order, end)] === code) end++;
    drawRun(area.ctx, picture.palette, code, start, end, y, tall);
    start = end;
  }
  if (view.scale >= 18 && tall >= 13) drawNumbers(area.ctx, picture, row, from, to, y, tall);
}

function drawRun(ctx: CanvasRenderingContext2D, palette: Palette, code: number, start: number, end: number, y: number, tall: number): void {
  const kind = kindOf(code);
  const ink = palette.kinds[kind];
  const [x, w, h] = [xOf(start), (end - start) * view.scale, Math.max(1, tall - 1)];
  ctx.fillStyle = ink.fill;
  ctx.fillRect(x, y, w, h);
  const pattern = w >= 6 && h >= 3 ? patternOf(kind, palette) : null;
  if (pattern) {
    ctx.fillStyle = pattern;
    ctx.fillRect(x, y, w, h);
  }
  if (view.scale >= 6) {
    ctx.strokeStyle = kind === "spare" ? palette.line : ink.line;
    ctx.lineWidth = 1;
    for (let place = start; place < end; place++) ctx.strokeRect(xOf(place) + 1, y + 0.5, view.scale - 2, h - 1);
  }
  if (code & EVICTED_NEXT) drawGoing(ctx, palette, start, end, y, h);
}

/** What goes next: a corner cut off, or a bar below where cells are too small for that. */
function drawGoing(ctx: CanvasRenderingContext2D, palette: Palette, start: number, end: number, y: number, h: number): void {
  ctx.fillStyle = palette.text;
  if (view.scale < 12 || h < 10) {
    ctx.fillRect(xOf(start), y + h - Math.max(1, h / 5), (end - start) * view.scale, Math.max(1, h / 5));
    return;
  }
  const size = Math.min(9, view.scale / 2);
  for (let place = start; place < end; place++) {
    const right = xOf(place + 1) - 1;
    ctx.beginPath();
    ctx.moveTo(right - size, y);
    ctx.lineTo(right, y);
    ctx.lineTo(right, y + size);
    ctx.fill();
  }
}

function drawNumbers(ctx: CanvasRenderingContext2D, picture: CellsPicture, row: number, from: number, to: number, y: number, tall: number): void {
  const { still, order, palette } = picture;
  const base = row * still.head.planes.capacity;
  const [positions, tags] = [still.positions(row), still.tags(row)];
  const both = view.scale >= 38 && tall >= 30;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (let place = from; place < to; place++) {
    const column = columnAt(still, order, place);
    const [position, tag] = [positions[column], tags[column]];
    const x = xOf(place + 0.5);
    if (position !== NO_POSITION) {
      ctx.fillStyle = palette.kinds[kindOf(still.kinds[base + column])].text;
      ctx.font = FONT(Math.min(14, tall * 0.55, view.scale * 0.42), 600);
      ctx.fillText(String(position), x, y + (both ? tall * 0.36 : tall / 2));
    }
    if (both && tag !== 0) {
      ctx.fillStyle = palette.kinds[kindOf(still.kinds[base + column])].text;
      ctx.font = FONT(9.5);
      ctx.fillText(String(tag), x, y + tall * (position === NO_POSITION ? 0.5 : 0.74), view.scale - 6);
    }
  }
}

/** Where pinned columns end, and where the oldest column of a turned ring lies. */
function drawLines(area: Area, picture: CellsPicture, bottom: number): void {
  const { ctx } = area;
  const { order, palette } = picture;
  const { pinned, rotation, window } = picture.still.head.planes;
  const line = (place: number, dash: number[], color: string) => {
    ctx.strokeStyle = color;
    ctx.lineWidth = 2;
    ctx.setLineDash(dash);
    ctx.beginPath();
    ctx.moveTo(xOf(place), AXIS);
    ctx.lineTo(xOf(place), bottom);
    ctx.stroke();
    ctx.setLineDash([]);
  };
  if (window !== null && pinned > 0) line(pinned, [], palette.kinds.sink.line);
  if (order === "physical" && rotation > 0) line(pinned + rotation, [5, 4], palette.accent);
}

function drawMark(ctx: CanvasRenderingContext2D, picture: CellsPicture, mark: Mark, y: number, tall: number): void {
  const { palette, still, order } = picture;
  const x = xOf(placeOf(still, order, mark.column));
  const strong = mark.kind === "hidden" || mark.kind === "wrong";
  ctx.strokeStyle = strong ? palette.wrong : mark.kind === "cursor" ? palette.text : palette.link;
  ctx.lineWidth = strong ? 3 : 2;
  ctx.setLineDash(mark.kind === "hidden" ? [4, 3] : []);
  ctx.strokeRect(x + 1.5, y + 1, Math.max(1, view.scale - 3), Math.max(1, tall - 3));
  ctx.setLineDash([]);
}

function drawNames(area: Area, picture: CellsPicture, first: number, last: number, yOf: (row: number) => number, tall: number): void {
  const { ctx, height } = area;
  const { palette, selected } = picture;
  const each = Math.max(1, Math.ceil(13 / tall));
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, GUTTER, height - AXIS);
  ctx.clip();
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (let row = first; row < last; row++) {
    const mine = row === selected;
    if (mine) {
      ctx.fillStyle = palette.accent;
      ctx.fillRect(0, yOf(row), 3, tall - 1);
    }
    if (!mine && (row % each !== 0 || Math.abs(row - selected) < each)) continue;
    ctx.fillStyle = mine ? palette.text : palette.muted;
    ctx.font = FONT(12, mine ? 700 : 400);
    ctx.fillText(`row ${row}`, GUTTER - 8, Math.max(AXIS + 6, yOf(row) + tall / 2));
  }
  ctx.restore();
}

function drawAxis(area: Area, picture: CellsPicture): void {
  const { ctx, width } = area;
  const { still, order, palette } = picture;
  const { capacity, head, window } = still.head.planes;
  ctx.fillStyle = palette.muted;
  ctx.font = FONT(11);
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillText(order === "physical" ? "column" : "age", GUTTER - 8, AXIS - 8);
  ctx.textAlign = "center";
  const [from, to] = inSight(area, capacity);
  const each = spacing(34 / view.scale);
  for (let place = Math.ceil(from / each) * each; place < to; place += each) {
    ctx.fillText(String(place), xOf(place + 0.5), AXIS - 8);
  }
  if (head === null || head >= capacity) return;
  const x = xOf(placeOf(still, order, head) + 0.5);
  if (x < GUTTER || x > width) return;
  ctx.fillStyle = palette.accent;
  ctx.beginPath();
  ctx.moveTo(x - 6, 3);
  ctx.lineTo(x + 6, 3);
  ctx.lineTo(x, 12);
  ctx.fill();
  ctx.font = FONT(11, 600);
  ctx.textAlign = x + 80 > width ? "right" : "left";
  ctx.fillText(window === null ? "next" : "write head", x + (x + 80 > width ? -10 : 10), 8);
}

/** 1, 2, 5, 10, 20, 50, …: the smallest of these that is not below. */
function spacing(least: number): number {
  for (let power = 1; ; power *= 10) for (const n of [1, 2, 5]) if (n * power >= least) return n * power;
}

/** What lies under a pixel; null outside the cells. */
export function rowAt(y: number, rows: number, height: number): number | null {
  const row = Math.floor((y - AXIS + view.top.cells) / rowHeight(rows, height - AXIS - 2));
  return y >= AXIS && row >= 0 && row < rows ? row : null;
}
