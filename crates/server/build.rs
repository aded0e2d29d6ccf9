//! Makes the binary find libmlx: beside itself, as `make dist` lays it out, and else where it was linked. Has the binary built
//! again when the inspector's page, which is part of it, was.

use std::path::Path;

fn main() {
    // A path that is missing would mean to build every time: while the page is not built, its parent is watched.
    let page = Path::new("../../web/dist");
    let watched = if page.exists() { page } else { Path::new("../../web") };
    println!("cargo:rerun-if-changed={}", watched.display());
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=ANNULUS_DIST");
    let origin = if cfg!(target_os = "macos") { "@executable_path" } else { "$ORIGIN" };
    println!("cargo:rustc-link-arg=-Wl,-rpath,{origin}/lib/mlx/lib");
    // A tarball must not remember a folder of the machine that built it.
    if std::env::var_os("ANNULUS_DIST").is_none()
        && let Ok(lib) = std::env::var("DEP_ANNULUS_ENGINE_LIB")
    {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
