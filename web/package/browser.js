// Browsers: the wasm is fetched from beside this file; a module that imports this one waits for it.
import init from "./wasm/annulus_plan.js";

await init({ module_or_path: new URL("./wasm/annulus_plan_bg.wasm", import.meta.url) });

export * from "./constants.js";
export {
  Inspector, build, columnBytes, explain, inspect, modelMemory, models, movedBytes, replay, rustTest, sees,
} from "./wasm/annulus_plan.js";
