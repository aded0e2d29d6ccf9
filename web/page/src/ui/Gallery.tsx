// Presets, and what can be opened besides.
import { PRESETS } from "../presets.ts";
import { openPreset, type State } from "../state.ts";

const GROUPS = [...new Set(PRESETS.map((preset) => preset.group))];

export function Gallery({ state }: { state: State }) {
  return (
    <div class="gallery">
      {GROUPS.map((group) => (
        <section key={group}>
          <h3>{group}</h3>
          <ul>
            {PRESETS.filter((preset) => preset.group === group).map((preset) => (
              <li key={preset.id}>
                <button
                  class="preset" data-preset={preset.id} aria-pressed={state.preset?.id === preset.id}
                  onClick={() => openPreset(preset)}
                >
                  {preset.name}
                  {preset.upstream && <span class="badge">two answers</span>}
                </button>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}

/** What the scenario on screen is about. */
export function About({ state }: { state: State }) {
  const { preset, name } = state;
  return (
    <div class="about">
      <h2>{name}</h2>
      {preset && <p>{preset.about}</p>}
      {preset?.upstream && state.upstream && <p class="wrongly"><b>mlx-lm 0.32.2</b> {preset.upstream}</p>}
      {preset?.link && <p>Report: <a href={preset.link.href} rel="noreferrer">{preset.link.text}</a></p>}
    </div>
  );
}
