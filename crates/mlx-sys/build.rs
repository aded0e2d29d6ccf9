//! Finds an installed MLX, compiles mlx-c and the glue against it, and generates the bindings.
//!
//! MLX comes from its own wheel (`make setup` fetches it): headers in `include`, the library in `lib`. The sources of
//! mlx-c come with the registry's own mlx-sys package, which `upstream/Cargo.toml` names.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release of MLX that mlx-c 0.7.0 targets.
const MLX_VERSION: &str = "0.32.2";

fn main() {
    println!("cargo:rerun-if-changed=glue");
    println!("cargo:rerun-if-changed=upstream/Cargo.toml");
    let mlx = Mlx::find().unwrap_or_else(|message| fail(&message));
    let mlx_c = mlx_c_root().unwrap_or_else(|message| fail(&message));
    compile(&mlx, &mlx_c);
    generate_bindings(&mlx_c);
    mlx.link();
}

/// Ends the build with a message for a person.
fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo:warning={line}");
    }
    eprintln!("{message}");
    std::process::exit(1);
}

/// An unpacked MLX wheel: the folder `mlx` in it.
struct Mlx {
    root: PathBuf,
}

impl Mlx {
    fn find() -> Result<Self, String> {
        println!("cargo:rerun-if-env-changed=ANNULUS_MLX_DIR");
        println!("cargo:rerun-if-env-changed=ANNULUS_HOME");
        let candidates = match env::var_os("ANNULUS_MLX_DIR") {
            Some(dir) => vec![PathBuf::from(dir)],
            None => default_folders(),
        };
        for root in &candidates {
            if root.join("include/mlx/version.h").is_file() {
                let mlx = Self { root: root.clone() };
                mlx.check_version()?;
                return Ok(mlx);
            }
        }
        let tried: Vec<_> = candidates.iter().map(|dir| format!("  {}", dir.display())).collect();
        Err(format!(
            "MLX {MLX_VERSION} was not found. Looked in:\n{}\nRun `make setup`, or set ANNULUS_MLX_DIR to the `mlx` \
             folder of an unpacked mlx-cpu, mlx-metal, mlx-cuda-12 or mlx-cuda-13 wheel.",
            tried.join("\n")
        ))
    }

    fn check_version(&self) -> Result<(), String> {
        let header = self.root.join("include/mlx/version.h");
        println!("cargo:rerun-if-changed={}", header.display());
        let text = std::fs::read_to_string(&header).map_err(|error| format!("{}: {error}", header.display()))?;
        let number = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix("#define")?.trim().strip_prefix(name))
                .map_or("?", str::trim)
                .to_owned()
        };
        let found = ["MLX_VERSION_MAJOR", "MLX_VERSION_MINOR", "MLX_VERSION_PATCH"].map(number).join(".");
        if found == MLX_VERSION {
            Ok(())
        } else {
            Err(format!(
                "{} holds MLX {found}, but Annulus needs {MLX_VERSION}. Run `make setup`, or point ANNULUS_MLX_DIR at \
                 that version.",
                self.root.display()
            ))
        }
    }

    fn link(&self) {
        let lib = self.root.join("lib");
        println!("cargo:rustc-link-search=native={}", lib.display());
        println!("cargo:rustc-link-lib=dylib=mlx");
        // Dependents read this as DEP_MLX_LIB and put it into the rpath of what they link.
        println!("cargo:lib={}", lib.display());
    }
}

/// Where `make setup` puts MLX: one folder a backend, the default one first.
fn default_folders() -> Vec<PathBuf> {
    let Some(cache) = cache_folder() else {
        return Vec::new();
    };
    let backends: &[&str] = if target_os() == "macos" { &["metal"] } else { &["cpu", "cuda13", "cuda12"] };
    backends.iter().map(|backend| cache.join(format!("mlx-{MLX_VERSION}-{backend}/mlx"))).collect()
}

/// The user's cache folder for Annulus, as the engine and the Makefile compute it.
fn cache_folder() -> Option<PathBuf> {
    if let Some(home) = env::var_os("ANNULUS_HOME") {
        return Some(PathBuf::from(home));
    }
    let home = env::var_os("HOME").map(PathBuf::from);
    if target_os() == "macos" {
        return Some(home?.join("Library/Caches/annulus"));
    }
    match env::var_os("XDG_CACHE_HOME") {
        Some(cache) if Path::new(&cache).is_absolute() => Some(PathBuf::from(cache).join("annulus")),
        _ => Some(home?.join(".cache/annulus")),
    }
}

fn target_os() -> String {
    env::var("CARGO_CFG_TARGET_OS").unwrap_or_default()
}

/// The folder of mlx-c inside the registry's mlx-sys package.
fn mlx_c_root() -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--manifest-path", "upstream/Cargo.toml"])
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("The sources of mlx-c could not be fetched:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata printed no JSON: {error}"))?;
    let manifest = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == "mlx-sys")
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or("cargo metadata names no mlx-sys")?;
    let root = Path::new(manifest).with_file_name("src").join("mlx-c");
    if root.join("mlx/c/mlx.h").is_file() { Ok(root) } else { Err(format!("{} holds no mlx-c", root.display())) }
}

/// The files of one folder with one extension, in a fixed order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| fail(&format!("{}: {error}", folder.display())))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    found.sort();
    found
}

fn compile(mlx: &Mlx, mlx_c: &Path) {
    // object.cpp is left out upstream too.
    let sources = files(&mlx_c.join("mlx/c"), "cpp").into_iter().filter(|path| !path.ends_with("object.cpp"));
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .include(mlx_c)
        .include(mlx.root.join("include"))
        .flag("-include")
        .flag("glue/format.h")
        .warnings(false)
        // What MLX's own CMake package passes, and speed in debug builds: this code is not ours to step through.
        .opt_level(2)
        .files(sources)
        .files(files(Path::new("glue"), "cpp"));
    build.compile("mlxc");
}

fn generate_bindings(mlx_c: &Path) {
    let mut builder = bindgen::Builder::default()
        .clang_arg(format!("-I{}", mlx_c.display()))
        .header("glue/annulus.h")
        // Their types trip rustc's lint on runtime symbols.
        .blocklist_function("malloc|realloc")
        .allowlist_item("mlx_.*|_mlx_.*|annulus_.*|__BindgenComplex.*")
        .allowlist_item("float16_t|bfloat16_t")
        .merge_extern_blocks(true);
    for header in files(&mlx_c.join("mlx/c"), "h") {
        builder = builder.header(header.to_string_lossy());
    }
    if let Some(include) = compiler_headers() {
        // A libclang that comes alone, as PyPI's does, has no stddef.h of its own.
        builder = builder.clang_arg("-idirafter").clang_arg(include);
    }
    let bindings = builder.generate().unwrap_or_else(|error| fail(&format!("bindgen: {error}")));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("bindings.rs")).unwrap_or_else(|error| fail(&format!("bindings.rs: {error}")));
}

fn compiler_headers() -> Option<String> {
    let output = Command::new("cc").arg("-print-file-name=include").output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&folder).is_absolute().then_some(folder)
}
