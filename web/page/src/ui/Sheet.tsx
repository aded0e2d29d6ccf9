// One side of the picture: the cache above, the mask below, the same columns in both.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { AXIS, GUTTER, columnAt, placeAt, placeOf, prepare } from "../draw/canvas.ts";
import { drawCells, rowAt, type Mark } from "../draw/cells.ts";
import { drawMask, lines, queryAt } from "../draw/mask.ts";
import { palette } from "../draw/palette.ts";
import { fit, onView, pan, reveal, viewChanged, wantedHeight, zoom } from "../draw/viewport.ts";
import { hover, onHover, setHover, type Hover } from "../hover.ts";
import type { Reel, Still } from "../reel.ts";
import { set, stepOf, type State } from "../state.ts";
import { CellsTable, MaskTable } from "./Tables.tsx";

interface Props {
  state: State;
  reel: Reel;
  upstream: boolean;
}

export function Sheet({ state, reel, upstream }: Props) {
  const step = stepOf(state);
  const still = reel.still(Math.min(step, reel.length - 1));
  const stopped = reel.problem && step >= reel.length - 1 ? reel.problem : null;
  const title = upstream ? "What mlx-lm 0.32.2 does" : "What is right";
  return (
    <section class={`sheet ${upstream ? "upstream" : ""}`} aria-label={title} data-side={upstream ? "upstream" : "right"}>
      {state.upstream && <h2 class="side">{title}</h2>}
      {stopped && (
        <p class="refused" role="alert">
          Step {(stopped.step ?? 0) + 1} is refused: {stopped.message}
        </p>
      )}
      {still ? <Pictures state={state} reel={reel} still={still} upstream={upstream} /> : <p class="none">Nothing is planned yet.</p>}
    </section>
  );
}

function Pictures({ state, reel, still, upstream }: Props & { still: Still }) {
  const cells = useRef<HTMLCanvasElement>(null);
  const mask = useRef<HTMLCanvasElement>(null);
  const draw = () => {
    if (cells.current) paintCells(cells.current, state, still, upstream);
    if (mask.current) paintMask(mask.current, state, still, upstream);
  };
  const latest = useRef(draw);
  latest.current = draw;
  useLayoutEffect(draw);
  useEffect(() => redrawOn(() => latest.current(), [cells.current, mask.current]), []);
  usePointer(cells, "cells", state, still, upstream);
  usePointer(mask, "mask", state, still, upstream);

  const most = reel.summaries.reduce((most, s) => Math.max(most, s.rows), 1);
  const height = AXIS + Math.min(300, Math.max(68, wantedHeight(most)) + 8);
  return (
    <>
      <h3 class="caption">Cache <span>rows by columns; position large, tag small</span></h3>
      <canvas
        ref={cells} class="cells" tabIndex={0} role="img" style={{ height: `${height}px` }}
        aria-label={`The cache: ${still.head.rows.length} rows, ${still.head.planes.capacity} columns. Arrow keys move a cursor; the table below says the same.`}
      />
      <CellsTable still={still} row={state.row} order={state.order} />
      <h3 class="caption">
        Mask <span>{still.head.mask ? `one line a query, named by row and position; ${still.head.mask.words}` : "none: this step appends nothing"}</span>
      </h3>
      <canvas
        ref={mask} class="mask" tabIndex={lines(still) === 0 ? -1 : 0} role="img"
        aria-label={still.head.mask ? `The mask, ${still.head.mask.words}. Arrow keys move a cursor.` : "No mask: this step is no append."}
      />
      <MaskTable still={still} row={state.row} />
    </>
  );
}

function paintCells(canvas: HTMLCanvasElement, state: State, still: Still, upstream: boolean): void {
  const colors = palette();
  fit(columnsShown(state), canvas.clientWidth - GUTTER - 8);
  const area = prepare(canvas, colors.page);
  drawCells(area, { still, order: state.order, palette: colors, selected: state.row, marks: marks(still, upstream) });
}

function paintMask(canvas: HTMLCanvasElement, state: State, still: Still, upstream: boolean): void {
  const colors = palette();
  const on = hover();
  drawMask(prepare(canvas, colors.page), {
    still, order: state.order, form: state.form, palette: colors, selected: state.row,
    query: on?.part === "mask" && on.upstream === upstream ? on : null,
    cell: on?.part === "cells" ? on : null,
  });
}

/** The most columns worth showing over all steps, so that nothing jumps while one steps through them. */
function columnsShown({ right, upstream }: State): number {
  const most = (reel: Reel | null) => reel?.summaries.reduce((most, s) => Math.max(most, s.columns), 1) ?? 1;
  return Math.max(most(right), most(upstream));
}

/** What is outlined: every fault of the step, and what the pointer is linked with. */
function marks(still: Still, upstream: boolean): Mark[] {
  const list: Mark[] = [];
  const on = hover();
  if (on?.part === "mask" && on.upstream === upstream) {
    for (const [from, to] of still.runs(on.row)[on.index] ?? []) {
      for (let column = from; column < to && list.length < MOST_LINKED; column++) list.push({ row: on.row, column, kind: "linked" });
    }
  }
  for (const { row, column } of still.lent()) {
    if (list.length < MOST_LINKED) list.push({ row, column, kind: "linked" });
  }
  if (still.head.broken_queries > 0) {
    still.head.rows.forEach((_, row) => {
      for (const query of still.queries(row)) {
        for (const column of query.hidden) list.push({ row, column, kind: "hidden" });
        for (const column of query.wrong) list.push({ row, column, kind: "wrong" });
      }
    });
  }
  for (const { row, column } of still.emptyHeld()) list.push({ row, column, kind: "wrong" });
  if (on?.part === "cells" && on.upstream === upstream) list.push({ row: on.row, column: on.column, kind: "cursor" });
  return list;
}

