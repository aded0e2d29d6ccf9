// Every key of the page in one place, so that the help cannot differ from what happens.
import { refit, view, zoom } from "./draw/viewport.ts";
import { compare, get, goto, lastStep, set, stepOf, type Pane } from "./state.ts";
import { toggleTheme } from "./theme.ts";
import { togglePlay } from "./ui/Timeline.tsx";

interface Key {
  keys: string[];
  shown: string;
  does: string;
  act: () => void;
}

const pane = (name: Pane) => () => set({ pane: name });
const middle = () => view.left + 10;

export const KEYS: Key[] = [
  { keys: ["ArrowRight", "]"], shown: "→", does: "step on", act: () => goto(stepOf(get()) + 1) },
  { keys: ["ArrowLeft", "["], shown: "←", does: "step back", act: () => goto(stepOf(get()) - 1) },
  { keys: ["Home"], shown: "Home", does: "first step", act: () => goto(0) },
  { keys: ["End"], shown: "End", does: "last step", act: () => goto(lastStep()) },
  { keys: [" "], shown: "space", does: "play or pause", act: togglePlay },
  { keys: ["ArrowDown"], shown: "↓", does: "next row", act: () => selectRow(1) },
  { keys: ["ArrowUp"], shown: "↑", does: "row before", act: () => selectRow(-1) },
  { keys: ["t"], shown: "T", does: "physical or temporal order", act: () => set({ order: get().order === "physical" ? "temporal" : "physical" }) },
  { keys: ["m"], shown: "M", does: "mask dense or as runs", act: () => set({ form: get().form === "dense" ? "runs" : "dense" }) },
  { keys: ["c"], shown: "C", does: "compare with mlx-lm 0.32.2", act: () => compare(get().upstream === null) },
  { keys: ["+", "="], shown: "+", does: "zoom in", act: () => zoom(1.5, middle()) },
  { keys: ["-"], shown: "−", does: "zoom out", act: () => zoom(1 / 1.5, middle()) },
  { keys: ["0"], shown: "0", does: "fit everything", act: refit },
  { keys: ["1"], shown: "1", does: "rows", act: pane("rows") },
  { keys: ["2"], shown: "2", does: "laws", act: pane("laws") },
  { keys: ["3"], shown: "3", does: "memory", act: pane("memory") },
  { keys: ["4"], shown: "4", does: "live", act: pane("live") },
  { keys: ["5"], shown: "5", does: "try it", act: pane("try") },
  { keys: ["d"], shown: "D", does: "light or dark", act: toggleTheme },
];

function selectRow(by: number): void {
  const state = get();
  const rows = state.right.still(Math.min(stepOf(state), state.right.length - 1))?.head.rows.length ?? 1;
  set({ row: Math.max(0, Math.min(rows - 1, state.row + by)) });
}

/** Listens on the page; keys typed into a field stay there. */
export function listen(help: () => void): () => void {
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || typing(event)) return;
    if (event.key === "?") return help();
    const key = KEYS.find(({ keys }) => keys.includes(event.key));
    if (!key) return;
    event.preventDefault();
    key.act();
  };
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}

/** Whether a key belongs to what has the focus. */
function typing({ target, key }: KeyboardEvent): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.matches("textarea, select, input:not([type=range]), dialog *")) return true;
  const arrows = key.startsWith("Arrow") || key === "Home" || key === "End";
  if (target.matches("input[type=range], [role=tab], .scroll") && arrows) return true;
  return key === " " && target.matches("button, summary, a, label");
}
