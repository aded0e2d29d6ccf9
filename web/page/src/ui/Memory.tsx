// Bytes of named models, from the planner's columns and the planner's bytes of a column.
import { useState } from "preact/hooks";
import { bytes } from "../numbers.ts";
import { modelMemory, models, problemOf } from "../planner.ts";
import { set, type State } from "../state.ts";

const MODELS = models();

export function Memory({ state }: { state: State }) {
  const [tokens, setTokens] = useState(8192);
  const [rows, setRows] = useState(8);
  const model = MODELS.find((m) => m.name === state.model) ?? MODELS[0];
  const answer = planned(model.name, tokens, rows);
  return (
    <div class="memory">
      <label>Model
        <select value={model.name} onChange={(e) => set({ model: e.currentTarget.value })}>
          {MODELS.map((m) => <option key={m.name}>{m.name}</option>)}
        </select>
      </label>
      <label>Tokens a row <input type="number" min={0} value={tokens} onInput={(e) => setTokens(count(e.currentTarget.value))} /></label>
      <label>Rows <input type="number" min={1} value={rows} onInput={(e) => setRows(count(e.currentTarget.value))} /></label>
      {typeof answer === "string" ? <p class="problem" role="alert">{answer}</p> : (
        <>
          <table>
            <caption>Layers</caption>
            <thead><tr><th scope="col">layers</th><th scope="col">attention</th><th scope="col">heads × size</th><th scope="col">columns</th></tr></thead>
            <tbody>
              {model.layers.map((layers, i) => (
                <tr key={i}>
                  <th scope="row">{layers.count}</th>
                  <td>{layers.window === null ? "full" : `window ${layers.window}`}</td>
                  <td>{layers.heads.kv_heads} × {layers.heads.head_dim}</td>
                  <td>{answer.columns[i].toLocaleString("en")}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <Bars formats={answer.formats} />
          <p class="hint">Keys and values of all layers and rows, after one decode step; spare columns count. 8 and 4 bits: groups of 64, each with a scale and a bias.</p>
        </>
      )}
    </div>
  );
}

function Bars({ formats }: { formats: ReturnType<typeof modelMemory>["formats"] }) {
  const most = Math.max(1, ...formats.map((format) => format.bytes));
  return (
    <table class="bars">
      <caption>Bytes in each representation</caption>
      <thead><tr><th scope="col">numbers</th><th scope="col">a column</th><th scope="col">in all</th></tr></thead>
      <tbody>
        {formats.map((format) => (
          <tr key={format.name}>
            <th scope="row">{format.name}</th>
            <td>{bytes(format.column)}</td>
            <td><span class="bar" style={{ width: `${(format.bytes / most) * 60}%` }} /> {bytes(format.bytes)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const count = (text: string): number => Math.max(0, Math.min(0xffff_ffff, Math.trunc(Number(text)) || 0));

function planned(model: string, tokens: number, rows: number): ReturnType<typeof modelMemory> | string {
  try {
    return modelMemory(model, tokens, rows);
  } catch (error) {
    return problemOf(error).message;
  }
}
