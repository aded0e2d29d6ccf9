// The state of the page as a link: JSON, compressed, in the part of the address that no server sees.
import type { Guide } from "./planner.ts";

/** What a link restores. */
export interface Shared {
  name: string;
  guide: Guide;
  step: number;
  row: number;
  order: "physical" | "temporal";
  form: "dense" | "runs";
  compare: boolean;
}

/** Addresses beyond this length are cut by some mail and chat programs. */
export const LONGEST_LINK = 16_000;

export async function encode(shared: Shared): Promise<string> {
  const bytes = await through(new TextEncoder().encode(JSON.stringify(shared)), new CompressionStream("deflate-raw"));
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return `s=${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

/** The state in the hash of an address, or null when there is none or it is damaged. */
export async function decode(hash: string): Promise<Shared | null> {
  const text = new URLSearchParams(hash.replace(/^#/, "")).get("s");
  if (!text) return null;
  try {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = await through(Uint8Array.from(binary, (c) => c.charCodeAt(0)), new DecompressionStream("deflate-raw"));
    return check(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    return null;
  }
}

async function through(bytes: Uint8Array<ArrayBuffer>, stream: GenericTransformStream): Promise<Uint8Array> {
  const body = new Blob([bytes]).stream().pipeThrough(stream as ReadableWritablePair<Uint8Array, Uint8Array<ArrayBuffer>>);
  return new Uint8Array(await new Response(body).arrayBuffer());
}

/** A link may come from anywhere: what is not as expected falls back, and a guide is checked by the planner later. */
function check(value: Partial<Shared>): Shared | null {
  if (!value.guide || !Array.isArray(value.guide.cards)) return null;
  const count = (n: unknown) => (Number.isSafeInteger(n) && (n as number) >= 0 ? (n as number) : 0);
  return {
    name: typeof value.name === "string" ? value.name.slice(0, 200) : "shared",
    guide: value.guide,
    step: count(value.step),
    row: count(value.row),
    order: value.order === "temporal" ? "temporal" : "physical",
    form: value.form === "runs" ? "runs" : "dense",
    compare: value.compare === true,
  };
}
