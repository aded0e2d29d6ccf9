//! `annulus doctor`: what this machine offers and what is missing.

use super::Failure;

/// The flags of `annulus doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// Runs the command.
pub(super) fn run(_args: &Args) -> Result<(), Failure> {
    Err("no engine yet".into())
}
