//! Models in several GGUF files, as llama.cpp's `gguf-split` writes them: `NAME-00001-of-00003.gguf` and so on. The first
//! holds all metadata; each has a header of its own for its tensors.

use std::path::{Path, PathBuf};

use super::Header;
use crate::checkpoint::LoadError;

/// The name of one of several files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardName<'a> {
    /// What comes before the numbers: the model's name.
    pub stem: &'a str,
    /// Which file it is, from 1 on.
    pub number: u64,
    /// How many there are.
    pub count: u64,
}

impl<'a> ShardName<'a> {
    /// Reads `NAME-00002-of-00003.gguf`; `None` for any other name.
    #[must_use]
    pub fn parse(name: &'a str) -> Option<Self> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let five_digits = |text: &str| {
            let are_digits = text.len() == 5 && text.bytes().all(|digit| digit.is_ascii_digit());
            are_digits.then(|| text.parse().ok()).flatten()
        };
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then_some(Self { stem, number, count })
    }

    /// The name of another one of the files.
    #[must_use]
    pub fn sibling(&self, number: u64) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count)
    }
}

/// The place of a file among several, as its metadata has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    /// From 0 on.
    number: u64,
    count: u64,
}

impl Split {
    /// `None` for a file that is whole.
    fn of(header: &Header) -> Result<Option<Self>, LoadError> {
        let fields = header.fields();
        let count = fields.unsigned("split.count")?.unwrap_or(1);
        let number = fields.unsigned("split.no")?.unwrap_or(0);
        Ok((count > 1).then_some(Self { number, count }))
    }
}

/// Opens all files of the model that one of them belongs to, the first one first.
pub(super) fn open(path: &Path) -> Result<Vec<Header>, LoadError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let shard = ShardName::parse(name);
    if let Some(shard) = shard.filter(|_| !path.exists()) {
        // A folder that holds only some of the files leads here.
        siblings(path, shard)?;
    }
    let given = Header::open(path)?;
    let Some(split) = Split::of(&given)? else {
        return Ok(vec![given]);
    };
    let Some(shard) = shard.filter(|shard| (shard.number - 1, shard.count) == (split.number, split.count)) else {
        let (number, count) = (split.number.saturating_add(1), split.count);
        let problem = format!(
            "is file {number} of {count} of a model; give all of them their names again, which end in \
             -{number:05}-of-{count:05}.gguf"
        );
        return Err(LoadError::damaged(path, problem));
    };
    let mut headers = Vec::new();
    for (path, number) in siblings(path, shard)?.iter().zip(0..) {
        let header = Header::open(path)?;
        if Split::of(&header)? != Some(Split { number, ..split }) {
            let problem =
                "is by its metadata not the file that its name says; it was renamed, or belongs to another model";
            return Err(LoadError::damaged(path, problem));
        }
        headers.push(header);
    }
    check_count(&headers)?;
    Ok(headers)
}

/// The paths of all files, each of which is there.
fn siblings(path: &Path, shard: ShardName<'_>) -> Result<Vec<PathBuf>, LoadError> {
    let names = (1..=shard.count).map(|number| shard.sibling(number));
    let (there, missing): (Vec<String>, Vec<String>) = names.partition(|name| path.with_file_name(name).is_file());
    if missing.is_empty() {
        return Ok(there.iter().map(|name| path.with_file_name(name)).collect());
    }
    let shown = missing.iter().take(4).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if missing.len() > 4 { format!(" and {} more", missing.len() - 4) } else { String::new() };
    Err(LoadError::Folder {
        folder: path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned(),
        problem: format!(
            "of the {} files of {}, these are missing: {shown}{more}; all must lie in one folder",
            shard.count, shard.stem
        ),
    })
}

/// The first file may say how many tensors there are in all.
fn check_count(headers: &[Header]) -> Result<(), LoadError> {
    let Some(first) = headers.first() else {
        return Ok(());
    };
    let key = "split.tensors.count";
    let found: usize = headers.iter().map(|header| header.tensors.len()).sum();
    match first.fields().unsigned(key)? {
        Some(claimed) if usize::try_from(claimed).ok() != Some(found) => {
            let problem = format!("is {claimed}, but the files hold {found} tensors; they are not all of one model");
            Err(LoadError::field(first.file.path(), key, problem))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        let shard = ShardName::parse("a-b-00002-of-00013.gguf").unwrap();
        assert_eq!(shard, ShardName { stem: "a-b", number: 2, count: 13 });
        assert_eq!(shard.sibling(2), "a-b-00002-of-00013.gguf");
        for other in [
            "a.gguf",
            "a-00002-of-00013.safetensors",
            "a-2-of-13.gguf",
            "a-00000-of-00002.gguf",
            "a-00003-of-00002.gguf",
            "a-+0001-of-00002.gguf",
            "00001-of-00002.gguf",
        ] {
            assert_eq!(ShardName::parse(other), None, "{other}");
        }
    }
}
