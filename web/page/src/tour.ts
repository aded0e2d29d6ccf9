// The guided tour: from what a KV cache is to why a turned ring needs care.

/** The part of the page a stop speaks of. */
export type Look = "cells" | "mask" | "timeline" | "ring" | "laws" | "editor" | "rows";

export interface Stop {
  title: string;
  text: string[];
  preset: string;
  step: number;
  row?: number;
  order?: "physical" | "temporal";
  compare?: boolean;
  look: Look;
}

export const TOUR: Stop[] = [
  {
    title: "What is a KV cache?",
    text: [
      "A language model reads a text token by token. Every token leaves two vectors in every layer, its key and its value. Later tokens look back at them.",
      "Computing them again for each new token would be slow, so they are kept. One line here is one text, called a row; one box is the place of one token, called a column. The big number is the token's position in its text.",
    ],
    preset: "full", step: 0, look: "cells",
  },
  {
    title: "One more token",
    text: [
      "To write the next token the model adds one column and looks back from there. That is one decode step.",
      "The line below the cache is the new token's view, its query: the filled boxes are the keys that it sees. Point at a box to see the link in both directions.",
    ],
    preset: "full", step: 1, look: "mask",
  },
  {
    title: "Full attention grows",
    text: [
      "Every token sees all before it, and nothing is dropped. Memory grows with the text.",
      "Columns are made 256 at a time, because growing means copying everything. Two of the spare ones are drawn; drag to see more. The strip above shows how many stored columns each step copied.",
    ],
    preset: "full", step: 3, look: "timeline",
  },
  {
    title: "A window",
    text: [
      "Many models let most layers see only the last W tokens. Here W is 4. The fourth token has just been written, and the cache is full.",
      "The mark ▼ is the write head: it stands where the next token will go. The corner cut off a box says: this key is dropped next.",
    ],
    preset: "first-wrap", step: 1, look: "cells",
  },
  {
    title: "The ring turns",
    text: [
      "Position 4 was written over position 0. No key has moved; only the head went back to the left. This is what makes a window cheap: a step writes one column and copies none.",
      "In memory the order is now 4 1 2 3. The dashed line shows where the oldest column lies.",
    ],
    preset: "first-wrap", step: 2, look: "ring",
  },
  {
    title: "Two orders",
    text: [
      "Physical order is where columns lie; temporal order is oldest to newest. Press T to switch.",
      "Every rule about windows is simple in temporal order. Every fault on the next pages comes from using a number of one order in the other.",
    ],
    preset: "first-wrap", step: 3, order: "temporal", look: "cells",
  },
  {
    title: "Texts of unequal length",
    text: [
      "A batch is a rectangle, texts are not. The shorter row was padded on its right, hatched here, until the longer one was read.",
      "The table says what the planner knows of each row: the position of its next column, and the position its prefill ends at.",
    ],
    preset: "right-padding", step: 3, row: 1, look: "rows",
  },
  {
    title: "Padding is rolled away",
    text: [
      "When the prefill ends, each row is rolled to the right by its own padding, so that all rows end at the same column and can go on together.",
      "The padding is now on the left and must never be seen: the mask leaves it out.",
    ],
    preset: "right-padding", step: 4, row: 1, look: "cells",
  },
  {
    title: "Drafts are taken back",
    text: [
      "A small model drafts three tokens, the large one checks them in one block. The first row accepts two of them, the second none.",
      "Rejected keys, crossed here, are rolled out of each row's way. They still lie in memory; the mask must hide them.",
    ],
    preset: "ragged", step: 4, row: 1, look: "cells",
  },
  {
    title: "Someone joins",
    text: [
      "A new text joins while the ring is turned. There is no common turn for old and new rows, so the ring is first brought to temporal order. Now everything moves.",
      "The strip shows what that costs.",
    ],
    preset: "join", step: 3, look: "timeline",
  },
  {
    title: "Why a turned ring needs care",
    text: [
      "The same four steps, right and as mlx-lm 0.32.2 does them. After the ring has turned, its mask takes the write head for the length of the history. The short row loses position 0: outlined on the right.",
      "Nothing crashes. The answer only gets a little worse. That is why every step on this page is compared with a definition of twenty lines.",
    ],
    preset: "br-01", step: 3, compare: true, look: "laws",
  },
  {
    title: "Your turn",
    text: [
      "Open Build and make a scenario: prompts, steps, drafts and joins. Whatever is impossible is refused at its field, with the reason.",
      "The link in the address bar always holds what you see. Press ? for the keys.",
    ],
    preset: "ragged", step: 0, look: "editor",
  },
];
