//! Checkpoints: the files a model comes in, read without any tensor library.
//!
//! A checkpoint is a folder in the Hugging Face layout (`config.json`, safetensors) or a `.gguf` file. [`Checkpoint`]
//! shows both as one: tensors by their Hugging Face names, a [`Config`] with the fields of a `config.json`. What is stored
//! in a form that can be used is handed out as it lies in the file, mapped; the rest is converted one tensor at a time.
//!
//! Files are hostile until proven otherwise: every count, offset and shape is checked against the file before it is used,
//! and whatever is wrong ends in a [`LoadError`] that names file, tensor and expectation, never in a panic.
//!
//! # Layout
//! - [`locate`](locate()), [`list()`], [`cache_dir()`]: from a name to a path;
//! - [`Checkpoint`]: both kinds behind one interface; [`TensorData`] is what it hands out;
//! - [`Config`], [`GenerationConfig`]: JSON files read field by field;
//! - [`safetensors`], [`gguf`]: the formats.

mod config;
mod error;
pub mod gguf;
mod locate;
mod mapped;
mod parallel;
mod regroup;
pub mod safetensors;
mod tensor;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use config::{Config, FromField, GenerationConfig, Quantization};
pub use error::LoadError;
pub use locate::{Found, Places, cache_dir, list, locate};
pub use mapped::MappedFile;
pub use regroup::{Loss, SMALLEST_GROUP};
pub use tensor::{Affine, Dtype, Place, Plain, TensorData};

pub use gguf::GgufFile;
use gguf::Source;
use safetensors::Weights;

/// A model's files, opened and checked; no weight has been read yet.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    config: Config,
    generation: GenerationConfig,
    store: Store,
}

#[derive(Debug)]
enum Store {
    Folder(Weights),
    Gguf {
        file: GgufFile,
        /// By the name in the Hugging Face layout.
        sources: BTreeMap<String, Source>,
    },
}

