#!/usr/bin/env bash
# Runs a command with the environment that building and running need.
# usage: BACKEND=cpu env.sh COMMAND...
source "$(dirname "$0")/common.sh"

backend=${BACKEND:-$(default_backend)}
cache=$(cache_folder)
mlx=$cache/mlx-$MLX_VERSION-$backend

export LIBCLANG_PATH=${LIBCLANG_PATH:-$cache/libclang-18.1.1/clang/native}
export ANNULUS_MLX_DIR=${ANNULUS_MLX_DIR:-$mlx/mlx}
if [[ $backend = cuda* ]]; then
  libraries=$(printf '%s:' "$mlx/mlx/lib" "$mlx"/nvidia/*/lib)
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:-}
fi
exec "$@"
