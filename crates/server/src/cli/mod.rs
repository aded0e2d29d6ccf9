//! The command line: one file per command.
//!
//! Every flag can also be given as an environment variable, `ANNULUS_` and its name.

mod bench;
mod chat;
mod doctor;
mod generate;
mod list;
mod log;
mod logits;
mod memory;
mod model;
mod perplexity;
mod plan;
mod sampling;
mod serve;
mod session;

use std::error::Error;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Commands fail in many ways, and all that happens to an error is that a person reads it.
type Failure = Box<dyn Error + Send + Sync>;

/// Serves language models with MLX over OpenAI's HTTP interface.
#[derive(Debug, Parser)]
#[command(name = "annulus", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    log: log::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a model over HTTP.
    Serve(serve::Args),
    /// Answer one prompt.
    Generate(generate::Args),
    /// Talk with a model.
    Chat(chat::Args),
    /// Write the logits of every position of a list of tokens to a file.
    Logits(logits::Args),
    /// Measure how well a model foretells a text, and what another way of keeping its cache changes.
    Perplexity(perplexity::Args),
    /// Measure prefill and decode at lengths and batch sizes.
    Bench(bench::Args),
    /// Show what this machine offers and what is missing.
    Doctor(doctor::Args),
    /// List the models that are here.
    List(list::Args),
    /// Work on cache plans, without a model.
    Plan(plan::Args),
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start(&cli.log);
    match run(cli.command) {
        Ok(status) => status,
        // Whoever reads our output has seen enough, as `head` has.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => serve::run(args)?,
        Command::Generate(args) => generate::run(&args)?,
        Command::Chat(args) => chat::run(&args)?,
        Command::Logits(args) => logits::run(&args)?,
        Command::Perplexity(args) => perplexity::run(&args)?,
        Command::Bench(args) => bench::run(&args)?,
        Command::List(args) => list::run(&args)?,
        // Their outcome is more than done or failed.
        Command::Doctor(args) => return doctor::run(&args),
        Command::Plan(args) => return Ok(plan::run(&args)),
    }
    Ok(ExitCode::SUCCESS)
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Calls `visit` with every command and what leads to it.
    fn walk(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, &clap::Command)) {
        let path = format!("{path} {}", command.get_name());
        visit(&path, command);
        for command in command.get_subcommands() {
            walk(command, &path, visit);
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_variable_and_a_help() {
        let mut seen = 0;
        walk(&Cli::command(), "", &mut |path, command| {
            for arg in command.get_arguments() {
                let name = arg.get_id().as_str();
                let variable = arg.get_env().and_then(|variable| variable.to_str());
                assert_eq!(variable, Some(&*format!("ANNULUS_{}", name.to_uppercase())), "{path} {name}");
                assert!(arg.get_help().is_some(), "{path} {name}");
                seen += 1;
            }
        });
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn ranges_are_those_of_the_server() {
        let parse = |flag: &str, value: &str| {
            Cli::try_parse_from(["annulus", "generate", "--prompt", "hi", &format!("--{flag}={value}")]).is_ok()
        };
        for (flag, good, bad) in [
            ("temperature", ["0", "2"], ["-0.1", "2.1"]),
            ("top-p", ["0.1", "1"], ["0", "1.1"]),
            ("min-p", ["0", "0.9"], ["-0.1", "1"]),
            ("top-k", ["0", "50"], ["-1", "1.5"]),
            ("seed", ["0", "7"], ["x", "1.5"]),
        ] {
            assert!(good.iter().all(|value| parse(flag, value)), "{flag}");
            assert!(!bad.iter().any(|value| parse(flag, value)), "{flag}");
        }
    }
}
