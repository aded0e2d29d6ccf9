#!/usr/bin/env bash
# Compares Annulus with mlx-lm 0.32.2 over MLX 0.32.2, in an environment of its own; quantized experts with mlx-lm 0.32.0, the
# last that runs them over this MLX. Run it through scripts/env.sh.
source "$(dirname "$0")/../../scripts/common.sh"

python=$("$root/scripts/venv.sh" "$root/tests/parity/requirements.txt")
experts=$("$root/scripts/venv.sh" "$root/tests/parity/requirements-experts.txt")
arguments=("$root/target/release/annulus" "$(cache_folder)/models/$DEFAULT_MODEL" "$(cache_folder)/parity")
"$python" "$root/tests/parity/parity.py" "${arguments[@]}"
"$experts" "$root/tests/parity/parity.py" --experts "${arguments[@]}"
"$python" "$root/tests/parity/kv.py" "${arguments[@]}"