/** More outlines than this are a grey area and cost time. */
const MOST_LINKED = 512;

/** Draws again when the view, the pointer, the size or the theme changes; once a frame at most. */
function redrawOn(draw: () => void, canvases: (HTMLCanvasElement | null)[]): () => void {
  let frame = 0;
  const soon = () => {
    if (frame) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const sizes = new ResizeObserver(soon);
  for (const canvas of canvases) if (canvas) sizes.observe(canvas);
  dark.addEventListener("change", soon);
  const ends = [onView(soon), onHover(soon), () => dark.removeEventListener("change", soon), () => sizes.disconnect()];
  return () => {
    cancelAnimationFrame(frame);
    for (const end of ends) end();
  };
}

type Part = "cells" | "mask";

/** Mouse, wheel and keys of one canvas. */
function usePointer(ref: { current: HTMLCanvasElement | null }, part: Part, state: State, still: Still, upstream: boolean): void {
  const latest = useRef({ state, still });
  latest.current = { state, still };
  useEffect(() => {
    const canvas = ref.current;
    if (!canvas) return;
    const at = (event: MouseEvent): Hover | null =>
      locate(part, latest.current.still, latest.current.state, upstream, event.offsetX, event.offsetY, canvas.clientHeight);
    let dragged: { x: number; y: number; moved: boolean } | null = null;
    const on: { [name: string]: (event: never) => void } = {
      mousemove: (event: MouseEvent) => {
        if (!dragged) return setHover(at(event));
        const [dx, dy] = [dragged.x - event.offsetX, dragged.y - event.offsetY];
        if (!dragged.moved && Math.hypot(dx, dy) < 4) return;
        dragged = { x: event.offsetX, y: event.offsetY, moved: true };
        pan(part, dx, dy);
      },
      mouseleave: () => {
        dragged = null;
        setHover(null);
      },
      mousedown: (event: MouseEvent) => (dragged = { x: event.offsetX, y: event.offsetY, moved: false }),
      mouseup: (event: MouseEvent) => {
        const place = dragged?.moved ? null : at(event);
        dragged = null;
        if (place) set({ row: place.row });
      },
      wheel: (event: WheelEvent) => {
        event.preventDefault();
        if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 240), placeAt(event.offsetX));
        else pan(part, event.shiftKey ? event.deltaY : event.deltaX, event.shiftKey ? 0 : event.deltaY);
      },
      keydown: (event: KeyboardEvent) => {
        if (moveCursor(part, event.key, latest.current.still, latest.current.state, upstream, canvas)) {
          event.preventDefault();
          event.stopPropagation();
        }
      },
    };
    for (const [name, listener] of Object.entries(on)) canvas.addEventListener(name, listener as EventListener, { passive: false });
    return () => {
      for (const [name, listener] of Object.entries(on)) canvas.removeEventListener(name, listener as EventListener);
    };
  }, []);
}

function locate(part: Part, still: Still, state: State, upstream: boolean, x: number, y: number, height: number): Hover | null {
  if (part === "mask") {
    const query = queryAt(still, y, height);
    return query && { part, upstream, ...query };
  }
  const row = rowAt(y, still.head.rows.length, height);
  const place = placeAt(x);
  if (row === null || x < GUTTER || place < 0 || place >= still.head.planes.capacity) return null;
  return { part, upstream, row, column: columnAt(still, state.order, place) };
}

/** Moves the cursor of a canvas by an arrow key; false for any other key. */
function moveCursor(part: Part, key: string, still: Still, state: State, upstream: boolean, canvas: HTMLCanvasElement): boolean {
  const [dx, dy] = ARROWS[key] ?? [0, 0];
  if (dx === 0 && dy === 0) return false;
  const on = hover();
  const clamp = (n: number, count: number) => Math.max(0, Math.min(count - 1, n));
  if (part === "mask") {
    const queries = still.head.mask?.queries ?? 0;
    if (queries === 0) return true;
    const line = on?.part === "mask" ? clamp(on.row * queries + on.index + dy, lines(still)) : state.row * queries;
    setHover({ part, upstream, row: Math.floor(line / queries), index: line % queries });
    return true;
  }
  const { capacity } = still.head.planes;
  if (capacity === 0) return true;
  const from = on?.part === "cells" ? on : { row: state.row, column: columnAt(still, state.order, 0) };
  const started = on?.part === "cells";
  const place = clamp(placeOf(still, state.order, from.column) + (started ? dx : 0), capacity);
  const row = clamp(from.row + (started ? dy : 0), still.head.rows.length);
  reveal(place, canvas.clientWidth - GUTTER);
  setHover({ part, upstream, row, column: columnAt(still, state.order, place) });
  viewChanged();
  return true;
}

const ARROWS: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
