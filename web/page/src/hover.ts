// What the pointer or the cursor is on. It changes with every move of the mouse, so it is apart from the state of the page.

export type Hover =
  | { part: "cells"; upstream: boolean; row: number; column: number }
  | { part: "mask"; upstream: boolean; row: number; index: number };

let current: Hover | null = null;
const listeners = new Set<() => void>();

export const hover = (): Hover | null => current;

export function onHover(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function setHover(next: Hover | null): void {
  if (JSON.stringify(next) === JSON.stringify(current)) return;
  current = next;
  for (const listener of [...listeners]) listener();
}
