// The guided tour.
import { TOUR } from "../tour.ts";
import { openStop, type State } from "../state.ts";

export function Learn({ state }: { state: State }) {
  const stop = TOUR[state.stop];
  return (
    <article class="learn" aria-live="polite">
      <p class="hint">Stop {state.stop + 1} of {TOUR.length}</p>
      <h2>{stop.title}</h2>
      {stop.text.map((paragraph) => <p key={paragraph}>{paragraph}</p>)}
      <p class="buttons">
        <button onClick={() => openStop(state.stop - 1)} disabled={state.stop === 0}>Back</button>
        <button class="primary" onClick={() => openStop((state.stop + 1) % TOUR.length)}>
          {state.stop + 1 < TOUR.length ? "Next" : "From the beginning"}
        </button>
      </p>
      <ol class="stops">
        {TOUR.map((one, i) => (
          <li key={one.title}>
            <button class="link" aria-current={i === state.stop ? "step" : undefined} onClick={() => openStop(i)}>{one.title}</button>
          </li>
        ))}
      </ol>
    </article>
  );
}
