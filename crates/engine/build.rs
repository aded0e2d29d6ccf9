//! Makes the linker remember where libmlx lies, for this package's own tests and for those that link it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(lib) = std::env::var("DEP_MLX_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
        // Dependents read this as DEP_ANNULUS_ENGINE_LIB.
        println!("cargo:lib={lib}");
    }
}
