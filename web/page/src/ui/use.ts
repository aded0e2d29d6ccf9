// Components and the state outside them.
import { useEffect, useState } from "preact/hooks";
import { get, subscribe, type State } from "../state.ts";

/** The state of the page; the component is drawn again when it changes. */
export function useApp(): State {
  const [state, setState] = useState(get());
  useEffect(() => {
    // What changed between the first drawing and now would be missed otherwise.
    setState(get());
    return subscribe(() => setState(get()));
  }, []);
  return state;
}

/** Draws the component again whenever something outside the state changes. */
export function useSignal(on: (listener: () => void) => () => void): void {
  const [, again] = useState(0);
  useEffect(() => on(() => again((n) => n + 1)), []);
}

/** How long a step must stand before what need not follow every frame does. */
const SETTLED_MS = 60;

/** The state, but while one scrubs only the step at which one stops: laying out tables costs more than drawing the cache. */
export function useSettled(state: State): State {
  const [settled, settle] = useState(state);
  const keys = Object.keys(state) as (keyof State)[];
  const more = keys.some((key) => key !== "step" && state[key] !== settled[key]);
  useEffect(() => {
    const timer = setTimeout(() => settle(state), more ? 0 : SETTLED_MS);
    return () => clearTimeout(timer);
  }, [state]);
  return more ? state : settled;
}
