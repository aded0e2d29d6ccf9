// Which columns are in sight. Cache and mask, and the two sides of a comparison, share one view, so a column always stands
// above its mask.

export interface View {
  /** Pixels a column. */
  scale: number;
  /** The column at the left edge, in the order shown. */
  left: number;
  /** Pixels scrolled down in the cells and in the mask. */
  top: { cells: number; mask: number };
  /** Whether everything is fitted into the width, until someone zooms. */
  fitted: boolean;
}

export const WIDEST = 56;
const NARROWEST = 0.02;
const TALLEST_ROW = 34;
const LOWEST_ROW = 4;

export const view: View = { scale: 1, left: 0, top: { cells: 0, mask: 0 }, fitted: true };

const listeners = new Set<() => void>();

export function onView(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function viewChanged(): void {
  for (const listener of [...listeners]) listener();
}

/** Fits so many columns into a width, unless someone has zoomed. */
export function fit(columns: number, width: number): void {
  if (!view.fitted) return;
  view.scale = Math.max(NARROWEST, Math.min(WIDEST, width / Math.max(1, columns)));
  view.left = 0;
}

export function refit(): void {
  Object.assign(view, { fitted: true, top: { cells: 0, mask: 0 } });
  viewChanged();
}

/** Zooms about a column, which stays where it is. */
export function zoom(factor: number, about: number): void {
  const scale = Math.max(NARROWEST, Math.min(WIDEST, view.scale * factor));
  view.left = Math.max(0, about - ((about - view.left) * view.scale) / scale);
  view.scale = scale;
  view.fitted = false;
  viewChanged();
}

export function pan(part: "cells" | "mask", dx: number, dy: number): void {
  if (dx !== 0) {
    view.left = Math.max(0, view.left + dx / view.scale);
    view.fitted = false;
  }
  view.top[part] = Math.max(0, view.top[part] + dy);
  viewChanged();
}

/** Brings a column into sight. */
export function reveal(column: number, width: number): void {
  const shown = width / view.scale;
  if (column < view.left) view.left = column;
  else if (column + 1 > view.left + shown) view.left = column + 1 - shown;
  else return;
  view.fitted = false;
}

/** The height of a row: what fits, and more where columns are wide enough to read. */
export function rowHeight(rows: number, height: number): number {
  const fitting = height / Math.max(1, rows);
  const readable = view.fitted ? 0 : Math.min(TALLEST_ROW, view.scale * 0.9);
  return Math.max(LOWEST_ROW, readable, Math.min(TALLEST_ROW, fitting));
}

/** The height that so many rows would like. */
export const wantedHeight = (rows: number): number => rows * TALLEST_ROW;
