import { render } from "preact";
import { preset } from "./presets.ts";
import { decode } from "./share.ts";
import { openPreset, openShared } from "./state.ts";
import { followState } from "./address.ts";
import { App } from "./ui/App.tsx";
import "./style.css";

const shared = await decode(location.hash);
if (shared) openShared(shared);
else openPreset(preset("first-wrap"));
followState();

const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
// For whoever measures: the planner is ready and the first picture is drawn.
performance.mark("ready");
