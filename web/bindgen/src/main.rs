//! `annulus-bindgen WASM FOLDER`: writes the ES module and the types for a wasm built from `annulus-web`.
//!
//! The crate behind `wasm-bindgen-cli` is all of that program we need, and a pinned dependency installs like any other.

use wasm_bindgen_cli_support::Bindgen;

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [wasm, folder] = args.as_slice() else {
        eprintln!("usage: annulus-bindgen WASM FOLDER");
        return 2.into();
    };
    match write(wasm, folder) {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("annulus-bindgen: {wasm}: {error:?}");
            1.into()
        }
    }
}

fn write(wasm: &str, folder: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(wasm).out_name("annulus_plan").web(true)?.typescript(true);
    // Names of functions help nobody in a release and are a third of the file.
    bindgen.remove_name_section(true).remove_producers_section(true);
    bindgen.generate(folder)?;
    Ok(())
}