impl Checkpoint {
    /// Opens a folder or a `.gguf` file. A folder without `config.json` but with one `.gguf` file stands for that file.
    ///
    /// # Errors
    /// When something is missing, damaged, or not supported.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        if path.is_file() {
            return Self::open_gguf(path);
        }
        if path.join("config.json").is_file() {
            return Self::open_folder(path);
        }
        let folder = |problem| LoadError::Folder { folder: path.to_owned(), problem };
        if !path.is_dir() {
            return Err(folder("there is no such file or folder".to_owned()));
        }
        match locate::ggufs(path).as_slice() {
            [file] => Self::open_gguf(&path.join(file)),
            [] => Err(folder("there is neither a config.json nor a .gguf file in it".to_owned())),
            several => Err(folder(format!("holds several models; name one of {}", several.join(", ")))),
        }
    }

    fn open_folder(folder: &Path) -> Result<Self, LoadError> {
        let config = Config::read(&folder.join("config.json"))?;
        let generation = folder.join("generation_config.json");
        let generation = if generation.is_file() {
            GenerationConfig::from_config(&Config::read(&generation)?)?
        } else {
            GenerationConfig::default()
        };
        Ok(Self { path: folder.to_owned(), config, generation, store: Store::Folder(Weights::open(folder)?) })
    }

    fn open_gguf(path: &Path) -> Result<Self, LoadError> {
        let file = GgufFile::open(path)?;
        let (config, sources) = file.interpret()?;
        Ok(Self {
            path: path.to_owned(),
            config,
            generation: GenerationConfig::default(),
            store: Store::Gguf { file, sources },
        })
    }

    /// The folder or file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, when this is a GGUF checkpoint: its metadata holds tokenizer and chat template.
    #[must_use]
    pub fn gguf(&self) -> Option<&GgufFile> {
        match &self.store {
            Store::Folder(_) => None,
            Store::Gguf { file, .. } => Some(file),
        }
    }

    /// What `config.json` says; for a GGUF file, what it would say.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What `generation_config.json` recommends; nothing when there is none.
    #[must_use]
    pub fn generation(&self) -> &GenerationConfig {
        &self.generation
    }

    /// Seconds since 1970 at which the newest weights file was written.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.files().map(MappedFile::modified).max().unwrap_or(0)
    }

    /// Bytes of all weights files together.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.files().map(|file| file.bytes().len()).sum()
    }

    /// Lets go of the memory behind all files: what is still used of them is read anew.
    pub fn release(&self) {
        self.files().for_each(|file| file.release(file.bytes()));
    }

    fn files(&self) -> impl Iterator<Item = &MappedFile> {
        let files = match &self.store {
            Store::Folder(weights) => weights.files(),
            Store::Gguf { file, .. } => file.files(),
        };
        files.iter().map(|file| &**file)
    }

    /// The tensors that [`Checkpoint::tensor`] can give, sorted by name. A quantized one appears once, under the name of
    /// its weight.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names: Box<dyn Iterator<Item = &str>> = match &self.store {
            Store::Folder(weights) => Box::new(weights.names()),
            Store::Gguf { sources, .. } => Box::new(sources.keys().map(String::as_str)),
        };
        names.filter(|name| !self.is_companion(name))
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        match &self.store {
            Store::Folder(weights) => weights.has(name),
            Store::Gguf { sources, .. } => sources.contains_key(name),
        }
    }

    /// Whether a stored tensor is the scales or biases of a quantized weight.
    fn is_companion(&self, name: &str) -> bool {
        let Store::Folder(weights) = &self.store else {
            return false;
        };
        name.strip_suffix(".scales")
            .or_else(|| name.strip_suffix(".biases"))
            .is_some_and(|module| weights.has(&format!("{module}.weight")) && weights.has(&format!("{module}.scales")))
    }

    /// A tensor by its name in the Hugging Face layout.
    ///
    /// # Errors
    /// When there is none, when it is damaged or of a type that is not supported, or when its shape is not the expected
    /// one.
    pub fn tensor(&self, name: &str, expected: Option<&[usize]>) -> Result<TensorData<'_>, LoadError> {
        let data = match &self.store {
            Store::Folder(weights) => self.stored_tensor(weights, name)?,
            Store::Gguf { file, sources } => file.tensor(sources.get(name).ok_or_else(|| self.missing(name))?)?,
        };
        match expected {
            Some(expected) if expected != data.shape() => Err(LoadError::Shape {
                file: self.file_of(name).to_owned(),
                tensor: name.to_owned(),
                expected: expected.to_owned(),
                found: data.shape().to_owned(),
            }),
            _ => Ok(data),
        }
    }

    /// The shape of a tensor, and the type of its elements or of its scales, without converting it.
    #[must_use]
    pub fn describe(&self, name: &str) -> Option<(Vec<usize>, Dtype)> {
        if let Store::Gguf { file, sources } = &self.store {
            return file.describe(sources.get(name)?);
        }
        match self.tensor(name, None).ok()? {
            TensorData::Plain(plain) => Some((plain.shape, plain.dtype)),
            TensorData::Affine(affine) => Some((affine.shape, affine.scales.dtype)),
        }
    }

    /// A tensor in float32, whatever its representation, by the plainest means: for tests and reference.
    ///
    /// # Errors
    /// As [`Checkpoint::tensor`], and when the tensor holds no numbers for weights.
    pub fn to_f32(&self, name: &str) -> Result<Vec<f32>, LoadError> {
        if let Store::Gguf { file, sources } = &self.store {
            return file.decode(sources.get(name).ok_or_else(|| self.missing(name))?);
        }
        self.tensor(name, None)?.to_f32().ok_or_else(|| {
            let problem = "holds no numbers of type F32, F16 or BF16";
            LoadError::tensor(self.file_of(name), name, problem)
        })
    }

    fn file_of(&self, name: &str) -> &Path {
        match &self.store {
            Store::Folder(weights) => weights.file_of(name),
            Store::Gguf { file, sources } => {
                sources.get(name).map_or_else(|| file.file().path(), |source| file.file_of(source))
            }
        }
    }

    /// The error of a tensor that is not there.
    pub(crate) fn missing(&self, name: &str) -> LoadError {
        let last = name.rsplit('.').take(2).last();
        let near: Vec<&str> =
            self.names().filter(|other| last.is_some_and(|last| other.contains(last))).take(3).collect();
        LoadError::MissingTensor {
            file: self.path.clone(),
            tensor: name.to_owned(),
            hint: if near.is_empty() {
                "; the weights are not those of this config's model".to_owned()
            } else {
                format!("; names that come near: {}", near.join(", "))
            },
        }
    }

    fn stored_tensor<'a>(&self, weights: &'a Weights, name: &str) -> Result<TensorData<'a>, LoadError> {
        if !weights.has(name) {
            return Err(self.missing(name));
        }
        let module = name.strip_suffix(".weight");
        match module.filter(|module| weights.has(&format!("{module}.scales"))) {
            Some(module) => self.stored_affine(weights, module).map(TensorData::Affine),
            None => weights.tensor(name).map(TensorData::Plain),
        }
    }

    /// A triple of packed integers, scales and biases, with all that follows from the one checked against the other.
    fn stored_affine<'a>(&self, weights: &'a Weights, module: &str) -> Result<Affine<'a>, LoadError> {
        let name = format!("{module}.weight");
        let wrong = |problem: String| LoadError::tensor(weights.file_of(&name), &name, problem);
        let Quantization { group_size, bits } = self.config.quantization(module)?.ok_or_else(|| {
            let problem = "has scales, but config.json has no \"quantization\" that says how it is packed";
            wrong(problem.to_owned())
        })?;
        let packed = weights.tensor(&name)?;
        let scales = weights.tensor(&format!("{module}.scales"))?;
        let biases = format!("{module}.biases");
        if !weights.has(&biases) {
            return Err(self.missing(&biases));
        }
        let biases = weights.tensor(&biases)?;
        if packed.dtype != Dtype::U32 {
            return Err(wrong(format!("must be packed in U32, found {:?}", packed.dtype)));
        }
        if scales.dtype != biases.dtype || !matches!(scales.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            return Err(wrong(format!(
                "must have scales and biases of one type, F32, F16 or BF16; found {:?} and {:?}",
                scales.dtype, biases.dtype
            )));
        }
        let shape = affine_shape(&packed.shape, &scales.shape, bits, group_size);
        match shape.filter(|_| scales.shape == biases.shape) {
            Some(shape) => Ok(Affine { bits, group_size, shape, packed, scales, biases }),
            None => Err(wrong(format!(
                "has packed shape {:?}, scales {:?} and biases {:?}, which do not fit {bits} bits in groups of {group_size}",
                packed.shape, scales.shape, biases.shape
            ))),
        }
    }
}

/// The shape that packed integers stand for, when it is one that the scales fit.
fn affine_shape(packed: &[usize], scales: &[usize], bits: usize, group_size: usize) -> Option<Vec<usize>> {
    let (words, outer) = packed.split_last()?;
    let (groups, scales_outer) = scales.split_last()?;
    let columns = groups.checked_mul(group_size)?;
    let fits = outer == scales_outer && columns.checked_mul(bits)? == words.checked_mul(32)? && columns > 0;
    fits.then(|| outer.iter().copied().chain([columns]).collect())
}
