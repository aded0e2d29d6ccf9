//! `annulus plan`: cache plans, without a model.

use clap::Subcommand;

use super::Failure;

/// The commands on plans.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay scenarios, one a line, and print what each step did.
    Replay {
        /// The file, or `-` for standard input.
        #[arg(env = "ANNULUS_FILE")]
        file: String,
    },
    /// Explain a scenario step by step.
    Explain {
        /// The file, or `-` for standard input.
        #[arg(env = "ANNULUS_FILE")]
        file: String,
    },
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Replay { file } | Command::Explain { file } => Err(format!("no planner yet for {file}").into()),
    }
}
