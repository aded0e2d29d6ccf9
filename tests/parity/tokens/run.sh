#!/bin/sh
# Compares our token ids with llama.cpp's, string by string.
#
#   run.sh MODEL.gguf            compares, and says whether the recording is still what llama.cpp says
#   run.sh MODEL.gguf --record   writes the recording that `cargo test -p annulus-tests` compares with
set -eu

here=$(cd "$(dirname "$0")" && pwd)
model=${1:?usage: run.sh MODEL.gguf [--record]}
model=$(cd "$(dirname "$model")" && pwd)/$(basename "$model")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$here"
[ -d node_modules/node-llama-cpp ] || npm install --no-save --no-audit --no-fund
node llama-cpp.mjs "$model" < strings.jsonl > "$work/theirs"
cargo run --quiet --release --package annulus-tests --example tokens -- "$model" < strings.jsonl > "$work/ours"

if [ "${2:-}" = --record ]; then
    cp "$work/theirs" llama-cpp.jsonl
fi
cmp llama-cpp.jsonl "$work/theirs" || {
    echo "llama.cpp no longer says what was recorded; see llama-cpp.jsonl" >&2
    exit 1
}
# Lines of the three files belong together, so a difference names its line.
diff "$work/theirs" "$work/ours" || {
    echo "our tokens differ from llama.cpp's (<) on the lines above of strings.jsonl" >&2
    exit 1
}
echo "$(wc -l < strings.jsonl) strings, all equal"
