//! `annulus plan`: cache plans, without a model.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use annulus_plan::cli::{self, World};
use clap::Subcommand;

/// The commands on plans.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay scenarios, one a line, and print what each step did as JSON.
    Replay {
        /// The file, or `-` for standard input.
        #[arg(env = "ANNULUS_FILE")]
        file: String,
    },
    /// Replay scenarios and explain each step to a person.
    Explain {
        /// The file, or `-` for standard input.
        #[arg(env = "ANNULUS_FILE")]
        file: String,
    },
}

/// Runs the command; its exit status is the planner's.
pub(super) fn run(args: &Args) -> ExitCode {
    let args = match &args.command {
        Command::Replay { file } => ["replay", file],
        Command::Explain { file } => ["explain", file],
    };
    cli::run(&args, &mut Process).into()
}

/// The files and streams of this process, which the planner never touches by itself.
struct Process;

impl World for Process {
    fn read(&mut self, path: &str) -> Result<String, String> {
        let text = if path == "-" {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text)
        } else {
            std::fs::read_to_string(path)
        };
        text.map_err(|error| error.to_string())
    }

    fn print(&mut self, text: &str) -> Result<(), String> {
        io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
    }

    fn complain(&mut self, text: &str) {
        eprintln!("error: {text}");
    }
}
