// The server that this page came from, where it is one: its geometry events and its chat. Nothing is asked before someone asks.

const EVENTS = "/v1/geometry/events";
const CHAT = "/v1/chat/completions";
const MODELS = "/v1/models";

/** The model that is served here; null when no server of ours answers. */
export async function servedModel(): Promise<string | null> {
  try {
    const answer = await fetch(MODELS);
    if (!answer.ok) return null;
    const { data } = (await answer.json()) as { data?: { id?: unknown }[] };
    return typeof data?.[0]?.id === "string" ? data[0].id : null;
  } catch {
    return null;
  }
}

/** Follows the geometry of the server, line by line. Returns how to stop. */
export function followGeometry(line: (text: string) => void, failed: (reason: string) => void): () => void {
  const source = new EventSource(EVENTS);
  let heard = false;
  source.onmessage = (event: MessageEvent<string>) => {
    heard = true;
    line(event.data);
  };
  source.onerror = () => {
    if (!heard) {
      source.close();
      failed("This server offers no geometry events. Open a log file instead.");
    } else if (source.readyState === EventSource.CLOSED) failed("The server closed the connection.");
  };
  return () => source.close();
}

/** Streams an answer, piece by piece. Throws a sentence when there is none. */
export async function chat(model: string, prompt: string, signal: AbortSignal, piece: (text: string) => void): Promise<void> {
  const answer = await fetch(CHAT, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, stream: true, messages: [{ role: "user", content: prompt }] }),
    signal,
  });
  if (!answer.ok || !answer.body) throw new Error(await reason(answer));
  for await (const data of events(answer.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data) as { error?: { message?: string }; choices?: { delta?: { content?: string } }[] };
    if (event.error) throw new Error(event.error.message ?? "the server reported an error");
    const text = event.choices?.[0]?.delta?.content;
    if (text) piece(text);
  }
}

async function reason(answer: Response): Promise<string> {
  try {
    const { error } = (await answer.json()) as { error?: { message?: string } };
    if (error?.message) return error.message;
  } catch {
    // An answer without JSON says what it can by its status.
  }
  return `the server answered ${answer.status}`;
}

/** The data of a stream of server-sent events. */
async function* events(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const data = block.split(/\r?\n/).flatMap((line) => (line.startsWith("data:") ? [line.slice(5).trimStart()] : []));
      if (data.length > 0) yield data.join("\n");
    }
  }
}
