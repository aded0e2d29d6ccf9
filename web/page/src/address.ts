// The address bar always holds what is seen.
import { decode, encode, LONGEST_LINK } from "./share.ts";
import { get, openShared, stepOf, subscribe } from "./state.ts";

/** Writing the address at every step of a scrub would be refused by some browsers. */
const QUIET_MS = 250;

export function followState(): void {
  let timer = 0;
  let written = location.hash;
  subscribe(() => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => void write(), QUIET_MS);
  });
  addEventListener("hashchange", () => {
    if (location.hash === written) return;
    void decode(location.hash).then((shared) => shared && openShared(shared));
  });

  async function write(): Promise<void> {
    const state = get();
    if (state.live) return;
    const { name, guide, row, order, form, upstream } = state;
    const hash = await encode({ name, guide, step: stepOf(state), row, order, form, compare: upstream !== null });
    if (hash.length > LONGEST_LINK || `#${hash}` === location.hash) return;
    written = `#${hash}`;
    history.replaceState(null, "", written);
  }
}
