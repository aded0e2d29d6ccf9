// The same as the pictures, as tables: for screen readers, and for whoever wants to copy numbers.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { columnAt } from "../draw/canvas.ts";
import { view } from "../draw/viewport.ts";
import * as describe from "../describe.ts";
import type { Still } from "../reel.ts";
import type { Order } from "../state.ts";

/** More lines than this help nobody at once. */
const MOST = 128;

/** A table that is only built while it is open. */
function Folded({ summary, children }: { summary: string; children: () => ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="folded" onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>{summary}</summary>
      {open && <div class="scroll" tabIndex={0} role="region" aria-label={summary}>{children()}</div>}
    </details>
  );
}

export function CellsTable({ still, row, order }: { still: Still; row: number; order: Order }) {
  const { capacity } = still.head.planes;
  const from = Math.min(Math.floor(view.left), Math.max(0, capacity - MOST));
  const to = Math.min(capacity, from + MOST);
  return (
    <Folded summary={`Cells of row ${row} as a table`}>
      {() => (
        <table>
          <caption>
            Row {row}, columns in {order === "physical" ? "the order they lie in" : "order of age"}, {to - from} of {capacity}
          </caption>
          <thead>
            <tr>{["column", "holds", "position", "tag", "dropped next"].map((name) => <th scope="col">{name}</th>)}</tr>
          </thead>
          <tbody>
            {row < still.head.rows.length &&
              Array.from({ length: to - from }, (_, i) => columnAt(still, order, from + i)).map((column) => {
                const { kind, position, tag, goes } = describe.cell(still, row, column);
                return (
                  <tr key={column}>
                    <th scope="row">{column}</th>
                    <td>{kind}</td>
                    <td>{position ?? "–"}</td>
                    <td>{tag ?? "–"}</td>
                    <td>{goes ? "yes" : "no"}</td>
                  </tr>
                );
              })}
          </tbody>
        </table>
      )}
    </Folded>
  );
}

export function MaskTable({ still, row }: { still: Still; row: number }) {
  if (!still.head.mask) return null;
  return (
    <Folded summary={`Queries of row ${row} as a table`}>
      {() => (
        <table>
          <caption>Mask {still.head.mask?.words}</caption>
          <thead>
            <tr>{["query at", "visible columns", "sees positions", "must see", "holds"].map((name) => <th scope="col">{name}</th>)}</tr>
          </thead>
          <tbody>
            {still.queries(row).slice(0, MOST).map((query, index) => (
              <tr key={index}>
                <th scope="row">{query.position ?? "padding"}</th>
                <td>{describe.ranges(still.runs(row)[index] ?? [])}</td>
                <td>{query.position === null ? "–" : describe.ranges(query.seen)}</td>
                <td>{query.position === null ? "–" : describe.ranges(query.expected)}</td>
                <td>{query.holds ? "yes" : "no"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Folded>
  );
}
