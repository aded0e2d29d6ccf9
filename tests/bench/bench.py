"""Measures Annulus beside mlx-lm and llama.cpp on this machine's CPU, in turns, and prints medians and ratios.

Every engine runs in a process of its own, one after another, several rounds: what else the machine does meets all of them.
mlx-lm has its best CPU setting, 4-bit weights with float32 scales. A prompt of 256 tokens, then 64 tokens, greedy.

usage: bench.py BINARY MODEL.gguf MLX_FOLDER ROUNDS
"""

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from mlx_lm.utils import load_tokenizer

HERE = Path(__file__).parent
PROMPT, GENERATED = 256, 64
THREADS = os.cpu_count()


def text_of(folder, count):
    """A text of exactly so many tokens."""
    tokenizer = load_tokenizer(Path(folder))
    words = "The river ran past the old mill and the children threw stones into the water every day. " * 40
    text = tokenizer.decode(tokenizer.encode(words, add_special_tokens=False)[:count])
    assert len(tokenizer.encode(text, add_special_tokens=False)) == count
    return text


def run(command):
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def first_token(command, port, model):
    """Seconds from the start of a server's process to the first token of a streamed chat."""
    body = {"model": model, "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "stream": True, "max_tokens": 8, "temperature": 0}
    started = time.monotonic()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.monotonic() - started < 120:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                             {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    for line in answer:
                        if line.startswith(b"data: {"):
                            choices = json.loads(line[6:])["choices"]
                            if choices and choices[0]["delta"].get("content"):
                                return time.monotonic() - started
            except OSError:
                time.sleep(0.01)
        raise SystemExit(f"no answer from {command}")
    finally:
        server.terminate()
        server.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def engines(binary, gguf, folder):
    text = text_of(folder, PROMPT)
    counts = [str(PROMPT), str(GENERATED)]
    return {
        "annulus": [binary, "generate", gguf, "--raw", "--prompt", text, "--max-tokens", str(GENERATED), "--temperature", "0", "--json"],
        "mlx-lm": [sys.executable, str(HERE / "mlx_lm_once.py"), folder, *counts],
        "llama.cpp": ["node", str(HERE / "llama-cpp.mjs"), gguf, *counts, str(THREADS)],
    }


def servers(binary, gguf, folder):
    def ours(port):
        return [binary, "serve", gguf, "--port", str(port)]

    def theirs(port):
        return [sys.executable, "-m", "mlx_lm", "server", "--model", folder, "--port", str(port)]

    return {"annulus": (ours, Path(gguf).stem), "mlx-lm": (theirs, folder)}


def processor():
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0] if names else platform.processor()


def main(binary, gguf, folder, rounds):
    found = {}
    for number in range(int(rounds)):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for name, command in engines(binary, gguf, folder).items():
            measured = run(command)
            for key in ("prompt_tps", "generation_tps"):
                found.setdefault((name, key), []).append(measured[key])
        for name, (command, model) in servers(binary, gguf, folder).items():
            port = free_port()
            found.setdefault((name, "first"), []).append(first_token(command(port), port, model))
    middle = {key: statistics.median(values) for key, values in found.items()}
    print(f"\n{time.strftime('%Y-%m-%d')}, {processor()}, {THREADS} threads, {rounds} rounds in turns, medians. Load average at the "
          f"end: {os.getloadavg()[0]:.1f}.\n")
    print("| | prompt of 256, tokens/s | decode, tokens/s | process start to first token, s |\n|---|---|---|---|")
    for name in ("annulus", "mlx-lm", "llama.cpp"):
        first = f"{middle[name, 'first']:.2f}" if (name, "first") in middle else ""
        print(f"| {name} | {middle[name, 'prompt_tps']:.1f} | {middle[name, 'generation_tps']:.1f} | {first} |")
    for peer in ("mlx-lm", "llama.cpp"):
        prompt = middle["annulus", "prompt_tps"] / middle[peer, "prompt_tps"]
        decode = middle["annulus", "generation_tps"] / middle[peer, "generation_tps"]
        first = f"{middle[peer, 'first'] / middle['annulus', 'first']:.1f}x sooner" if (peer, "first") in middle else ""
        print(f"| **annulus to {peer}** | {prompt:.2f}x | {decode:.2f}x | {first} |")


if __name__ == "__main__":
    main(*sys.argv[1:5])
