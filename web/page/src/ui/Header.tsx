// Name, what can be shared, theme, keys.
import { copyJson, copyLink, copyRustTest, openFile, save } from "../files.ts";
import { exportPng } from "../png.ts";
import { openStop, type State } from "../state.ts";
import { toggleTheme } from "../theme.ts";

export function Header({ state, help }: { state: State; help: () => void }) {
  return (
    <header>
      <h1>Annulus <span>inspector</span></h1>
      <p class="notice" role="status">{state.notice}</p>
      <nav aria-label="Share and help">
        <button class="primary" onClick={() => openStop(state.stop)}>Learn</button>
        <label class="button">Open
          <input type="file" accept=".json,.jsonl,.log" onChange={(e) => e.currentTarget.files?.[0] && openFile(e.currentTarget.files[0])} />
        </label>
        <button onClick={() => void copyLink(state)} disabled={state.live !== null} title="The address bar holds the same link">Copy link</button>
        <button onClick={() => void copyJson(state)}>Copy JSON</button>
        <button onClick={() => void copyRustTest(state)}>Copy Rust test</button>
        <button onClick={() => save(state)}>Save</button>
        <button onClick={() => exportPng(state)}>PNG</button>
        <button onClick={toggleTheme} aria-label="Light or dark">◐</button>
        <button onClick={help} aria-label="Keys" title="Keys (?)">?</button>
      </nav>
    </header>
  );
}
