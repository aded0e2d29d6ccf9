// A scenario as text that a person reads and writes: one operation a line.
import type { Card, Guide, Line, Op, Scenario } from "./planner.ts";

export function format(scenario: Scenario): string {
  const ops = scenario.ops.map((op) => `    ${JSON.stringify(nameFirst(op))}`).join(",\n");
  return `{\n  "cache": ${JSON.stringify(scenario.cache)},\n  "ops": [\n${ops}\n  ]\n}\n`;
}

function nameFirst({ op, ...fields }: Op): object {
  return { op, ...fields };
}

/** Reads a scenario, or a line that holds one. Throws what `JSON.parse` throws, or an error that says what is missing. */
export function parse(text: string): { name: string | null; scenario: Scenario } {
  const value = JSON.parse(text) as Partial<Line> & Partial<Scenario>;
  const scenario = value?.scenario ?? value;
  if (!Array.isArray((scenario as Scenario)?.ops)) throw new Error("a scenario is an object with cache and ops, a list");
  return { name: typeof value.id === "string" ? value.id : null, scenario: scenario as Scenario };
}

/** Every scenario is a guide: one card an operation. */
export function guideOf(scenario: Scenario): Guide {
  const cards = scenario.ops.map((op): Card => ({ do: "op", op }));
  return { cache: scenario.cache, cards };
}

/** The line, from 1, on which the operation of a step begins, in text of any layout; null when it is not found. */
export function lineOfStep(text: string, step: number): number | null {
  const list = /"ops"\s*:\s*\[/.exec(text);
  if (!list) return null;
  let depth = 0;
  let ops = 0;
  let quoted = false;
  for (let i = list.index + list[0].length; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c === "\\") i++;
      else if (c === '"') quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === "{" || c === "[") {
      if (depth++ === 0 && ops++ === step) return text.slice(0, i).split("\n").length;
    } else if ((c === "}" || c === "]") && --depth < 0) return null;
  }
  return null;
}
