"""Random scenarios through mlx-lm's live cache classes and through the planner: who is wrong by the definition?

usage: PYTHON differential.py ANNULUS_PLAN [--count N] [--seed S]

PYTHON has mlx-lm 0.32.2 and mlx[cpu]; ANNULUS_PLAN is the binary (`cargo build --release -p annulus-plan --features cli`).
A key is the tag of its token, so what a query sees can be read off keys and mask. The definition below is written here anew:
neither side is its own judge. Exit status 1 when the planner is wrong anywhere, or differs from mlx-lm where that is right.
"""
import argparse
import collections
import json
import random
import subprocess
import sys

import mlx.core as mx
import mlx_lm
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache, KVCache, RotatingKVCache

mx.set_default_device(mx.cpu)


def planes(table):
    keys = mx.array(table, dtype=mx.float32)[:, None, :, None]
    return keys, keys


def tags(keys):
    return [[int(x) for x in row[0]] for row in keys[..., 0].tolist()]


def defined(cache, row, position):
    """The tags that a query at `position` of `row` must see."""
    window, sinks = cache.get("max_size"), cache.get("sinks", 0)
    oldest = 0 if window is None else position - (window - sinks) + 1
    return [tag for at, tag in enumerate(row[: position + 1]) if at < sinks or at >= oldest]


class Writer:
    """Writes a random scenario, with what each query must see."""

    def __init__(self, rng, cache, solo):
        self.rng, self.cache, self.solo = rng, cache, solo
        self.rows, self.born, self.ops, self.expect = [], 0, [], []

    def fresh(self, n):
        self.born += 1
        return [self.born * 1000 + 1 + i for i in range(n)]

    def emit(self, op, expect=None):
        self.ops.append(op)
        self.expect.append(expect)

    def reach(self):
        return (self.cache.get("max_size") or 8) + 5

    def start(self):
        count = 1 if self.solo else self.rng.randint(1, 4)
        if self.rng.random() < 0.4 or self.solo:
            self.rows = [[] for _ in range(count)]
            self.born = count
            self.emit({"op": "empty", "rows": count})
        else:
            self.rows = [self.fresh(self.rng.randint(0, self.reach())) for _ in range(count)]
            self.emit({"op": "merge", "rows": [list(r) for r in self.rows]})
        self.next = [(i + 1) * 1000 + len(r) + 1 for i, r in enumerate(self.rows)]

    def append(self, shape):
        """`shape[r]` is a list of True for a token and False for padding."""
        table, expect = [], []
        for r, line in enumerate(shape):
            cells, sees = [], []
            for real in line:
                if real:
                    cells.append(self.next[r])
                    self.rows[r].append(self.next[r])
                    self.next[r] += 1
                    sees.append(defined(self.cache, self.rows[r], len(self.rows[r]) - 1))
                else:
                    cells.append(0)
                    sees.append(None)
            table.append(cells)
            expect.append(sees)
        self.emit({"op": "append", "tokens": table}, expect)

    def prefill(self):
        width = self.rng.randint(1, self.reach())
        count, left = len(self.rows), None
        if all(not r for r in self.rows) and not any(op["op"] == "append" for op in self.ops) and self.rng.random() < 0.5:
            left = [self.rng.randint(0, width) for _ in range(count)]
            shape = [[False] * pad + [True] * (width - pad) for pad in left]
            self.emit({"op": "prepare", "lengths": [width - pad for pad in left], "left_padding": left})
        else:
            lengths = [self.rng.randint(0, width) for _ in range(count)]
            lengths[self.rng.randrange(count)] = width
            shape = [[True] * n + [False] * (width - n) for n in lengths]
            self.emit({"op": "prepare", "lengths": lengths, "right_padding": [width - n for n in lengths]})
        at = 0
        while at < width:
            n = self.rng.randint(1, width - at)
            self.append([line[at : at + n] for line in shape])
            at += n
        self.emit({"op": "finalize"})

    def write(self):
        self.start()
        for _ in range(self.rng.randint(2, 14)):
            what = self.rng.random()
            count = len(self.rows)
            if self.solo:
                self.append([[True] * (1 if what < 0.6 else self.rng.randint(2, 9))])
            elif what < 0.45:
                self.append([[True]] * count)
            elif what < 0.6:
                self.append([[True] * self.rng.randint(2, 6)] * count)
            elif what < 0.75:
                self.prefill()
            elif what < 0.85 and count > 1:
                keep = self.rng.sample(range(count), self.rng.randint(1, count))
                self.rows, self.next = [self.rows[k] for k in keep], [self.next[k] for k in keep]
                self.emit({"op": "filter", "keep": keep})
            elif what < 0.95 and count < 6:
                rows = [self.fresh(self.rng.randint(1, self.reach())) for _ in range(self.rng.randint(1, 2))]
                self.rows += rows
                self.next += [row[-1] + 1 for row in rows]
                self.emit({"op": "extend", "rows": [list(r) for r in rows]})
            else:
                self.emit({"op": "extract", "row": self.rng.randrange(count)})
        return {"cache": self.cache, "ops": self.ops}, self.expect


def serial(cache, tokens):
    one = KVCache() if cache["kind"] == "full" else RotatingKVCache(cache["max_size"])
    if tokens:
        one.update_and_fetch(*planes([tokens]))
    return one


