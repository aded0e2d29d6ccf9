#!/usr/bin/env bash
# Builds dist/annulus-VERSION-OS-ARCH-BACKEND.tar.gz: the binary, MLX beside it, and licences. Run it through env.sh.
source "$(dirname "$0")/common.sh"

backend=${BACKEND:-$(default_backend)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
mlx=${ANNULUS_MLX_DIR:-$(cache_folder)/mlx-$MLX_VERSION-$backend/mlx}
name=annulus-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)-$backend
stage=$root/dist/$name

cd "$root"
# A target folder of its own: the rpath differs from that of a development build.
ANNULUS_DIST=1 cargo build --profile dist --locked --package annulus-server --target-dir target/dist
rm -rf "$stage"
mkdir -p "$stage/lib/mlx/lib"
cp target/dist/dist/annulus "$stage/"
cp -R "$mlx"/lib/*mlx* "$stage/lib/mlx/lib/"
for libraries in "$mlx"/../mlx_*.libs; do
  if [ -d "$libraries" ]; then cp -R "$libraries" "$stage/lib/"; fi
done
if [ "$(uname -s)" = Darwin ]; then cp -R "$mlx"/lib/*.dylib "$stage/lib/mlx/lib/"; fi
cp README.md LICENSE-MIT LICENSE-APACHE THIRD-PARTY.md "$stage/"
tar -C dist -czf "dist/$name.tar.gz" "$name"
say "dist/$name.tar.gz"
