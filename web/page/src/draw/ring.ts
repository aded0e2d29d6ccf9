// One row as a ring: columns clockwise from the top, the write head outside, pinned columns beside it.
import { EVICTED_NEXT, NO_POSITION } from "../planner.ts";
import type { Still } from "../reel.ts";
import { FONT, type Area } from "./canvas.ts";
import { kindOf, patternOf, type Palette } from "./palette.ts";

const TURN = 2 * Math.PI;
/** Beyond so many columns a segment is too thin for a number. */
const NUMBERED = 40;

export function drawRing(area: Area, still: Still, row: number, palette: Palette): void {
  const { ctx, width, height } = area;
  const { capacity, pinned, head, rotation, window } = still.head.planes;
  const columns = capacity - pinned;
  if (window === null || columns <= 0 || row >= still.head.rows.length) return;
  const [cx, cy] = [width / 2, height / 2 + 4];
  const outer = Math.min(width, height) / 2 - 24;
  const inner = outer * 0.66;
  const angle = (column: number) => ((column - pinned) / columns) * TURN - TURN / 4;
  const base = row * capacity;

  let start = pinned;
  while (start < capacity) {
    const code = still.kinds[base + start];
    let end = start + 1;
    while (columns > NUMBERED && end < capacity && still.kinds[base + end] === code) end++;
    segment(ctx, palette, code, cx, cy, inner, outer, angle(start), angle(end));
    start = end;
  }
  if (columns <= NUMBERED) {
    for (let column = pinned; column < capacity; column++) {
      const middle = angle(column + 0.5);
      const at = (radius: number): [number, number] => [cx + radius * Math.cos(middle), cy + radius * Math.sin(middle)];
      const position = still.positions(row)[column];
      label(ctx, String(column), ...at(outer + 9), palette.muted, 10);
      if (position === NO_POSITION) continue;
      label(ctx, String(position), ...at((inner + outer) / 2), palette.kinds[kindOf(still.kinds[base + column])].text, 13, 600);
    }
  }
  if (rotation > 0) boundary(ctx, palette, cx, cy, inner, outer, angle(pinned + rotation));
  if (head !== null) pointer(ctx, palette, cx, cy, inner, angle(head + 0.5));
  const [above, below] = rotation > 0 ? ["turned by", String(rotation)] : ["not", "turned"];
  label(ctx, above, cx, cy - 13, palette.text, 11.5, 600);
  label(ctx, below, cx, cy + 1, palette.text, 11.5, 600);
  label(ctx, `of ${columns}`, cx, cy + 16, palette.muted, 10.5);
}

function segment(
  ctx: CanvasRenderingContext2D, palette: Palette, code: number, cx: number, cy: number, inner: number, outer: number,
  from: number, to: number,
): void {
  const kind = kindOf(code);
  ctx.beginPath();
  ctx.arc(cx, cy, outer, from, to);
  ctx.arc(cx, cy, inner, to, from, true);
  ctx.closePath();
  ctx.fillStyle = palette.kinds[kind].fill;
  ctx.fill();
  const pattern = patternOf(kind, palette);
  if (pattern) {
    ctx.fillStyle = pattern;
    ctx.fill();
  }
  ctx.strokeStyle = palette.kinds[kind].line;
  ctx.lineWidth = 1;
  ctx.stroke();
  if (code & EVICTED_NEXT) {
    ctx.beginPath();
    ctx.arc(cx, cy, outer - 2, from + 0.03, to - 0.03);
    ctx.strokeStyle = palette.text;
    ctx.lineWidth = 4;
    ctx.stroke();
  }
}

/** Where the newest column meets the oldest. */
function boundary(ctx: CanvasRenderingContext2D, palette: Palette, cx: number, cy: number, inner: number, outer: number, at: number): void {
  ctx.strokeStyle = palette.accent;
  ctx.lineWidth = 2.5;
  ctx.setLineDash([5, 4]);
  ctx.beginPath();
  ctx.moveTo(cx + (inner - 4) * Math.cos(at), cy + (inner - 4) * Math.sin(at));
  ctx.lineTo(cx + (outer + 4) * Math.cos(at), cy + (outer + 4) * Math.sin(at));
  ctx.stroke();
  ctx.setLineDash([]);
}

function pointer(ctx: CanvasRenderingContext2D, palette: Palette, cx: number, cy: number, inner: number, at: number): void {
  const tip = inner - 3;
  ctx.fillStyle = palette.accent;
  ctx.beginPath();
  ctx.moveTo(cx + tip * Math.cos(at), cy + tip * Math.sin(at));
  for (const side of [-0.1, 0.1]) ctx.lineTo(cx + (tip - 11) * Math.cos(at + side), cy + (tip - 11) * Math.sin(at + side));
  ctx.fill();
}

function label(ctx: CanvasRenderingContext2D, text: string, x: number, y: number, color: string, size: number, weight = 400): void {
  ctx.fillStyle = color;
  ctx.font = FONT(size, weight);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(text, x, y);
}
