// The guided builder: a cache and cards, each field live, each refusal at its field.
import { useEffect, useState } from "preact/hooks";
import { TITLES, fieldsOf, fresh, placed, read, valueOf, withValue, write, type Field, type Placed } from "../cards.ts";
import type { Cache, Card } from "../planner.ts";
import { edit, get, goto, stepOf, type State } from "../state.ts";

export function Builder({ state }: { state: State }) {
  const { guide, built } = state;
  const refusal = placed(state);
  const step = stepOf(state);
  const cards = (change: (cards: Card[]) => Card[]) => edit({ ...get().guide, cards: change([...get().guide.cards]) });
  return (
    <div class="builder">
      <CacheFields cache={guide.cache} refusal={refusal?.card === "cache" ? refusal : null} />
      <ol class="cards">
        {guide.cards.map((card, place) => {
          const [from, to] = built?.spans[place] ?? [0, 0];
          return (
            <CardView
              key={place} place={place} card={card} span={[from, to]} current={from <= step && step < to}
              refusal={refusal?.card === place ? refusal : null}
              change={(next) => cards((list) => list.with(place, next))}
              remove={() => cards((list) => list.toSpliced(place, 1))}
              up={place > 0 ? () => cards((list) => list.toSpliced(place - 1, 2, card, list[place - 1])) : null}
            />
          );
        })}
      </ol>
      <Add state={state} add={(card) => cards((list) => [...list, card])} />
    </div>
  );
}

function CacheFields({ cache, refusal }: { cache: Cache; refusal: Placed | null }) {
  const change = (next: Cache) => edit({ ...get().guide, cache: next });
  const ring = cache.kind === "rotating";
  const at = (field: string) => (refusal?.field === field ? refusal.message : null);
  const elsewhere = refusal && !["max_size", "sinks"].includes(refusal.field ?? "") ? refusal.message : null;
  return (
    <fieldset class="cache">
      <legend>Cache</legend>
      <label>
        Attention
        <select value={cache.kind} onChange={(e) => change(e.currentTarget.value === "full" ? { kind: "full" } : { kind: "rotating", max_size: 4 })}>
          <option value="full">full</option>
          <option value="rotating">sliding window</option>
        </select>
      </label>
      {ring && (
        <>
          <Input id="max_size" field={{ name: "max_size", label: "Window", kind: "number", hint: "columns" }} value={cache.max_size}
            problem={at("max_size")} change={(max_size) => change({ ...cache, max_size: max_size as number })} />
          <Input id="sinks" field={{ name: "sinks", label: "Sinks", kind: "number", hint: "pinned positions" }} value={cache.sinks ?? 0}
            problem={at("sinks")} change={(sinks) => change({ ...cache, sinks: sinks as number })} />
        </>
      )}
      {elsewhere && <p class="problem" role="alert">{elsewhere}</p>}
    </fieldset>
  );
}

interface CardProps {
  card: Card;
  place: number;
  span: [number, number];
  current: boolean;
  refusal: Placed | null;
  change: (card: Card) => void;
  remove: () => void;
  up: (() => void) | null;
}

function CardView({ card, place, span: [from, to], current, refusal, change, remove, up }: CardProps) {
  const fields = fieldsOf(card);
  const title = card.do === "op" ? String((card.op as { op?: unknown })?.op ?? "?") : TITLES[card.do];
  const known = fields.some((field) => field.name === refusal?.field);
  return (
    <li class={`card ${current ? "current" : ""} ${refusal ? "bad" : ""}`} data-card={place}>
      <div class="head">
        <button class="title" onClick={() => goto(to - 1)} disabled={to === from} title="Go to the step after this card">
          {title}
          <span class="span">{to - from > 1 ? `steps ${from + 1}–${to}` : to > from ? `step ${to}` : ""}</span>
        </button>
        {up && <button class="small" onClick={up} aria-label={`Move card ${place + 1} up`}>↑</button>}
        <button class="small" onClick={remove} aria-label={`Remove card ${place + 1}`}>×</button>
      </div>
      <div class="fields">
        {fields.map((field) => (
          <Input
            key={field.name} id={`card-${place}-${field.name}`} field={field} value={valueOf(card, field.name)}
            problem={refusal?.field === field.name ? refusal.message : null}
            change={(value) => change(withValue(card, field.name, value))}
          />
        ))}
      </div>
      {refusal && !known && <p class="problem" role="alert">{refusal.message}</p>}
    </li>
  );
}

interface InputProps {
  id: string;
  field: Field;
  value: unknown;
  problem: string | null;
  change: (value: unknown) => void;
}

/** One field. What cannot be read stays in the field with the reason; what can is live at once. */
function Input({ id, field, value, problem, change }: InputProps) {
  const written = write(field.kind, value);
  const [draft, setDraft] = useState<{ text: string; problem: string } | null>(null);
  useEffect(() => setDraft(null), [written]);
  const type = (text: string) => {
    try {
      const next = read(field.kind, text);
      setDraft(null);
      if (write(field.kind, next) !== written) change(next);
    } catch (error) {
      setDraft({ text, problem: (error as Error).message });
    }
  };
  const shown = draft?.problem ?? problem;
  const described = shown ? `${id}-problem` : undefined;
  return (
    <label class={`field ${field.kind}`} for={id}>
      <span>{field.label}</span>
      {field.kind === "side" ? (
        <select id={id} value={written} title="None: each prompt is read alone, then the rows are merged" aria-invalid={shown !== null} aria-describedby={described} onChange={(e) => type(e.currentTarget.value)}>
          <option value="alone">none</option>
          <option value="left">left</option>
          <option value="right">right</option>
        </select>
      ) : (
        <input
          id={id} value={draft?.text ?? written} placeholder={field.hint} title={field.hint} spellcheck={false} autocomplete="off"
          inputMode={field.kind === "json" ? undefined : "numeric"} aria-invalid={shown !== null} aria-describedby={described}
          onInput={(e) => type(e.currentTarget.value)}
        />
      )}
      {shown && <span class="problem" id={described} role="alert">{shown}</span>}
    </label>
  );
}

const OPS = ["finalize", "trim", "extract", "donor", "snapshot", "restore", "round_begin", "round_commit"];

function Add({ state, add }: { state: State; add: (card: Card) => void }) {
  const rows = state.right.still(state.right.length - 1)?.head.rows.length ?? 0;
  const kinds: Card["do"][] = ["prefill", "decode", "draft", "join", "leave"];
  return (
    <div class="add">
      <h3>Add</h3>
      {kinds.map((kind) => <button key={kind} onClick={() => add(fresh(kind, rows))} data-add={kind}>{TITLES[kind]}</button>)}
      <select aria-label="Add one operation" value="" onChange={(e) => {
        if (e.currentTarget.value) add({ do: "op", op: operation(e.currentTarget.value) });
        e.currentTarget.value = "";
      }}>
        <option value="">one operation …</option>
        {OPS.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </div>
  );
}

function operation(name: string): Extract<Card, { do: "op" }>["op"] {
  switch (name) {
    case "trim": return { op: "trim", n: 1 };
    case "extract": return { op: "extract", row: 0 };
    case "donor": return { op: "donor" };
    case "snapshot": return { op: "snapshot", name: "here" };
    case "restore": return { op: "restore", name: "here" };
    case "round_begin": return { op: "round_begin" };
    case "round_commit": return { op: "round_commit" };
    default: return { op: "finalize" };
  }
}
