//! GGUF files: metadata and tensors in one file, made for llama.cpp.
//!
//! The reader is our own. The crates that read GGUF trust the file: a claimed count becomes an allocation, a number
//! becomes an enum by transmutation, an encoding they do not know becomes a panic.

mod architecture;
mod block;
mod gemma3;
mod groups;
mod llama;
mod qwen3;
mod reader;
mod shards;
mod tensors;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(super) use architecture::{Rows, Source, Values};
pub use block::{Encoding, Layout, Packed, Target};
pub use shards::ShardName;

use super::{Config, LoadError, MappedFile};
use reader::{Cursor, Fields, Metadata};

/// A GGUF file, mapped, with its header read and every tensor's place checked; or several that hold one model together.
#[derive(Debug)]
pub struct GgufFile {
    /// The first one holds the metadata.
    files: Vec<Arc<MappedFile>>,
    metadata: Metadata,
    tensors: BTreeMap<String, GgufTensor>,
}

/// A tensor as the file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufTensor {
    /// The shape, slowest axis first (the file has it the other way round). No axis is 0 and there is at least one.
    pub shape: Vec<usize>,
    /// How its numbers are stored.
    pub encoding: Encoding,
    /// In which of the model's files it lies, from 0 on.
    pub shard: usize,
    /// Where its bytes begin in that file.
    pub offset: usize,
    /// How many bytes there are.
    pub len: usize,
}

/// One file, mapped, with its header read.
struct Header {
    file: MappedFile,
    metadata: Metadata,
    tensors: BTreeMap<String, GgufTensor>,
}

impl Header {
    fn open(path: &Path) -> Result<Self, LoadError> {
        let file = MappedFile::open(path)?;
        let damaged = |problem| LoadError::damaged(path, problem);
        let mut cursor = Cursor::new(file.bytes());
        check_version(&mut cursor).map_err(damaged)?;
        let tensor_count = cursor.u64("the number of tensors").map_err(damaged)?;
        let pair_count = cursor.u64("the number of metadata pairs").map_err(damaged)?;
        let metadata = reader::read_metadata(&mut cursor, pair_count).map_err(damaged)?;
        let described: Vec<Described<'_>> = (0..tensor_count)
            .map(|index| Described::read(&mut cursor, index, tensor_count))
            .collect::<Result<_, _>>()
            .map_err(damaged)?;
        let fields = Fields { file: path, bytes: file.bytes(), metadata: &metadata };
        let alignment = alignment(fields)?;
        let data = cursor.at().next_multiple_of(alignment);
        let mut tensors = BTreeMap::new();
        for tensor in described {
            let place = tensor
                .place(data, alignment, file.bytes().len())
                .map_err(|problem| LoadError::tensor(path, tensor.name, problem))?;
            if tensors.insert(tensor.name.to_owned(), place).is_some() {
                return Err(LoadError::tensor(path, tensor.name, "is described twice"));
            }
        }
        check_overlaps(path, &tensors)?;
        Ok(Self { file, metadata, tensors })
    }

    fn fields(&self) -> Fields<'_> {
        Fields { file: self.file.path(), bytes: self.file.bytes(), metadata: &self.metadata }
    }
}

impl GgufFile {
    /// Maps a file and reads its header; with it the others, when it is one of several of a model.
    ///
    /// # Errors
    /// When it is no GGUF file of version 2 or 3, is damaged, or holds encodings that are not supported, and when one of
    /// several files is missing or belongs to another model.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let mut files: Vec<Arc<MappedFile>> = Vec::new();
        let (mut metadata, mut tensors) = (Metadata::new(), BTreeMap::new());
        for (shard, header) in shards::open(path)?.into_iter().enumerate() {
            for (name, tensor) in header.tensors {
                if let Some(other) = tensors.insert(name.clone(), GgufTensor { shard, ..tensor }) {
                    let problem = format!("lies in {} too", files[other.shard].path().display());
                    return Err(LoadError::tensor(header.file.path(), &name, problem));
                }
            }
            if shard == 0 {
                metadata = header.metadata;
            }
            files.push(Arc::new(header.file));
        }
        Ok(Self { files, metadata, tensors })
    }

    /// The mapped file; of several, the first.
    #[must_use]
    pub fn file(&self) -> &Arc<MappedFile> {
        // `open` makes no model without a file.
        &self.files[0]
    }

    /// All files of the model.
    #[must_use]
    pub fn files(&self) -> &[Arc<MappedFile>] {
        &self.files
    }

    /// The tensors by their names in the file.
    #[must_use]
    pub fn tensors(&self) -> &BTreeMap<String, GgufTensor> {
        &self.tensors
    }

    /// The file that holds a tensor.
    fn shard(&self, tensor: &GgufTensor) -> &Arc<MappedFile> {
        &self.files[tensor.shard]
    }

    /// The bytes of one of its tensors.
    fn bytes(&self, tensor: &GgufTensor) -> &[u8] {
        // `open` has checked that they lie in the file.
        self.shard(tensor).bytes().get(tensor.offset..tensor.offset + tensor.len).unwrap_or(&[])
    }

    fn fields(&self) -> Fields<'_> {
        Fields { file: self.file().path(), bytes: self.file().bytes(), metadata: &self.metadata }
    }

    /// The config that the metadata amounts to, and where each tensor of the Hugging Face layout comes from.
    pub(super) fn interpret(&self) -> Result<(Config, BTreeMap<String, Source>), LoadError> {
        architecture::interpret(self)
    }

    /// A metadata string.
    ///
    /// # Errors
    /// When the value is of another type.
    pub fn string(&self, key: &str) -> Result<Option<&str>, LoadError> {
        self.fields().string(key)
    }

    /// A metadata flag.
    ///
    /// # Errors
    /// When the value is of another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.fields().bool(key)
    }

    /// A token id in the metadata.
    ///
    /// # Errors
    /// When the value is no whole number below 2^32.
    pub fn token_id(&self, key: &str) -> Result<Option<u32>, LoadError> {
        let Some(value) = self.fields().unsigned(key)? else {
            return Ok(None);
        };
        u32::try_from(value)
            .map(Some)
            .map_err(|_| LoadError::field(self.file().path(), key, format!("must be a token id, found {value}")))
    }

    /// An array of strings in the metadata.
    ///
    /// # Errors
    /// When the value is of another type.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, LoadError> {
        self.fields().strings(key)
    }

    /// An array of float32 numbers in the metadata.
    ///
    /// # Errors
    /// When the value is of another type.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, LoadError> {
        self.fields().floats(key)
    }

    /// An array of 32-bit integers in the metadata.
    ///
    /// # Errors
    /// When the value is of another type, or one of them is negative.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<u32>>, LoadError> {
        self.fields().integers(key)
    }
}

