// The picture on screen as a PNG: the canvases below a title, with the legend.
import { FONT } from "./draw/canvas.ts";
import { KIND_WORDS, palette, patternOf } from "./draw/palette.ts";
import { download, fileName } from "./files.ts";
import { KINDS } from "./planner.ts";
import { stepOf, type State } from "./state.ts";

const MARGIN = 16;
const TITLE = 44;
const LEGEND = 28;
const SIDE = 20;

export function exportPng(state: State): void {
  const sheets = [...document.querySelectorAll<HTMLElement>(".sheet")];
  const pictures = sheets.map((sheet) => [...sheet.querySelectorAll<HTMLCanvasElement>("canvas")]);
  const heightOf = (list: HTMLCanvasElement[]) => list.reduce((sum, c) => sum + c.clientHeight, 0);
  const width = pictures.reduce((sum, [first]) => sum + (first?.clientWidth ?? 0) + MARGIN, MARGIN);
  const height = TITLE + SIDE + Math.max(0, ...pictures.map(heightOf)) + LEGEND + MARGIN;
  const canvas = document.createElement("canvas");
  const ratio = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: width * ratio, height: height * ratio });
  const ctx = canvas.getContext("2d")!;
  ctx.scale(ratio, ratio);
  const colors = palette();
  ctx.fillStyle = colors.page;
  ctx.fillRect(0, 0, width, height);
  const write = (text: string, x: number, y: number, font: string) => {
    ctx.fillStyle = colors.text;
    ctx.font = font;
    ctx.textBaseline = "middle";
    ctx.fillText(text, x, y);
  };
  const head = state.right.still(stepOf(state))?.head;
  write(state.name, MARGIN, 16, FONT(15, 700));
  if (head) write(`step ${head.step + 1}: ${head.op}, ${head.words}`, MARGIN, 34, FONT(12));
  let x = MARGIN;
  pictures.forEach((list, i) => {
    if (state.upstream) write(sheets[i].getAttribute("aria-label") ?? "", x, TITLE + 8, FONT(12, 600));
    let y = TITLE + SIDE;
    for (const c of list) {
      ctx.drawImage(c, x, y, c.clientWidth, c.clientHeight);
      y += c.clientHeight;
    }
    x += (list[0]?.clientWidth ?? 0) + MARGIN;
  });
  legend(ctx, height - MARGIN - 6, write);
  canvas.toBlob((blob) => blob && download(blob, `${fileName(state.name)}.png`));
}

function legend(ctx: CanvasRenderingContext2D, y: number, write: (text: string, x: number, y: number, font: string) => void): void {
  const colors = palette();
  let x = MARGIN;
  for (const kind of KINDS) {
    for (const style of [colors.kinds[kind].fill, patternOf(kind, colors)]) {
      if (!style) continue;
      ctx.fillStyle = style;
      ctx.fillRect(x, y - 7, 14, 14);
    }
    ctx.strokeStyle = colors.kinds[kind].line;
    ctx.strokeRect(x + 0.5, y - 6.5, 13, 13);
    write(KIND_WORDS[kind], x + 19, y, FONT(11));
    x += 30 + ctx.measureText(KIND_WORDS[kind]).width;
  }
}
