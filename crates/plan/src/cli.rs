//! The commands `replay` and `explain`, for every binary that offers them.
//!
//! The crate touches no file: the caller says how a file is read and where text goes.

use crate::replay::{replay_each, to_line};

/// How the commands are called.
pub const USAGE: &str = "usage: replay FILE|-    one line of JSON a scenario
       explain FILE|-   the same for a person";

/// What a command needs of the world.
pub trait World {
    /// Reads a whole file; `-` is standard input.
    fn read(&mut self, path: &str) -> Result<String, String>;
    /// Writes to standard output. An error means that nobody reads any more.
    fn print(&mut self, text: &str) -> Result<(), String>;
    /// Writes to standard error.
    fn complain(&mut self, text: &str);
}

/// Runs `replay FILE` or `explain FILE` and returns the exit status: 0 when every line was a scenario that ran to its end, 1
/// when any gave an error, 2 when the file could not be read or the command is none.
pub fn run(args: &[&str], world: &mut dyn World) -> u8 {
    let (explain, path) = match args {
        ["replay", path] => (false, *path),
        ["explain", path] => (true, *path),
        _ => {
            world.complain(USAGE);
            return 2;
        }
    };
    let text = match world.read(path) {
        Ok(text) => text,
        Err(error) => {
            world.complain(&format!("{path}: {error}"));
            return 2;
        }
    };
    let mut alive = true;
    let mut write = |text: &str| alive = alive && world.print(text).is_ok();
    let ran = if explain {
        let (text, ran) = crate::explain(&text);
        write(&text);
        ran
    } else {
        replay_each(&text, |outcome| write(&(to_line(outcome) + "\n")))
    };
    u8::from(!ran)
}