/// Reads magic and version.
fn check_version(cursor: &mut Cursor<'_>) -> Result<(), String> {
    let magic = cursor.u32("the magic number")?.to_le_bytes();
    if magic != *b"GGUF" {
        return Err(format!("begins with \"{}\" and not with \"GGUF\"; it is no GGUF file", magic.escape_ascii()));
    }
    match cursor.u32("the version")? {
        2 | 3 => Ok(()),
        1 => Err("is of GGUF version 1, which was given up in 2023; versions 2 and 3 can be read, convert it again"
            .to_owned()),
        other if matches!(other.swap_bytes(), 1..=3) => {
            Err("is a big-endian GGUF file; only little-endian ones can be read, convert it again".to_owned())
        }
        other => Err(format!("is of GGUF version {other}; versions 2 and 3 can be read")),
    }
}

/// The boundary that tensors begin on.
fn alignment(fields: Fields<'_>) -> Result<usize, LoadError> {
    let key = "general.alignment";
    match fields.unsigned(key)? {
        None => Ok(32),
        Some(value @ 1..=0x1_0000) if value.is_power_of_two() => Ok(usize::try_from(value).unwrap_or(32)),
        Some(value) => {
            let problem = format!("must be a power of two up to 65536, found {value}");
            Err(LoadError::field(fields.file, key, problem))
        }
    }
}

/// A tensor's entry in the header, not yet believed.
struct Described<'a> {
    name: &'a str,
    /// Fastest axis first, as in the file.
    dims: Vec<u64>,
    encoding: u32,
    offset: u64,
}

impl<'a> Described<'a> {
    fn read(cursor: &mut Cursor<'a>, index: u64, count: u64) -> Result<Self, String> {
        let name = cursor.string(&format!("the name of tensor {index} of {count}"))?;
        let what = format!("the description of tensor {name:?}");
        let dims = match cursor.u32(&what)? {
            axes @ 1..=4 => (0..axes).map(|_| cursor.u64(&what)).collect::<Result<_, _>>()?,
            axes => return Err(format!("tensor {name:?} has {axes} axes; there are 1 to 4")),
        };
        Ok(Self { name, dims, encoding: cursor.u32(&what)?, offset: cursor.u64(&what)? })
    }

    /// Checks the entry against the file: `data` is where the tensors begin.
    fn place(&self, data: usize, alignment: usize, file: usize) -> Result<GgufTensor, String> {
        let encoding = Encoding::from_ggml(self.encoding).map_err(|name| {
            format!(
                "is stored as {name}, which is not supported; supported: {}. A file of the same model named Q4_K_M or Q8_0 \
                 holds nothing else",
                Encoding::SUPPORTED
            )
        })?;
        let shape: Vec<usize> = self
            .dims
            .iter()
            .rev()
            .map(|&dim| usize::try_from(dim).ok().filter(|&dim| dim > 0))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("has shape {:?}; no axis may be 0", self.dims))?;
        let layout = encoding.layout();
        let row = shape.last().copied().unwrap_or(0);
        if row % layout.elements != 0 {
            return Err(format!(
                "has rows of {row} elements, but {encoding:?} stores them in blocks of {}",
                layout.elements
            ));
        }
        let len = shape
            .iter()
            .try_fold(1_usize, |product, &dim| product.checked_mul(dim))
            .and_then(|elements| (elements / layout.elements).checked_mul(layout.bytes))
            .ok_or_else(|| format!("has shape {shape:?}, which is larger than memory can be"))?;
        let offset = usize::try_from(self.offset).ok().filter(|offset| offset % alignment == 0).ok_or_else(|| {
            format!("begins at byte {} of the data, which is no multiple of {alignment}", self.offset)
        })?;
        let start = data.checked_add(offset).filter(|start| start.checked_add(len).is_some_and(|end| end <= file));
        let offset = start.ok_or_else(|| {
            format!(
                "takes {len} bytes from byte {data} + {offset}, but the file has {file}; it is truncated or damaged"
            )
        })?;
        Ok(GgufTensor { shape, encoding, shard: 0, offset, len })
    }
}

fn check_overlaps(path: &Path, tensors: &BTreeMap<String, GgufTensor>) -> Result<(), LoadError> {
    let mut places: Vec<_> = tensors.iter().map(|(name, tensor)| (tensor.offset, tensor.len, name)).collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        if let [(start, len, first), (next, _, second)] = pair
            && start + len > *next
        {
            return Err(LoadError::tensor(path, second, format!("overlaps tensor {first:?}")));
        }
    }
    Ok(())
}
