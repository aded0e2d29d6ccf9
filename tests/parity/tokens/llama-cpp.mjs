// Prints llama.cpp's token ids: reads one JSON string a line, writes one JSON list of ids a line.
//
//     node llama-cpp.mjs MODEL.gguf < strings.jsonl
//
// Special tokens that are written out in a text are parsed, and none are added around it.

import { createInterface } from "node:readline";
import { getLlama, LlamaLogLevel } from "node-llama-cpp";

const [modelPath] = process.argv.slice(2);
if (modelPath === undefined) {
    console.error("usage: node llama-cpp.mjs MODEL.gguf < strings.jsonl");
    process.exit(2);
}
// The prebuilt library only: nothing is downloaded or compiled.
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error });
const model = await llama.loadModel({ modelPath, vocabOnly: true });
for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(model.tokenize(JSON.parse(line), true)));
}
await llama.dispose();