class Upstream:
    """mlx-lm's classes, driven by a scenario."""

    def __init__(self, cache, solo):
        self.cache, self.solo, self.live = cache, solo, None
        self.kind = BatchKVCache if cache["kind"] == "full" else BatchRotatingKVCache

    def run(self, op):
        getattr(self, op["op"])(op)

    def empty(self, op):
        if self.solo:
            self.live = RotatingKVCache(self.cache["max_size"], keep=self.cache.get("sinks", 0))
        elif self.kind is BatchKVCache:
            self.live = BatchKVCache([0] * op["rows"])
        else:
            self.live = BatchRotatingKVCache(self.cache["max_size"], [0] * op["rows"])

    def merge(self, op):
        self.live = self.kind.merge([serial(self.cache, row) for row in op["rows"]])

    def extend(self, op):
        self.live.extend(self.kind.merge([serial(self.cache, row) for row in op["rows"]]))

    def prepare(self, op):
        left, right = op.get("left_padding"), op.get("right_padding")
        self.live.prepare(left_padding=left, lengths=op["lengths"], right_padding=right)

    def finalize(self, _):
        self.live.finalize()

    def filter(self, op):
        self.live.filter(op["keep"])

    def extract(self, op):
        one = self.live.extract(op["row"])
        return tags(one.keys)[0][-self.cache.get("max_size", 10**9) :]

    def append(self, op):
        table = op["tokens"]
        n = len(table[0])
        mask = self.live.make_mask(n, return_array=True) if not (self.solo and n == 1) else None
        offsets = [self.live.offset] if self.solo else self.live.offset.tolist()
        fetched = tags(self.live.update_and_fetch(*planes(table))[0])
        width = len(fetched[0])
        if mask is None:
            bits = [[[True] * width] * n] * len(table)
        else:
            bits = mx.broadcast_to(mask, (len(table), 1, n, width))[:, 0].tolist()
        sees = [
            [None if table[r][q] == 0 else sorted(t for t, m in zip(fetched[r], bits[r][q]) if m) for q in range(n)]
            for r in range(len(table))
        ]
        return {"sees": sees, "fetched": fetched, "rope_offsets": offsets}


def compare(scenario, expect, answer, solo, found):
    """Runs one scenario; counts what is found, returns what is wrong with the planner."""
    if "error" in answer:
        return f"the planner refuses: {answer['error']}"
    upstream, broken, turned = Upstream(scenario["cache"], solo), False, False
    for op, must, ours in zip(scenario["ops"], expect, answer["steps"]):
        if must is not None and ours["sees"] != must:
            return f"the planner sees {ours['sees']}, by the definition {must}"
        if broken:
            continue
        name = op["op"]
        try:
            theirs = getattr(upstream, name)(op)
        except Exception as error:  # whatever a library raises is what it says
            found[f"raises {type(error).__name__}: {str(error)[:60]}"] += 1
            broken = True
            continue
        if name == "append":
            found["appends"] += 1
            block = len(op["tokens"][0]) > 1
            # Sinks are laid out differently: there only what is seen can be compared.
            if not solo and (theirs["fetched"] != ours["fetched"] or theirs["rope_offsets"] != ours["rope_offsets"]):
                return f"fetched {ours['fetched']} at {ours['rope_offsets']}, mlx-lm {theirs}"
            if theirs["sees"] != [[None if q is None else sorted(q) for q in row] for row in must]:
                kind = "sinks hidden or too many columns seen" if solo and scenario["cache"].get("sinks") else (
                    "a block after the ring has turned loses keys" if block and turned else "other")
                found[f"wrong: {kind}"] += 1
        if name == "extract" and theirs != ours["tokens"]:
            found["wrong: extract holds padding" if 0 in theirs else "extract differs in length"] += 1
        turned = bool(getattr(upstream.live, "rotated", False))
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    runs = []
    for i in range(args.count):
        solo, size = rng.random() < 0.2, rng.randint(1, 12)
        cache = {"kind": "full"} if not solo and rng.random() < 0.3 else {"kind": "rotating", "max_size": size}
        if solo and size > 1:
            cache["sinks"] = rng.randrange(size)
        runs.append((str(i), solo, *Writer(rng, cache, solo).write()))
    text = "\n".join(json.dumps({"id": name, "scenario": scenario}) for name, _, scenario, _ in runs)
    out = subprocess.run([args.binary, "replay", "-"], input=text, capture_output=True, text=True, check=False).stdout
    answers = {a["id"]: a for a in map(json.loads, out.splitlines())}
    found, wrong = collections.Counter(), []
    affected = 0
    for name, solo, scenario, expect in runs:
        before = sum(n for kind, n in found.items() if kind.startswith(("wrong", "raises")))
        why = compare(scenario, expect, answers[name], solo, found)
        affected += sum(n for kind, n in found.items() if kind.startswith(("wrong", "raises"))) > before
        if why:
            wrong.append((name, why, scenario))
    print(f"mlx-lm {mlx_lm.__version__}: {args.count} scenarios, {found.pop('appends', 0)} appends compared")
    print(f"mlx-lm is wrong by the definition, or raises, in {affected} scenarios:")
    for kind, count in sorted(found.items()):
        print(f"  {count:5}  {kind}")
    print(f"the planner is wrong, or differs where mlx-lm is right, in {len(wrong)}")
    for name, why, scenario in wrong[:3]:
        print(f"  {name}: {why}\n    {json.dumps(scenario)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
