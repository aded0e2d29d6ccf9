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
