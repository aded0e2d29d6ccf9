//! Where the log goes and what is in it.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// The flags of the log, which every command has.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to log: error, warn, info, debug, trace or off, also by part, as in `info,annulus::access=off`.
    #[arg(long, global = true, env = "ANNULUS_LOG_LEVEL", default_value = "info")]
    log_level: Targets,
    /// How to write the log, to standard error.
    #[arg(long, global = true, env = "ANNULUS_LOG_FORMAT", value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log. Standard output belongs to the commands, so it goes to standard error.
pub(super) fn start(args: &Args) {
    let registry = tracing_subscriber::registry().with(args.log_level.clone());
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    match args.log_format {
        Format::Text => registry.with(lines.with_target(false)).init(),
        Format::Json => registry.with(lines.json().flatten_event(true)).init(),
    }
}
