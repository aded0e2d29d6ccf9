#!/usr/bin/env bash
# Builds dist/annulus-VERSION-OS-ARCH-BACKEND.tar.gz: the binary, MLX beside it, and licences. Run it through env.sh.
source "$(dirname "$0")/common.sh"

backend=${BACKEND:-$(default_backend)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
name=annulus-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)-$backend
stage=$root/dist/$name

cd "$root"
# A target folder of its own: the rpath differs from that of a development build.
ANNULUS_DIST=1 cargo build --profile dist --locked --package annulus-server --target-dir target/dist
rm -rf "$stage"
mkdir -p "$stage/lib/mlx/lib"
cp target/dist/dist/annulus "$stage/"
cp -R "$ANNULUS_MLX_DIR"/lib/*mlx* "$stage/lib/mlx/lib/"
for libraries in "$ANNULUS_MLX_DIR"/../mlx_*.libs; do
  [ -d "$libraries" ] && cp -R "$libraries" "$stage/lib/"
done
[ "$(uname -s)" = Darwin ] && cp -R "$ANNULUS_MLX_DIR"/lib/*.dylib "$stage/lib/mlx/lib/"
cp README.md LICENSE-MIT LICENSE-APACHE THIRD-PARTY.md "$stage/"
tar -C dist -czf "dist/$name.tar.gz" "$name"
say "dist/$name.tar.gz"
