// Measures llama.cpp: prompt and generated tokens a second, as one line of JSON.
//
//     node llama-cpp.mjs MODEL.gguf PROMPT_TOKENS GENERATED_TOKENS THREADS
//
// It uses the packages that the token comparison has installed.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(new URL("../parity/tokens/package.json", import.meta.url));
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);

const [modelPath, promptTokens, generatedTokens, threads] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: Number(threads) });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: 1024, threads: Number(threads), batchSize: 512 });
const sequence = context.getSequence();
const prompt = Array.from({ length: Number(promptTokens) }, (_, i) => 1000 + ((i * 7919) % 40000));

const started = performance.now();
await sequence.evaluateWithoutGeneratingNewTokens(prompt.slice(0, -1));
const prefilled = performance.now();
let count = 0;
// Greedy, and past any end token: the time of a token is what is measured.
for await (const token of sequence.evaluate(prompt.slice(-1), { temperature: 0, yieldEogToken: true })) {
    count += 1;
    if (count >= Number(generatedTokens)) break;
}
const ended = performance.now();
console.log(JSON.stringify({
    prompt_tps: (prompt.length - 1) / ((prefilled - started) / 1000),
    generation_tps: count / ((ended - prefilled) / 1000),
}));
await llama.dispose();
