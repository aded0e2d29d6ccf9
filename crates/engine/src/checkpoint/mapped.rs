//! Files mapped into memory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;

use super::LoadError;

/// A file whose bytes are read through the page cache: opening costs nothing, and pages nobody reads take no memory.
///
/// It is shared by [`Arc`](std::sync::Arc): whoever aliases its bytes, as an array without a copy does, keeps it alive.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Mmap,
    modified: u64,
}

impl MappedFile {
    /// Maps a file for reading.
    ///
    /// # Errors
    /// When it is not a regular file that can be read.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let error = |source| LoadError::io(path, source);
        let file = File::open(path).map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        if !metadata.is_file() {
            return Err(LoadError::damaged(path, "a file was expected, this is a folder or a device"));
        }
        // SAFETY: the map is read-only and private to us. A file that another process truncates meanwhile ends the
        // program with SIGBUS, and one it overwrites changes weights under us; a checkpoint that is being served is not
        // written to, as every program that maps weights assumes.
        let map = unsafe { Mmap::map(&file) }.map_err(error)?;
        let modified = metadata
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            .map_or(0, |since| since.as_secs());
        Ok(Self { path: path.to_owned(), map, modified })
    }

    /// Where the file lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its content. The first byte lies on a page boundary.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Lets go of the memory behind some of its bytes, which were read and will hardly be read again; if they are, the
    /// system reads them anew.
    pub fn release(&self, bytes: &[u8]) {
        #[cfg(unix)]
        if let Some(from) = bytes.as_ptr().addr().checked_sub(self.map.as_ptr().addr()) {
            // SAFETY: of a read-only map of a file no page holds anything that the file does not. A refusal changes nothing.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, bytes.len()) };
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// When it was last written, in seconds since 1970; 0 when the file system does not say.
    #[must_use]
    pub fn modified(&self) -> u64 {
        self.modified
    }
}
