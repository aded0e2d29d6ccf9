// What every drawing shares.
import type { Still } from "../reel.ts";
import type { Order } from "../state.ts";
import { view } from "./viewport.ts";

/** The strip on the left for the names of rows. */
export const GUTTER = 58;
/** The strip above the cells for the numbers of columns. */
export const AXIS = 30;

export interface Area {
  ctx: CanvasRenderingContext2D;
  width: number;
  height: number;
}

/** Sizes a canvas to its box in device pixels and clears it. */
export function prepare(canvas: HTMLCanvasElement, background: string): Area {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const ctx = canvas.getContext("2d", { alpha: false })!;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.fillStyle = background;
  ctx.fillRect(0, 0, width, height);
  return { ctx, width, height };
}

export const FONT = (size: number, weight = 400): string => `${weight} ${size}px system-ui, "Segoe UI", sans-serif`;

/** The left edge of a place in the order shown. */
export const xOf = (place: number): number => GUTTER + (place - view.left) * view.scale;
/** The place under a pixel. */
export const placeAt = (x: number): number => Math.floor(view.left + (x - GUTTER) / view.scale);

/** The places in sight, of so many. */
export function inSight(area: Area, places: number): [number, number] {
  const last = Math.ceil(view.left + (area.width - GUTTER) / view.scale);
  return [Math.max(0, Math.floor(view.left)), Math.max(0, Math.min(places, last))];
}

/** The physical column at a place, and the place of a physical column. */
export const columnAt = (still: Still, order: Order, place: number): number =>
  order === "temporal" ? still.order[place] : place;
export const placeOf = (still: Still, order: Order, column: number): number =>
  order === "temporal" ? still.place[column] : column;
