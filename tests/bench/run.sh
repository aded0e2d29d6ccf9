#!/usr/bin/env bash
# Measures Annulus beside mlx-lm and llama.cpp. Run it through scripts/env.sh, on a machine that does nothing else.
# usage: run.sh [ROUNDS]
source "$(dirname "$0")/../../scripts/common.sh"

python=$("$root/scripts/venv.sh" "$root/tests/parity/requirements.txt")
gguf=$(cache_folder)/models/$DEFAULT_MODEL
folder=$(cache_folder)/parity/smollm2
[ -f "$folder/config.json" ] || "$python" "$root/tests/parity/convert.py" "$gguf" "$folder"
(cd "$root/tests/parity/tokens" && { [ -d node_modules/node-llama-cpp ] || npm install --no-save --no-audit --no-fund >&2; })
"$python" "$root/tests/bench/bench.py" "$root/target/release/annulus" "$gguf" "$folder" "${1:-5}"
