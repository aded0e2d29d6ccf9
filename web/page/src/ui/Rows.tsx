// The selected row as a ring, and what the planner knows of every row.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { prepare } from "../draw/canvas.ts";
import { palette } from "../draw/palette.ts";
import { drawRing } from "../draw/ring.ts";
import * as describe from "../describe.ts";
import type { Still } from "../reel.ts";
import { set, stepOf, type State } from "../state.ts";

export function Rows({ state }: { state: State }) {
  const step = stepOf(state);
  const still = state.right.still(Math.min(step, state.right.length - 1));
  if (!still) return <p class="none">Nothing is planned yet.</p>;
  return (
    <>
      <Ring still={still} row={state.row} />
      <Group still={still} />
      <RowTable still={still} selected={state.row} />
      <Lent still={still} selected={state.row} />
    </>
  );
}

function Ring({ still, row }: { still: Still; row: number }) {
  const ref = useRef<HTMLCanvasElement>(null);
  const draw = () => {
    if (!ref.current) return;
    const colors = palette();
    drawRing(prepare(ref.current, colors.page), still, row, colors);
  };
  const latest = useRef(draw);
  latest.current = draw;
  useLayoutEffect(draw);
  useEffect(() => {
    const sizes = new ResizeObserver(() => latest.current());
    if (ref.current) sizes.observe(ref.current);
    return () => sizes.disconnect();
  }, [still.head.planes.window === null]);
  if (still.head.planes.window === null) return <p class="none">Full attention has no ring: columns are only added on the right.</p>;
  return (
    <figure class="ring" data-look="ring">
      <canvas ref={ref} role="img" aria-label={`Row ${row} as a ring; its cells are in the table below the cache.`} />
      <figcaption>Row {row}: columns clockwise, the triangle is the write head</figcaption>
    </figure>
  );
}

const PHASES = { decode: "decode", prefill: "a padded prefill", round: "a speculative round" };

function Group({ still }: { still: Still }) {
  const { planes, phase, state } = still.head;
  const wait = planes.window !== null && planes.head === null && planes.capacity > 0;
  const facts: [string, string | number][] = [["next append", PHASES[phase.kind]], ["columns", planes.capacity], ["in use", planes.active + planes.pinned]];
  if (planes.window !== null) facts.push(["write head", planes.head ?? "none yet"], ["window", planes.window], ["pinned", planes.pinned], ["turned by", planes.rotation]);
  if (state?.ring_index !== undefined) facts.push(["ring index", state.ring_index]);
  if (state?.total_offset !== undefined) facts.push(["total offset", state.total_offset]);
  if (phase.kind === "prefill" && phase.remaining !== null) facts.push(["columns to come", phase.remaining]);
  return (
    <>
      <dl class="facts">{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      {wait && <p class="hint">There is no write head: the next append adds or moves columns first.</p>}
    </>
  );
}

/** Laying out more rows than this costs more than drawing the cache. */
const MOST = 16;

/** So many rows around the selected one. */
function around<T>(rows: T[], selected: number): [T, number][] {
  const first = Math.max(0, Math.min(selected - MOST / 2, rows.length - MOST));
  return rows.slice(first, first + MOST).map((row, i) => [row, first + i]);
}

/** What a donor lends of every row. */
function Lent({ still, selected }: { still: Still; selected: number }) {
  const { donor } = still.head;
  if (!donor) return null;
  const { width, pinned, rows } = donor;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Lent">
      <table class="rows">
        <caption>Lent: a copy of {width} columns{pinned > 0 ? `, ${pinned} of them pinned` : ""}; outlined in the cache</caption>
        <thead>
          <tr>
            <th scope="col">row</th>
            <th scope="col" title="The positions that may be read">positions</th>
            <th scope="col" title="Where they lie in the copy">in the copy</th>
            <th scope="col" title="The physical columns they were copied from">from columns</th>
          </tr>
        </thead>
        <tbody>
          {around(rows, selected).map(([row, index]) => (
            <tr key={index} class={index === selected ? "selected" : ""} title={row.words}>
              <th scope="row">{index}</th>
              <td>{describe.ranges(row.positions)}</td>
              <td>{describe.ranges(row.valid)}</td>
              <td>{describe.ranges(row.columns)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function RowTable({ still, selected }: { still: Still; selected: number }) {
  const { rows, rope_offsets, phase, tokens, offset } = still.head;
  const ends = phase.kind === "prefill" ? phase.ends : null;
  const round = phase.kind === "round" ? phase : null;
  // While nothing pends the next token stands where the next column does.
  const pending = rows.some((row) => row.valid !== row.offset);
  const shown = around(rows, selected);
  const first = shown[0]?.[1] ?? 0;
  return (
    <div class="scroll" data-look="rows" tabIndex={0} role="region" aria-label="Rows">
      {tokens && <p class="copied">Copied out: tags {tokens.join(", ") || "none"}, next position {offset}.</p>}
      <table class="rows">
        <caption>{rows.length <= MOST ? "Rows" : `Rows ${first} to ${first + shown.length - 1} of ${rows.length}; ↓ and ↑ go on`}</caption>
        <thead>
          <tr>
            <th scope="col">row</th>
            <th scope="col" title="The position of its next column">offset</th>
            {pending && <th scope="col" title="The position of its next token">next token</th>}
            {rope_offsets && <th scope="col" title="The position by which its first new column was rotated">RoPE from</th>}
            <th scope="col" title="Columns before its oldest token">left pad</th>
            {ends && <th scope="col" title="The position its prefill ends at">prefill end</th>}
            {round && <th scope="col" title="Its offset when the round began, and its tokens since">round</th>}
            <th scope="col" title="The physical columns of its newest tokens">columns</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(([row, index]) => (
            <tr key={index} class={index === selected ? "selected" : ""}>
              <th scope="row">
                <button class="link" aria-pressed={index === selected} aria-label={`Row ${index}`} onClick={() => set({ row: index })}>{index}</button>
              </th>
              <td>{row.offset}</td>
              {pending && <td>{row.valid}</td>}
              {rope_offsets && <td>{rope_offsets[index]}</td>}
              <td>{row.left_pad}</td>
              {ends && <td>{ends[index]}</td>}
              {round && <td>{round.saved[index]} +{round.taken[index]}</td>}
              <td>{describe.ranges(row.held)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
