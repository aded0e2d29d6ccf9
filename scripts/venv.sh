#!/usr/bin/env bash
# Prints the path of a Python that has the packages of a requirements file, and makes it when it is not there yet.
# usage: venv.sh REQUIREMENTS
source "$(dirname "$0")/common.sh"

requirements=$1
folder=$(cache_folder)/venvs/$(sha256 "$requirements" | cut -c1-16)

if [ ! -x "$folder/bin/python" ]; then
  say "installing $(basename "$(dirname "$requirements")")/$(basename "$requirements")"
  rm -rf "$folder" "$folder.new"
  "$(python)" -m venv "$folder.new" 2>/dev/null || {
    need_packages "python3 cannot make environments" python3-venv
    "$(python)" -m venv "$folder.new"
  }
  "$folder.new/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" >&2 \
    || fail "installing $requirements" "pip could not fetch it" "check the network and run again"
  # Scripts inside name the folder they were made in; only `python` is used, which does not.
  mv "$folder.new" "$folder"
fi
echo "$folder/bin/python"
