// What must always hold, and the definition beside every query of the step.
import type { Reel } from "../reel.ts";
import { stepOf, type State } from "../state.ts";

export function Laws({ state }: { state: State }) {
  return (
    <div data-look="laws">
      <p class="hint">
        The definition: a query at position p sees its row's tokens at the newest W positions up to p, pinned ones besides, and
        nothing else. Every step is compared with it.
      </p>
      <List title={state.upstream ? "What is right" : "This step"} reel={state.right} state={state} />
      {state.upstream && <List title="What mlx-lm 0.32.2 does" reel={state.upstream} state={state} />}
      <Earlier state={state} />
    </div>
  );
}

function List({ title, reel, state }: { title: string; reel: Reel; state: State }) {
  const step = stepOf(state);
  const still = reel.still(Math.min(step, reel.length - 1));
  return (
    <section class="laws">
      <h3>{title}</h3>
      {reel.problem && step >= reel.length - 1 && <p class="problem">refused: {reel.problem.message}</p>}
      <ul>
        {still && [...still.head.invariants].sort((a, b) => Number(a.holds) - Number(b.holds)).map((law) => (
          <li key={law.name} class={law.holds ? "holds" : "broken"}>
            <span class="verdict" aria-label={law.holds ? "holds" : "broken"}>{law.holds ? "✓" : "✗"}</span>
            <span>
              {law.words}
              {law.broken && <strong class="place"> {law.broken}</strong>}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Which steps break a law at all. */
function Earlier({ state }: { state: State }) {
  const broken = (reel: Reel | null) => reel?.summaries.flatMap((s, step) => (s.holds ? [] : [step + 1])) ?? [];
  const [right, upstream] = [broken(state.right), broken(state.upstream)];
  return (
    <p class="hint">
      Over all {state.right.length} steps {right.length === 0 ? "no law is broken" : `a law is broken in ${right.join(", ")}`}
      {state.upstream ? `; by upstream's rules ${upstream.length === 0 ? "none either" : `in step ${upstream.join(", ")}`}` : ""}.
    </p>
  );
}
