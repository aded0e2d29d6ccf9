// The page: what happens on the left, what the cache looks like in the middle, what is known of it on the right.
import { useEffect, useMemo, useRef } from "preact/hooks";
import * as describe from "../describe.ts";
import { refit, zoom, view } from "../draw/viewport.ts";
import { KIND_WORDS, palette } from "../draw/palette.ts";
import { openFile } from "../files.ts";
import { hover, onHover } from "../hover.ts";
import { KEYS, listen } from "../keys.ts";
import { KINDS } from "../planner.ts";
import { compare, set, stepOf, type Pane, type Side, type State } from "../state.ts";
import { TOUR } from "../tour.ts";
import { About, Gallery } from "./Gallery.tsx";
import { Builder } from "./Builder.tsx";
import { Header } from "./Header.tsx";
import { Json } from "./Json.tsx";
import { Laws } from "./Laws.tsx";
import { Learn } from "./Learn.tsx";
import { Live } from "./Live.tsx";
import { Memory } from "./Memory.tsx";
import { Rows } from "./Rows.tsx";
import { Sheet } from "./Sheet.tsx";
import { Tabs } from "./Tabs.tsx";
import { Timeline } from "./Timeline.tsx";
import { Try } from "./Try.tsx";
import { useApp, useSettled, useSignal } from "./use.ts";

const SIDES: [Side, string][] = [["gallery", "Gallery"], ["build", "Build"], ["json", "JSON"], ["learn", "Learn"]];
const PANES: [Pane, string][] = [
  ["rows", "Rows"], ["laws", "Laws"], ["memory", "Memory"], ["live", "Live"], ["try", "Try"],
];

export function App() {
  const state = useApp();
  const help = useRef<HTMLDialogElement>(null);
  const showHelp = () => help.current?.showModal();
  useEffect(() => listen(showHelp), []);
  useEffect(dropFiles, []);
  const settled = useSettled(state);
  const left = useMemo(() => <Left state={settled} />, [settled]);
  const right = useMemo(() => <Right state={settled} />, [settled]);
  const look = state.side === "learn" ? TOUR[state.stop].look : "";
  return (
    <div class="page" data-look-at={look}>
      <Header state={state} help={showHelp} />
      {left}
      <main>
        <Timeline state={state} />
        <Toolbar state={state} />
        <div class={`sheets ${state.upstream ? "two" : ""}`}>
          <Sheet state={state} reel={state.right} upstream={false} />
          {state.upstream && <Sheet state={state} reel={state.upstream} upstream />}
        </div>
        <Pointed state={state} />
      </main>
      {right}
      <Help dialog={help} />
    </div>
  );
}

function Left({ state }: { state: State }) {
  return (
    <aside class="left" aria-label="Scenario" data-look="editor">
      {state.side !== "learn" && <About state={state} />}
      <Tabs label="Scenario" name="side" tabs={SIDES} selected={state.side} select={(side) => set({ side })}>
        <SidePanel state={state} />
      </Tabs>
    </aside>
  );
}

function Right({ state }: { state: State }) {
  return (
    <aside class="right" aria-label="Details">
      <Tabs label="Details" name="pane" tabs={PANES} selected={state.pane} select={(pane) => set({ pane })}>
        <PanePanel state={state} />
      </Tabs>
    </aside>
  );
}

function SidePanel({ state }: { state: State }) {
  if (state.side === "gallery") return <Gallery state={state} />;
  if (state.side === "learn") return <Learn state={state} />;
  if (state.live) return <p class="none">A log is shown. Save it as a scenario and open that to edit it.</p>;
  return state.side === "build" ? <Builder state={state} /> : <Json state={state} />;
}

function PanePanel({ state }: { state: State }) {
  switch (state.pane) {
    case "rows": return <Rows state={state} />;
    case "laws": return <Laws state={state} />;
    case "memory": return <Memory state={state} />;
    case "live": return <Live state={state} />;
    case "try": return <Try />;
  }
}

