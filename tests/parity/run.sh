#!/usr/bin/env bash
# Compares Annulus with mlx-lm 0.32.2 over MLX 0.32.2, in an environment of its own. Run it through scripts/env.sh.
source "$(dirname "$0")/../../scripts/common.sh"

python=$("$root/scripts/venv.sh" "$root/tests/parity/requirements.txt")
"$python" "$root/tests/parity/parity.py" "$root/target/release/annulus" "$(cache_folder)/models/$DEFAULT_MODEL" \
  "$(cache_folder)/parity"
