export * from "./wasm/annulus_plan.js";

/** What a cell may hold; `Inspector.kinds` gives indices into this list. */
export const KINDS: readonly ["spare", "live", "sink", "left_padding", "trailing_padding", "rejected"];
/** Added to the kind of a cell that the next append drops or overwrites. */
export const EVICTED_NEXT: 8;
/** The position of a cell in which no token counts. */
export const NO_POSITION: -2147483648;
