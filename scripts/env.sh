#!/usr/bin/env bash
# Runs a command with the environment that building and running need.
# usage: BACKEND=cpu env.sh COMMAND...
source "$(dirname "$0")/common.sh"

backend=${BACKEND:-$(default_backend)}
cache=$(cache_folder)
mlx=$cache/mlx-$MLX_VERSION-$backend

if [ -z "${LIBCLANG_PATH:-}" ]; then
  LIBCLANG_PATH=$(dirname "$(find "$cache/libclang-18.1.1" -name 'libclang.*' -path '*native*' | head -n 1)")
  export LIBCLANG_PATH
fi
# The build finds the default backend by itself: an editor and this script then build the same.
if [[ $backend = cuda* ]]; then
  export ANNULUS_MLX_DIR=${ANNULUS_MLX_DIR:-$mlx/mlx}
  libraries=$(printf '%s:' "$mlx/mlx/lib" "$mlx"/nvidia/*/lib)
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:-}
fi
exec "$@"
