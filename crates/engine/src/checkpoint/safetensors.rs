//! Weights in safetensors files: one, several, or several with an index.
//!
//! The format crate checks what it reads: lengths, overlaps, holes, overflow. Here are the checks it leaves out: names
//! given twice, and agreement between an index and its files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::tensor::TensorInfo;
use safetensors::{SafeTensorError, SafeTensors};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::config::Config;
use super::locate::entries;
use super::tensor::{Dtype, Place, Plain};
use super::{LoadError, MappedFile};

/// The tensors of a folder's safetensors files, mapped.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
    files: Vec<Arc<MappedFile>>,
    tensors: BTreeMap<String, Stored>,
}

/// Where a tensor lies and what it is.
#[derive(Debug)]
struct Stored {
    file: usize,
    dtype: safetensors::Dtype,
    shape: Vec<usize>,
    offset: usize,
    len: usize,
}

impl Weights {
    /// Maps the weights of a folder: the files that `model.safetensors.index.json` names, else all `model*.safetensors`.
    ///
    /// # Errors
    /// When there are none, or a file is damaged or disagrees with the index.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        let index = folder.join("model.safetensors.index.json");
        let mut weights = Self { folder: folder.to_owned(), files: Vec::new(), tensors: BTreeMap::new() };
        if index.is_file() {
            weights.open_indexed(&index)?;
        } else {
            for name in unindexed(folder)? {
                weights.add(&folder.join(name), |_| true)?;
            }
        }
        Ok(weights)
    }

    fn open_indexed(&mut self, index: &Path) -> Result<(), LoadError> {
        let map = read_index(index)?;
        let files: BTreeSet<&String> = map.values().collect();
        for name in files {
            let path = self.folder.join(name);
            if !path.is_file() {
                let tensor = map.iter().find(|(_, file)| *file == name);
                let tensor = tensor.map_or("", |(tensor, _)| tensor);
                let problem = format!(
                    "says that tensor {tensor:?} lies in {name}, but there is no such file; download the model again"
                );
                return Err(LoadError::damaged(index, problem));
            }
            self.add(&path, |tensor| map.get(tensor) == Some(name))?;
        }
        match map.iter().find(|(tensor, _)| !self.tensors.contains_key(*tensor)) {
            Some((tensor, file)) => Err(LoadError::damaged(
                index,
                format!(
                    "says that tensor {tensor:?} lies in {file}, but it is not there; index and file are of different downloads"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Maps one file and takes the tensors that `wanted` names.
    fn add(&mut self, path: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), LoadError> {
        let file = MappedFile::open(path)?;
        let bytes = file.bytes();
        let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| explain(&file, error))?;
        // `read_metadata` has checked that the header ends within the file.
        let data = 8 + header;
        if let Some(name) = bytes.get(8..data).and_then(duplicate_key) {
            return Err(LoadError::tensor(path, &name, "is described twice in the header"));
        }
        // In the order of the file, so that an error names the same tensor each time.
        for name in metadata.offset_keys() {
            let Some(info) = metadata.info(&name).filter(|_| wanted(&name)) else {
                continue;
            };
            let (start, end) = info.data_offsets;
            let stored = Stored {
                file: self.files.len(),
                dtype: info.dtype,
                shape: info.shape.clone(),
                offset: data + start,
                len: end - start,
            };
            if let Some(other) = self.tensors.get(&name) {
                let other = self.files[other.file].path().display();
                return Err(LoadError::tensor(path, &name, format!("lies in {other} too")));
            }
            self.tensors.insert(name, stored);
        }
        self.files.push(Arc::new(file));
        Ok(())
    }

    /// The files, in the order they were read.
    #[must_use]
    pub fn files(&self) -> &[Arc<MappedFile>] {
        &self.files
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The file that holds a tensor, for errors; the folder when none does.
    #[must_use]
    pub fn file_of(&self, name: &str) -> &Path {
        self.tensors.get(name).map_or(&self.folder, |stored| self.files[stored.file].path())
    }

    /// A tensor as it is stored.
    ///
    /// # Errors
    /// When there is none of this name, or its type is not one of [`Dtype`].
    pub fn tensor(&self, name: &str) -> Result<Plain<'_>, LoadError> {
        let stored = self.tensors.get(name).ok_or_else(|| LoadError::MissingTensor {
            file: self.folder.clone(),
            tensor: name.to_owned(),
            hint: String::new(),
        })?;
        let file = &self.files[stored.file];
        let dtype = dtype(stored.dtype).ok_or_else(|| {
            let problem = format!("is of type {}, which is not supported", stored.dtype);
            LoadError::tensor(file.path(), name, problem)
        })?;
        let bytes = file.bytes().get(stored.offset..stored.offset + stored.len);
        let bytes = bytes.ok_or_else(|| LoadError::tensor(file.path(), name, "ends beyond the file"))?;
        Ok(Plain {
            dtype,
            shape: stored.shape.clone(),
            bytes: Cow::Borrowed(bytes),
            place: Some(Place { file, offset: stored.offset }),
        })
    }
}

/// The safetensors files of a folder without an index: by mlx-lm's rule, those whose name begins with `model`.
fn unindexed(folder: &Path) -> Result<Vec<String>, LoadError> {
    let all: Vec<String> =
        entries(folder).into_iter().map(|(name, _)| name).filter(|name| name.ends_with(".safetensors")).collect();
    let named: Vec<String> = all.iter().filter(|name| name.starts_with("model")).cloned().collect();
    match (named.is_empty(), all.as_slice()) {
        (false, _) => Ok(named),
        (true, [_]) => Ok(all),
        (true, _) => Err(LoadError::Folder {
            folder: folder.to_owned(),
            problem:
                "there are no weights: model.safetensors, or model.safetensors.index.json with the files it names, \
                      was expected"
                    .to_owned(),
        }),
    }
}

/// The `weight_map` of an index: tensor to file.
fn read_index(index: &Path) -> Result<BTreeMap<String, String>, LoadError> {
    let config = Config::read(index)?;
    let section = config.section("weight_map")?.ok_or_else(|| config.error("weight_map", "is missing"))?;
    let mut map = BTreeMap::new();
    for tensor in section.fields().keys() {
        let file: String = section.required(tensor)?;
        // A name with a path in it could lead to any file of this machine.
        if file.contains(['/', '\\']) || !file.ends_with(".safetensors") {
            return Err(section.error(tensor, format!("must be a .safetensors file beside the index, found {file:?}")));
        }
        map.insert(tensor.clone(), file);
    }
    if map.is_empty() {
        return Err(config.error("weight_map", "names no tensor"));
    }
    Ok(map)
}

/// An error of the format crate, with what it expected of this file.
fn explain(file: &MappedFile, error: SafeTensorError) -> LoadError {
    use SafeTensorError as E;
    let len = file.bytes().len();
    let claimed = file.bytes().first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let problem = match error {
        E::InvalidOffset(tensor) => {
            let problem = "does not begin where the one before it ends: tensors overlap or leave a hole";
            return LoadError::tensor(file.path(), &tensor, problem);
        }
        E::TensorInvalidInfo | E::ValidationOverflow | E::MetadataIncompleteBuffer => {
            if let Some((tensor, problem)) = culprit(file.bytes(), claimed) {
                return LoadError::tensor(file.path(), &tensor, problem);
            }
            format!("has {len} bytes, which is not where its last tensor ends; download it again")
        }
        E::HeaderTooSmall => format!("has {len} bytes; a safetensors file has at least 8"),
        E::HeaderTooLarge => {
            format!("claims a header of {claimed} bytes; at most 100000000 are allowed, so this is no safetensors file")
        }
        E::InvalidHeaderLength => {
            format!("claims a header of {claimed} bytes, but has {len} in all; it is truncated or no safetensors file")
        }
        E::InvalidHeader(error) => format!("has a header that is not UTF-8: {error}"),
        E::InvalidHeaderDeserialization(error) => {
            format!("has a header that is not what safetensors defines: {error}")
        }
        other => other.to_string(),
    };
    LoadError::damaged(file.path(), problem)
}

/// The first tensor of a refused header whose bytes do not fit its shape, or end beyond the file, and how.
fn culprit(file: &[u8], header: u64) -> Option<(String, String)> {
    let data = usize::try_from(header).ok()?.checked_add(8)?;
    let header: BTreeMap<String, serde_json::Value> = serde_json::from_slice(file.get(8..data)?).ok()?;
    let available = file.len() - data;
    header.into_iter().find_map(|(name, value)| {
        let info: TensorInfo = serde_json::from_value(value).ok()?;
        let (start, end) = info.data_offsets;
        let bits = info.shape.iter().try_fold(info.dtype.bitsize(), |bits, &dim| bits.checked_mul(dim));
        let problem = match bits {
            None => format!("has shape {:?}, which is larger than memory can be", info.shape),
            Some(bits) if end.checked_sub(start) != Some(bits / 8) => format!(
                "lies at bytes {start} to {end}, but {} of shape {:?} takes {} bytes",
                info.dtype,
                info.shape,
                bits / 8
            ),
            Some(_) if end > available => format!(
                "ends at byte {end} of the data, but the file holds {available}; it is truncated, download it again"
            ),
            Some(_) => return None,
        };
        Some((name, problem))
    })
}

/// The first key that a JSON object holds twice, at its top level. Parsers keep the last and drop the others silently.
fn duplicate_key(json: &[u8]) -> Option<String> {
    /// Drains the whole object, as a deserializer demands, and remembers the first key seen before.
    struct Duplicate;
    impl<'de> Visitor<'de> for Duplicate {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut seen = HashSet::new();
            let mut duplicate = None;
            while let Some((key, IgnoredAny)) = map.next_entry::<String, _>()? {
                if let Some(key) = seen.replace(key) {
                    duplicate.get_or_insert(key);
                }
            }
            Ok(duplicate)
        }
    }
    serde_json::Deserializer::from_slice(json).deserialize_map(Duplicate).unwrap_or(None)
}

fn dtype(dtype: safetensors::Dtype) -> Option<Dtype> {
    use safetensors::Dtype as Stored;
    Some(match dtype {
        Stored::BOOL => Dtype::Bool,
        Stored::U8 => Dtype::U8,
        Stored::I8 => Dtype::I8,
        Stored::U16 => Dtype::U16,
        Stored::I16 => Dtype::I16,
        Stored::U32 => Dtype::U32,
        Stored::I32 => Dtype::I32,
        Stored::U64 => Dtype::U64,
        Stored::I64 => Dtype::I64,
        Stored::F16 => Dtype::F16,
        Stored::BF16 => Dtype::BF16,
        Stored::F32 => Dtype::F32,
        Stored::F64 => Dtype::F64,
        _ => return None,
    })
}
