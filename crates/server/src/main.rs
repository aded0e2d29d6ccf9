//! The command `annulus`; see `annulus_server::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    annulus_server::cli::main()
}
