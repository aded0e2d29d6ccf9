//! `annulus-plan`: replays and explains scenarios, without MLX.

use std::io::{Read, Write};

use annulus_plan::cli::{self, World};

struct Process;

impl World for Process {
    fn read(&mut self, path: &str) -> Result<String, String> {
        let mut text = String::new();
        let read = match path {
            "-" => std::io::stdin().read_to_string(&mut text).map(|_| ()),
            _ => std::fs::read_to_string(path).map(|all| text = all),
        };
        read.map(|()| text).map_err(|e| e.to_string())
    }

    fn print(&mut self, text: &str) -> Result<(), String> {
        std::io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())
    }

    fn complain(&mut self, text: &str) {
        eprintln!("annulus-plan: {text}");
    }
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    cli::run(&args, &mut Process).into()
}
