// Everything of the planner that the page uses. The page computes no geometry: what it draws, it asked here.
import type { PlanError } from "@annulus/plan";

export {
  EVICTED_NEXT, Inspector, KINDS, NO_POSITION, build, modelMemory, models, movedBytes, rustTest,
} from "@annulus/plan";
export type {
  Built, Cache, Card, CellKind, Compared, Guide, Head, Invariant, Line, Model, Op, Range, Scenario, State,
} from "@annulus/plan";

/** What is wrong, and where. */
export interface Problem {
  step: number | null;
  op: string | null;
  field: string | null;
  message: string;
}

/** An exception as a problem. Anything but a refusal of the planner is a fault of the page and is thrown on. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Error && error.name === "PlanError") {
    const { step, op, field, message } = error as PlanError;
    return { step, op, field, message };
  }
  throw error;
}
