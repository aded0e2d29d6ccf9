// The scenario as JSON, live: what is typed is planned, and a refusal stands below with its line.
import { useEffect, useMemo, useState } from "preact/hooks";
import { format, guideOf, lineOfStep, parse } from "../scenario-text.ts";
import { edit, type State } from "../state.ts";

/** Longer texts make an editable field slow. */
const LONGEST = 300_000;

export function Json({ state }: { state: State }) {
  const { built, right, unreadable } = state;
  const written = useMemo(() => (built ? format(built.scenario) : ""), [built]);
  const [draft, setDraft] = useState<{ text: string; problem: string | null } | null>(null);
  // Text that says the same as the scenario is kept as it was typed.
  useEffect(() => setDraft((old) => (old && old.problem === null && same(old.text, written) ? old : null)), [written]);
  if (written.length > LONGEST) {
    return <p class="none">{Math.round(written.length / 1000).toLocaleString("en")} kB of JSON are too long to edit here. Copy JSON takes them all.</p>;
  }
  const type = (text: string) => {
    try {
      const { scenario } = parse(text);
      setDraft({ text, problem: null });
      edit(guideOf(scenario));
    } catch (error) {
      setDraft({ text, problem: (error as Error).message });
    }
  };
  const text = draft?.text ?? written;
  const problem = draft?.problem ?? unreadable?.message ?? refusal(text, state);
  return (
    <div class="json">
      <label for="json">Scenario</label>
      <textarea
        id="json" value={text} spellcheck={false} wrap="off" aria-invalid={problem !== null} aria-describedby="json-problem"
        onInput={(event) => type(event.currentTarget.value)}
      />
      <p id="json-problem" class="problem" role="alert">{problem}</p>
      {right.problem === null && problem === null && <p class="fine">{right.length} steps, none refused.</p>}
    </div>
  );
}

function refusal(text: string, { right }: State): string | null {
  if (!right.problem) return null;
  const { step, message } = right.problem;
  const line = step === null ? null : lineOfStep(text, step);
  return `${line === null ? "" : `line ${line}: `}${message}`;
}

function same(a: string, b: string): boolean {
  try {
    return JSON.stringify(JSON.parse(a)) === JSON.stringify(JSON.parse(b));
  } catch {
    return false;
  }
}
