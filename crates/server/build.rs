//! Makes the binary find libmlx: beside itself, as `make dist` lays it out, and else where it was linked.

fn main() {
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
