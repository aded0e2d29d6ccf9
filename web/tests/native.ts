// The native `annulus-plan`, built by the Makefile before the tests.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export const CASES = here("../../crates/plan/tests/cases");
export const LOG = here("./logs/geometry.jsonl");

export function nativeReplay(text: string): string {
  const binary = process.env.ANNULUS_PLAN ?? here("../../target/release/annulus-plan");
  try {
    return execFileSync(binary, ["replay", "-"], { input: text, encoding: "utf8", maxBuffer: 1 << 30 });
  } catch (error) {
    // Status 1 says that some scenario was refused: what it printed counts all the same.
    const { status, stdout } = error as { status?: number; stdout?: string };
    if (status === 1 && stdout !== undefined) return stdout;
    throw error;
  }
}
