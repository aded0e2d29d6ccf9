//! `annulus list`: the models that are here.

use super::Failure;

/// The flags of `annulus list`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// Runs the command.
pub(super) fn run(_args: &Args) -> Result<(), Failure> {
    Err("no engine yet".into())
}
