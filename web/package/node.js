// Node and Bun: the wasm lies beside this file and is ready once this module is.
import { readFileSync } from "node:fs";
import { initSync } from "./wasm/annulus_plan.js";

initSync({ module: readFileSync(new URL("./wasm/annulus_plan_bg.wasm", import.meta.url)) });

export * from "./constants.js";
export {
  Inspector, build, columnBytes, explain, inspect, modelMemory, models, movedBytes, replay, rustTest, sees,
} from "./wasm/annulus_plan.js";
