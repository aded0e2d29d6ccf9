//! `annulus list`: the models that are here.

use std::io::{self, Write};

use annulus_engine::checkpoint;

use super::Failure;

/// The flags of `annulus list`; there are none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// Prints a name and a path a line; every command that takes a model takes these names.
pub(super) fn run(_: &Args) -> Result<(), Failure> {
    let found = checkpoint::list();
    if found.is_empty() {
        eprintln!("No models were found; `make setup` fetches the default one.");
    }
    let width = found.iter().map(|model| model.name.len()).max().unwrap_or(0);
    let mut out = io::stdout().lock();
    for model in found {
        writeln!(out, "{:width$}  {}", model.name, model.path.display())?;
    }
    Ok(())
}