function Toolbar({ state }: { state: State }) {
  const middle = () => view.left + 10;
  return (
    <div class="toolbar" role="group" aria-label="View">
      <Choice label="Order" hint="T" options={[["physical", "Physical"], ["temporal", "Temporal"]]} chosen={state.order} choose={(order) => set({ order })} />
      <Choice label="Mask" hint="M" options={[["dense", "Dense"], ["runs", "Runs"]]} chosen={state.form} choose={(form) => set({ form })} />
      <button aria-pressed={state.upstream !== null} disabled={state.live !== null} onClick={() => compare(state.upstream === null)} title="Beside it, what mlx-lm 0.32.2 does (C)">
        Compare with mlx-lm
      </button>
      <span class="zoom">
        <button onClick={() => zoom(1 / 1.5, middle())} aria-label="Zoom out" title="Zoom out (−)">−</button>
        <button onClick={refit} title="Fit everything (0)">Fit</button>
        <button onClick={() => zoom(1.5, middle())} aria-label="Zoom in" title="Zoom in (+)">+</button>
      </span>
      <Legend />
    </div>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  hint: string;
  options: [T, string][];
  chosen: T;
  choose: (option: T) => void;
}

/** Two buttons of which one is pressed: what can be chosen is always in sight. */
function Choice<T extends string>({ label, hint, options, chosen, choose }: ChoiceProps<T>) {
  return (
    <span class="choice" role="group" aria-label={label}>
      <span aria-hidden="true">{label}</span>
      {options.map(([option, name]) => (
        <button key={option} aria-pressed={option === chosen} onClick={() => choose(option)} title={`${label}: ${name.toLowerCase()} (${hint})`}>{name}</button>
      ))}
    </span>
  );
}

/** Tokens first: that is what most cells are. */
const LEGEND = [...KINDS.slice(1), KINDS[0]];

function Legend() {
  const dark = palette().dark;
  return (
    <ul class="legend" aria-label="Legend" data-dark={dark}>
      {LEGEND.map((kind) => <li key={kind}><i class={`swatch ${kind}`} aria-hidden="true" />{KIND_WORDS[kind]}</li>)}
      <li><i class="swatch live goes" aria-hidden="true" />dropped next</li>
      <li><i class="swatch broken" aria-hidden="true" />wrong</li>
    </ul>
  );
}

/** What the pointer or the cursor is on, in words. */
function Pointed({ state }: { state: State }) {
  useSignal(onHover);
  const on = hover();
  const reel = on?.upstream ? state.upstream : state.right;
  const still = reel?.still(Math.min(stepOf(state), reel.length - 1));
  const exists = still && on && on.row < still.head.rows.length && (on.part === "mask" || on.column < still.head.planes.capacity);
  const words = exists ? (on.part === "mask" ? describe.queryWords(still, on.row, on.index) : describe.cellWords(still, on.row, on.column)) : "";
  return <p class="pointed" aria-live="polite">{words || "Point at a cell or a query. Ctrl and wheel zoom, dragging pans."}</p>;
}

function Help({ dialog }: { dialog: { current: HTMLDialogElement | null } }) {
  return (
    <dialog ref={dialog} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">{KEYS.map(({ shown, does }) => <div key={shown}><dt><kbd>{shown}</kbd></dt><dd>{does}</dd></div>)}</dl>
      <p class="hint">In the cache and the mask the arrow keys move a cursor; [ and ] still step.</p>
      <form method="dialog"><button class="primary">Close</button></form>
    </dialog>
  );
}

function dropFiles(): () => void {
  const over = (event: DragEvent) => event.preventDefault();
  const drop = (event: DragEvent) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) void openFile(file);
  };
  addEventListener("dragover", over);
  addEventListener("drop", drop);
  return () => {
    removeEventListener("dragover", over);
    removeEventListener("drop", drop);
  };
}
