//! A log of what caches do.

use std::fs::File;
use std::io::{self, LineWriter, Write};
use std::path::{Path, PathBuf};

use super::{Heard, Listener};

/// Writes every line to a file, each at once, so that whoever reads it sees the newest.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: LineWriter<File>,
}

impl LogFile {
    /// Begins a file, in place of one that may be there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: LineWriter::new(File::create(path)?) })
    }
}

impl Listener for LogFile {
    fn take(&mut self, line: &str) -> Heard {
        match writeln!(self.file, "{line}") {
            Ok(()) => Heard::Yes,
            // Lines after a missing piece would be worth nothing.
            Err(error) => {
                tracing::error!("the geometry log ends here: cannot write {}: {error}", self.path.display());
                Heard::Gone
            }
        }
    }
}
