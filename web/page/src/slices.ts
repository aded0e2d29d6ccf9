// Long work in slices, so that the page answers in between.

/** How long a slice may take: half a frame at 60 a second. */
const SLICE_MS = 8;

/** Calls `work` with a deadline until it returns false: at once the first time, then whenever the page is free. */
export function slices(work: (deadline: number) => boolean): void {
  if (work(performance.now() + SLICE_MS)) setTimeout(() => slices(work));
}
