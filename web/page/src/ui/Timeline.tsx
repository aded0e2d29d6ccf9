// Steps: buttons, a slider, a strip of what each step copied, and the operation in words.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { FONT, prepare } from "../draw/canvas.ts";
import { palette } from "../draw/palette.ts";
import { bytes, count } from "../numbers.ts";
import { movedBytes } from "../planner.ts";
import { get, goto, lastStep, set, stepOf, type State } from "../state.ts";

const PLAY_MS = 800;

export function Timeline({ state }: { state: State }) {
  const step = stepOf(state);
  const last = lastStep(state);
  usePlay(state.playing);
  const still = state.right.still(Math.min(step, state.right.length - 1));
  return (
    <section class="timeline" aria-label="Steps" data-look="timeline">
      <div class="controls">
        <Button icon="first" label="First step" hint="Home" act={() => goto(0)} />
        <Button icon="back" label="Step back" hint="←" act={() => goto(step - 1)} />
        <Button icon={state.playing ? "pause" : "play"} label={state.playing ? "Pause" : "Play"} hint="space" act={togglePlay} />
        <Button icon="on" label="Step on" hint="→" act={() => goto(step + 1)} />
        <Button icon="last" label="Last step" hint="End" act={() => goto(last)} />
        <input
          type="range" class="scrub" min={state.right.first} max={last} value={step} aria-label="Step"
          aria-valuetext={still ? `${step + 1} of ${last + 1}: ${still.head.op}` : undefined}
          onInput={(event) => set({ step: event.currentTarget.valueAsNumber, playing: false })}
        />
        <output class="count">{step + 1} / {last + 1}</output>
        <Progress state={state} />
      </div>
      <Strip state={state} step={step} last={last} />
      <p class="key" aria-hidden="true">bars: stored columns copied by each step{state.upstream ? " · red: a law is broken" : ""}</p>
      {still && (
        <div class="words" aria-live="polite" tabIndex={0} role="region" aria-label="The step in words">
          <p><b class="op">{still.head.op}</b> {still.head.words}</p>
          <p class="did">
            {still.head.ops.length === 0 ? "No column moves. " : `${still.head.ops.map((action) => action.words).join("; ")}. `}
            <Moved state={state} moved={still.head.moved} rotating={still.head.planes.window !== null} />
          </p>
        </div>
      )}
    </section>
  );
}

/** Drawn rather than written: not every system has these signs. */
const ICONS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M10 3v10L4 8zM11 3h2v10h-2z",
  play: "M4 2v12l9-6z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  on: "M6 3v10l6-5zM3 3h2v10H3z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
};

function Button({ icon, label, hint, act }: { icon: keyof typeof ICONS; label: string; hint: string; act: () => void }) {
  return (
    <button onClick={act} aria-label={label} title={`${label} (${hint})`}>
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d={ICONS[icon]} fill="currentColor" /></svg>
    </button>
  );
}

function Progress({ state }: { state: State }) {
  const { right, upstream } = state;
  const done = right.done && (upstream?.done ?? true);
  if (done || state.live || right.total === 0) return null;
  return <progress max={right.total} value={right.length} aria-label="Planned steps" />;
}

function Moved({ state, moved, rotating }: { state: State; moved: number; rotating: boolean }) {
  if (moved === 0) return <span>Nothing stored is copied.</span>;
  const size = movedBytes(state.model, rotating, moved);
  return (
    <span>
      {count(moved, "stored column")} copied{size > 0 ? <>: {bytes(size)} over {rotating ? "the sliding" : "the full"} layers of {state.model}</> : null}.
    </span>
  );
}

export function togglePlay(): void {
  const state = get();
  const atEnd = stepOf(state) >= lastStep(state);
  set({ playing: !state.playing, ...(atEnd && !state.playing ? { step: 0 } : {}) });
}

function usePlay(playing: boolean): void {
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => {
      const state = get();
      const next = stepOf(state) + 1;
      set({ step: next, playing: next < lastStep(state) });
    }, PLAY_MS);
    return () => clearInterval(timer);
  }, [playing]);
}

/** A bar a step, as high as what it copied; a mark where a law is broken. The slider says the same to those who cannot see it. */
function Strip({ state, step, last }: { state: State; step: number; last: number }) {
  const ref = useRef<HTMLCanvasElement>(null);
  const draw = () => ref.current && drawStrip(ref.current, state, step, last);
  useLayoutEffect(() => void draw());
  const latest = useRef(draw);
  latest.current = draw;
  useEffect(() => {
    const sizes = new ResizeObserver(() => latest.current());
    sizes.observe(ref.current!);
    return () => sizes.disconnect();
  }, []);
  const jump = (event: MouseEvent) => {
    const { first } = state.right;
    const share = event.offsetX / (event.currentTarget as HTMLElement).clientWidth;
    set({ step: first + Math.floor(share * (last + 1 - first)), playing: false });
  };
  return <canvas ref={ref} class="strip" aria-hidden="true" onClick={jump} title="What each step copied" />;
}

function drawStrip(canvas: HTMLCanvasElement, state: State, step: number, last: number): void {
  const colors = palette();
  const { ctx, width, height } = prepare(canvas, colors.page);
  const first = state.right.first;
  const wide = width / (last + 1 - first);
  const most = state.right.summaries.reduce((most, s) => Math.max(most, s.moved), 1);
  for (let i = first; i <= last; i++) {
    const right = state.right.summaries[i];
    const upstream = state.upstream?.summaries[i];
    const x = (i - first) * wide;
    if (i === step) {
      ctx.fillStyle = colors.kinds.live.fill;
      ctx.fillRect(x, 0, wide, height);
    }
    if (right) {
      const bar = right.moved === 0 ? 2 : 4 + (right.moved / most) * (height - 22);
      ctx.fillStyle = colors.seen;
      ctx.fillRect(x + 1, height - bar, Math.max(1, wide - 2), bar);
      if (wide > right.op.length * 6.2 + 6) {
        ctx.fillStyle = i === step ? colors.text : colors.muted;
        ctx.font = FONT(11, i === step ? 700 : 400);
        ctx.textAlign = "center";
        ctx.textBaseline = "top";
        ctx.fillText(right.op, x + wide / 2, 2);
      }
    }
    if (right?.holds === false || upstream?.holds === false || (state.upstream?.problem?.step === i)) {
      ctx.fillStyle = colors.wrong;
      ctx.fillRect(x + 1, height - 3, Math.max(2, wide - 2), 3);
    }
  }
}
