// A running server, or the log it wrote.
import { useRef, useState } from "preact/hooks";
import { openFile, save } from "../files.ts";
import { Log } from "../log.ts";
import { followGeometry } from "../server.ts";
import { get, lastStep, set, stepOf, watch, type State } from "../state.ts";

export function Live({ state }: { state: State }) {
  const stop = useRef<(() => void) | null>(null);
  const [following, setFollowing] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const end = (reason: string | null) => {
    stop.current?.();
    stop.current = null;
    setFollowing(false);
    setProblem(reason);
  };
  const follow = () => {
    setProblem(null);
    setFollowing(true);
    stop.current = followGeometry(reader((error) => end(error)), (reason) => end(reason));
  };
  return (
    <div class="live">
      <p class="hint">
        A server that runs with <code>--geometry-log FILE</code> writes every move of its cache. Open such a file, or follow the
        server this page came from.
      </p>
      <p class="buttons">
        <label class="button">Open a log
          <input type="file" accept=".jsonl,.json,.log" onChange={(e) => e.currentTarget.files?.[0] && openFile(e.currentTarget.files[0])} />
        </label>
        <button onClick={following ? () => end(null) : follow}>{following ? "Stop following" : "Follow this server"}</button>
      </p>
      {problem && <p class="problem" role="alert">{problem}</p>}
      {following && !state.live && <p role="status">Waiting for the first event …</p>}
      {state.live && <Watched state={state} />}
    </div>
  );
}

function Watched({ state }: { state: State }) {
  const { log, run } = state.live!;
  const paused = state.step !== Infinity;
  return (
    <>
      <label>Group
        <select value={run.key} onChange={(e) => watch(log, log.runs.find((r) => r.key === e.currentTarget.value)!, !paused)}>
          {log.runs.map((r) => <option key={r.key} value={r.key}>{r.name}</option>)}
        </select>
      </label>
      <p>{run.reel.length} steps{run.reel.first > 0 ? `, the first ${run.reel.first} forgotten` : ""}; {paused ? `looking at ${stepOf(state) + 1}` : "at the newest"}.</p>
      {run.reel.problem && <p class="problem" role="alert">{run.reel.problem.message}</p>}
      <p class="buttons">
        <button onClick={() => set({ step: paused ? Infinity : lastStep(state) })}>{paused ? "Go on at the newest" : "Pause here"}</button>
        <button onClick={() => save(state)}>Save as a scenario</button>
      </p>
    </>
  );
}

/** Reads lines as they come, and shows them once a frame at most. */
function reader(failed: (reason: string) => void): (line: string) => void {
  const log = new Log();
  let frame = 0;
  return (line) => {
    try {
      const run = log.read(line);
      if (run && get().live?.log !== log) watch(log, run, true);
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        set({ grown: get().grown + 1 });
      });
    } catch (error) {
      failed((error as Error).message);
    }
  };
}
