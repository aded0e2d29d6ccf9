// A prompt for the server that this page came from.
import { useEffect, useRef, useState } from "preact/hooks";
import { chat, servedModel } from "../server.ts";

export function Try() {
  const [model, setModel] = useState<string | null | undefined>(undefined);
  const [prompt, setPrompt] = useState("Explain a KV cache in one sentence.");
  const [answer, setAnswer] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const running = useRef<AbortController | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    void servedModel().then(setModel);
    return () => running.current?.abort();
  }, []);
  if (model === undefined) return <p class="hint" role="status">Asking the server …</p>;
  if (model === null) {
    return (
      <div class="try">
        <p class="hint">This page is not served by an Annulus server, so there is no model to ask. <code>annulus serve</code> offers it at <code>/inspect</code>.</p>
      </div>
    );
  }
  const send = async () => {
    running.current = new AbortController();
    setAnswer("");
    setProblem(null);
    setBusy(true);
    try {
      await chat(model, prompt, running.current.signal, (piece) => setAnswer((old) => old + piece));
    } catch (error) {
      if ((error as Error).name !== "AbortError") setProblem((error as Error).message);
    }
    setBusy(false);
  };
  return (
    <div class="try">
      <label for="prompt">Prompt for {model}</label>
      <textarea id="prompt" rows={4} value={prompt} onInput={(e) => setPrompt(e.currentTarget.value)} />
      <p class="buttons">
        <button class="primary" onClick={() => void send()} disabled={busy || prompt.trim() === ""}>Send</button>
        <button onClick={() => running.current?.abort()} disabled={!busy}>Stop</button>
      </p>
      {problem && <p class="problem" role="alert">{problem}</p>}
      <div class="answer" aria-live="polite" data-answer>{answer}</div>
    </div>
  );
}
