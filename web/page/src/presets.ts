// Scenarios worth looking at. Each is a guide; the planner spells it out.
import type { Card, Guide, Op } from "./planner.ts";

export interface Preset {
  id: string;
  name: string;
  group: "Start here" | "Batches" | "Drafts" | "Reports" | "Large";
  about: string;
  guide: Guide;
  /** The step to open at; the last one when absent. */
  step?: number;
  /** Opens with upstream's answer beside the right one. */
  upstream?: string;
  link?: { text: string; href: string };
}

const ring = (max_size: number, sinks?: number): Guide["cache"] =>
  sinks ? { kind: "rotating", max_size, sinks } : { kind: "rotating", max_size };
const op = (op: Op): Card => ({ do: "op", op });
const alone = (...lengths: number[]): Card => ({ do: "prefill", lengths, padding: "alone", chunk: null });
const decode = (steps: number): Card => ({ do: "decode", steps });
const issue = (repository: string, number: number) => ({
  text: `${repository.split("/")[1]} #${number}`,
  href: `https://github.com/${repository}/issues/${number}`,
});

export const PRESETS: Preset[] = [
  {
    id: "full",
    name: "Full attention",
    group: "Start here",
    about: "Nothing is ever dropped. Columns are added 256 at a time; most of them are spare at first.",
    guide: { cache: { kind: "full" }, cards: [alone(3), decode(3)] },
  },
  {
    id: "first-wrap",
    name: "A first wrap",
    group: "Start here",
    about: "A window of 4: the fifth token goes where the first one lay. From then on the ring is turned.",
    guide: { cache: ring(4), cards: [alone(3), decode(4)] },
  },
  {
    id: "sinks",
    name: "Attention sinks",
    group: "Start here",
    about: "The first two positions are pinned at the left; the other six columns are a ring.",
    guide: { cache: ring(8, 2), cards: [alone(5), decode(6)] },
  },
  {
    id: "left-padding",
    name: "Left padding",
    group: "Batches",
    about: "Two prompts of unequal length, read together. The shorter one is padded before its first token.",
    guide: { cache: ring(8), cards: [{ do: "prefill", lengths: [5, 2], padding: "left", chunk: 3 }, decode(1)] },
  },
  {
    id: "right-padding",
    name: "Right padding",
    group: "Batches",
    about: "The shorter prompt is padded after its last token. When the prefill ends, the padding is rolled to the front.",
    guide: { cache: ring(8), cards: [{ do: "prefill", lengths: [5, 2], padding: "right", chunk: 3 }, decode(1)] },
  },
  {
    id: "cut-short",
    name: "A cohort cut short",
    group: "Batches",
    about: "The longest prompt is cancelled half way. The rows that stay roll away only the padding they really took.",
    guide: {
      cache: ring(8),
      cards: [
        op({ op: "empty", rows: 3 }),
        op({ op: "prepare", lengths: [2, 6, 3], right_padding: [4, 0, 3] }),
        op({ op: "append", tokens: [[1000, 1001, 0, 0], [2000, 2001, 2002, 2003], [3000, 3001, 3002, 0]] }),
        op({ op: "filter", keep: [0, 2] }),
        op({ op: "finalize" }),
        decode(1),
      ],
    },
  },
  {
    id: "join",
    name: "A join into a turned ring",
    group: "Batches",
    about: "A row joins after the ring has turned. The old columns are first brought to the order of time.",
    guide: { cache: ring(4), cards: [alone(4, 2), decode(2), { do: "join", lengths: [3] }, decode(1)] },
  },
  {
    id: "ragged",
    name: "Ragged acceptance (BR-25)",
    group: "Drafts",
    about: "Three drafted tokens: the first row accepts two, the second none. Each row rolls its own rejected keys out.",
    guide: {
      cache: ring(6),
      cards: [alone(6, 4), decode(1), { do: "draft", columns: [3], accept: [2, 0] }, decode(1)],
    },
    link: issue("ml-explore/mlx-lm", 1446),
  },
  {
    id: "round",
    name: "A round of several appends",
    group: "Drafts",
    about: "Inside a round the ring keeps what was there when it began, so that any number of tokens can be taken back.",
    guide: {
      cache: ring(4),
      cards: [alone(4, 3), decode(1), { do: "draft", columns: [2, 1], accept: [1, 3] }, decode(1)],
    },
  },
  {
    id: "donor",
    name: "A donor for a drafter",
    group: "Drafts",
    about: "A drafter gets a copy of the cache amid a padded prefill. It may read neither the padding nor what the window has lost.",
    guide: {
      cache: ring(4),
      cards: [
        op({ op: "empty", rows: 2 }),
        op({ op: "prepare", lengths: [3, 5], right_padding: [2, 0] }),
        op({ op: "append", tokens: [[1000, 1001, 1002, 0, 0], [2000, 2001, 2002, 2003, 2004]] }),
        op({ op: "donor" }),
        op({ op: "finalize" }),
        decode(1),
        op({ op: "donor" }),
      ],
    },
    step: 3,
  },
  {
    id: "br-24",
    name: "Taking back when full (BR-24)",
    group: "Drafts",
    about: "The window is full when the draft is rejected. Elsewhere this did nothing and left the rejected keys in place.",
    guide: { cache: ring(4), cards: [alone(6), decode(1), { do: "draft", columns: [3], accept: [0] }, decode(1)] },
    link: issue("ml-explore/mlx-lm", 1423),
  },
  {
    id: "br-01",
    name: "A lost oldest key (BR-01)",
    group: "Reports",
    about: "The second row has filled its window, the first has not. After one decode step the ring is turned.",
    upstream:
      "takes the write head for the length of the history, so its mask is one column off: the first row's query at position 2 no longer sees position 0. No error, only a worse answer.",
    guide: {
      cache: ring(3),
      cards: [alone(1, 3), decode(1), { do: "prefill", lengths: [1, 2], padding: "right", chunk: null }],
    },
    step: 3,
  },
  {
    id: "br-02",
    name: "A last chunk of one column (BR-02)",
    group: "Reports",
    about: "Two prompts of 5 and 1, in chunks of 4: the last chunk is one column wide, amid a padded prefill.",
    upstream: "takes every append of one column for a decode step, and stops: finalize() should be called before decoding.",
    guide: {
      cache: ring(8),
      cards: [{ do: "prefill", lengths: [5, 1], padding: "right", chunk: 4 }, decode(1)],
    },
    step: 3,
  },
  {
    id: "br-03",
    name: "Hidden sinks (BR-03)",
    group: "Reports",
    about: "A window of 8 with two sinks, ten tokens, then a block of four. Every query must see positions 0 and 1.",
    upstream: "slides one window over all columns, so the later queries of the block lose the sinks.",
    guide: {
      cache: ring(8, 2),
      cards: [alone(10), op({ op: "append", tokens: [[1010, 1011, 1012, 1013]] })],
    },
    step: 1,
    link: issue("ml-explore/mlx-lm", 1631),
  },
  {
    id: "padding",
    name: "Understated padding",
    group: "Reports",
    about: "The first prompt ends a whole chunk before the second. Only its last three tokens are still there.",
    upstream:
      "adds the roll to a padding count that was negative, and so takes one column of padding for a token: a copy of the row begins with a key that was never written.",
    guide: {
      cache: ring(4),
      cards: [
        { do: "prefill", lengths: [6, 12], padding: "right", chunk: 6 },
        op({ op: "extract", row: 0 }),
      ],
    },
    step: 4,
  },
  {
    id: "br-17",
    name: "W+S−1 columns are right (BR-17)",
    group: "Reports",
    about: "A block of 4 on a window of 6 leaves 9 columns. The first of its queries needs the oldest of them: not a leak.",
    guide: {
      cache: ring(6),
      cards: [alone(8), op({ op: "append", tokens: [[1008, 1009, 1010, 1011]] }), decode(1)],
    },
    step: 1,
    link: issue("ml-explore/mlx-lm", 1914),
  },
  {
    id: "br-29",
    name: "Exactly W keys (BR-29)",
    group: "Reports",
    about: "A query sees itself and W−1 keys before it, never one more: q − k < W.",
    guide: { cache: ring(3), cards: [op({ op: "empty", rows: 1 }), op({ op: "append", tokens: [[1000, 1001, 1002, 1003, 1004]] })] },
    link: issue("ml-explore/mlx-swift-lm", 39),
  },
  {
    id: "large",
    name: "64 rows × 4,096 columns",
    group: "Large",
    about: "Prompts between 1,300 and 4,090 tokens on a window of 4,096. Zoom in to read single cells.",
    guide: {
      cache: ring(4096),
      cards: [
        { do: "join", lengths: Array.from({ length: 64 }, (_, row) => 4090 - ((row * 37) % 64) * 44) },
        decode(12),
        { do: "draft", columns: [4], accept: Array.from({ length: 64 }, (_, row) => row % 4) },
        decode(12),
      ],
    },
    step: 0,
  },
];

export const preset = (id: string): Preset => PRESETS.find((p) => p.id === id) ?? PRESETS[0];
