//! From a name to a model that runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use annulus_kernels::input::Activations;
use mlx_rs::Dtype;

use crate::cache::{Format, KvOptions};
use crate::checkpoint::gguf::ShardName;
use crate::checkpoint::{self, Checkpoint, LoadError};
use crate::chunk::ChunkSize;
use crate::device::{self, Backend, ComputeDtype, DeviceChoice};
use crate::engine::{Engine, Front};
use crate::generate::Session;
use crate::geometry::Geometry;
use crate::job::Sampling;
use crate::models;
use crate::ops;
use crate::text::{self, ChatTemplate, TextError, Tokenizer};
use crate::weights::{Representation, Requantized, Weights};
use crate::worker::Worker;

/// The model that is used when none is named, as set-up stores it in the folder `models` of the cache.
pub const DEFAULT_MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Whose kernels the CPU backend uses for matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kernels {
    /// Those of `annulus-kernels`.
    #[default]
    Own,
    /// Those that come with MLX, to compare bit by bit with other programs that use them.
    Mlx,
}

/// In which form activations enter the products of this project's kernels with packed weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActivationForm {
    /// Integers where the processor multiplies bytes fastest, float32 elsewhere.
    #[default]
    Auto,
    /// Float32.
    F32,
    /// Integers of 16 bits, with a scale for every 32.
    Int16,
}

/// In which form quantized weights are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightForm {
    /// In the layout of this project's kernels where those are used and know the matrix; else as packed, or spelled out
    /// where that is faster and there is memory for it.
    #[default]
    Auto,
    /// As the checkpoint packs them.
    Packed,
    /// One number of the compute type an element.
    Dense,
}

/// What to load, and how.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// A folder, a `.gguf` file or a name; the default model when absent.
    pub model: Option<String>,
    /// Which device to use.
    pub device: DeviceChoice,
    /// The type of activations and of weights that are not packed.
    pub compute_dtype: ComputeDtype,
    /// Whose kernels to use on the CPU.
    pub kernels: Kernels,
    /// In which form to keep quantized weights.
    pub weights: WeightForm,
    /// In which form activations enter products.
    pub activations: ActivationForm,
    /// How to keep keys and values.
    pub kv: KvOptions,
    /// Positions that a prompt and its answer may take together; as many as the model was made for when absent.
    pub context: Option<usize>,
    /// Panic after so many decode steps: a fault for tests.
    pub fault_after: Option<usize>,
    /// Who hears what the caches of requests do.
    pub geometry: Arc<Geometry>,
}

/// A model loaded on this thread, which must be the one that uses it.
pub struct Loaded {
    /// Runs jobs.
    pub session: Session,
    /// What can be done without tensors.
    pub front: Arc<Front>,
}

/// Loads a model on the calling thread.
///
/// # Errors
/// In words for whoever asked for the model: what is wrong, and what to do.
pub fn load(options: &LoadOptions) -> Result<Loaded, String> {
    let parts = prepare(options)?;
    finish(options, parts)
}

/// Starts a worker that loads a model on its own thread; at most `max_queue` jobs wait.
///
/// # Errors
/// When the operating system gives no thread. Errors of loading come through [`Engine::status`].
pub fn open(options: LoadOptions, max_queue: usize) -> std::io::Result<Engine> {
    let front = Arc::new(OnceLock::new());
    let theirs = Arc::clone(&front);
    let geometry = Arc::clone(&options.geometry);
    let worker = Worker::start(max_queue, move || {
        let Loaded { session, front } = load(&options)?;
        // Nobody else sets it.
        let _ = theirs.set(front);
        Ok(session)
    })?;
    Ok(Engine::from_parts(worker, front, geometry))
}

/// A model whose files are open.
struct Parts {
    checkpoint: Checkpoint,
    id: String,
    backend: Backend,
}

fn prepare(options: &LoadOptions) -> Result<Parts, String> {
    let backend = device::start(options.device)?;
    if options.kernels == Kernels::Mlx && backend == Backend::Cpu && cfg!(target_os = "linux") {
        annulus_kernels::cblas::use_the_wheels_blas()?;
    }
    let (id, path) = find(options.model.as_deref())?;
    let checkpoint = Checkpoint::open(&path).map_err(|error| error.to_string())?;
    Ok(Parts { checkpoint, id, backend })
}

/// The name and the path of a model.
fn find(model: Option<&str>) -> Result<(String, PathBuf), String> {
    let spec = model.unwrap_or(DEFAULT_MODEL);
    match checkpoint::locate(spec) {
        Ok(path) => {
            let id = match model {
                None => DEFAULT_MODEL.split(".Q4_1").next().unwrap_or(DEFAULT_MODEL).to_owned(),
                Some(spec) if std::path::Path::new(spec).exists() => file_name(&path),
                Some(spec) => spec.to_owned(),
            };
            Ok((id, path))
        }
        Err(LoadError::NotFound { tried, .. }) if model.is_none() => {
            Err(format!("the default model is not there ({tried}). Run `make setup`, or name a model of your own"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The last part of a path, without `.gguf` and the number of one of several files: the name of a model that was given by
/// its path.
fn file_name(path: &std::path::Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy());
    let stem = ShardName::parse(&name).map(|shard| shard.stem).or_else(|| name.strip_suffix(".gguf"));
    stem.unwrap_or(&name).to_owned()
}

fn finish(options: &LoadOptions, parts: Parts) -> Result<Loaded, String> {
    let Parts { checkpoint, id, backend } = parts;
    let words = |error: LoadError| error.to_string();
    let unreadable = |error: TextError| error.to_string();
    let tokenizer = Tokenizer::open(&checkpoint).map_err(unreadable)?;
    let template = ChatTemplate::open(&checkpoint, &tokenizer).map_err(unreadable)?;
    let end_tokens = text::end_tokens(&checkpoint, &tokenizer).map_err(unreadable)?;
    let dtype = options.compute_dtype.resolve(backend, stored_dtype(&checkpoint));
    let representation = representation(options, backend, &checkpoint);
    let own = backend == Backend::Cpu && options.kernels == Kernels::Own;
    let panels = (own && options.weights != WeightForm::Dense).then_some(match options.activations {
        ActivationForm::Auto if ops::prefers_integers() => Activations::Int16,
        ActivationForm::Auto | ActivationForm::F32 => Activations::F32,
        ActivationForm::Int16 => Activations::Int16,
    });
    ops::choose(match backend {
        Backend::Cpu if own => &ops::Cpu,
        Backend::Cuda => &ops::Cuda,
        Backend::Cpu | Backend::Metal => &ops::Mlx,
    });
    let requantized = Requantized::default();
    let weights = Weights { checkpoint: &checkpoint, backend, dtype, representation, panels, requantized };
    let model = models::load(&weights).map_err(words)?;
    if let Some((tensors, loss)) = weights.requantized.total() {
        tracing::info!(
            tensors,
            relative_rms_error = format!("{:.2} %", loss.relative() * 100.0),
            "MLX has no groups of 16, so Q6_K tensors were requantized to 8 bits in groups of 32"
        );
    }
    if panels.is_some() {
        checkpoint.release();
    }
    let arrangement = options.kv.arrange(&model.facts().cache).map_err(|error| error.to_string())?;
    let context_length = context_length(options, model.facts().context)?;
    let mut details = details(&checkpoint, backend, dtype, representation);
    if let Some(activations) = panels {
        // Matrices that the kernels do not know stay in the other form.
        let form = format!("{activations:?}").to_lowercase();
        details.insert("weights".to_owned(), format!("panels, else {}", details["weights"]));
        details.insert("activations".to_owned(), form);
    }
    details.insert("kv_cache".to_owned(), kv_words(options.kv, arrangement.format));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let byte_products = panels == Some(Activations::Int16) && ops::prefers_integers();
    let chunk = ChunkSize::new(backend, models::multiplied(&checkpoint), cores, byte_products);
    let front = Arc::new(Front {
        id,
        created: checkpoint.created(),
        context_length,
        end_tokens,
        sampling: sampling(&checkpoint),
        tokenizer: Arc::new(tokenizer),
        template,
        details,
    });
    let session = Session::new(model, Arc::clone(&front), arrangement, chunk, options.fault_after);
    let mut session = session.recorded(Arc::clone(&options.geometry));
    if backend != Backend::Cpu {
        tracing::info!(
            "warming up; kernels that this machine has not run before are compiled now, which may take minutes"
        );
        session.warm_up().map_err(|error| error.to_string())?;
    }
    Ok(Loaded { session, front })
}

/// The positions that requests may take: no more than the model knows.
fn context_length(options: &LoadOptions, known: usize) -> Result<usize, String> {
    match options.context {
        None => Ok(known),
        Some(0) => Err("a context of 0 tokens holds no prompt: choose at least 1".to_owned()),
        Some(asked) if asked > known => Err(format!(
            "a context of {asked} tokens was asked for, but this model was made for {known}: choose no more"
        )),
        Some(asked) => Ok(asked),
    }
}

/// The cache in a few words.
fn kv_words(options: KvOptions, format: Format) -> String {
    let format = match format {
        Format::Plain => "plain".to_owned(),
        Format::Affine(affine) => format!("{} bits in groups of {}", affine.bits(), affine.group()),
    };
    match options.max_size {
        Some(size) => format!("{format}, at most {size} tokens a layer"),
        None => format,
    }
}

/// The type that the checkpoint's own weights have: that of its embedding, or of the embedding's scales.
fn stored_dtype(checkpoint: &Checkpoint) -> Dtype {
    match models::embedding_name(checkpoint).and_then(|name| checkpoint.describe(&name)) {
        Some((_, checkpoint::Dtype::BF16)) => Dtype::Bfloat16,
        Some((_, checkpoint::Dtype::F16)) => Dtype::Float16,
        _ => Dtype::Float32,
    }
}

/// For what is not kept in panels. On the CPU, products with dense float32 weights run several times as fast as MLX's
/// quantized ones.
fn representation(options: &LoadOptions, backend: Backend, checkpoint: &Checkpoint) -> Representation {
    match options.weights {
        WeightForm::Packed => Representation::Packed,
        WeightForm::Dense => Representation::Dense,
        WeightForm::Auto => {
            // Four bits become thirty-two.
            let dense = checkpoint.total_bytes().saturating_mul(8);
            let fits = available_memory().is_some_and(|available| dense < available / 2);
            if backend == Backend::Cpu && options.kernels == Kernels::Own && fits {
                Representation::Dense
            } else {
                Representation::Packed
            }
        }
    }
}

/// Bytes of memory that programs can still take, where the system says.
fn available_memory() -> Option<usize> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
}

fn sampling(checkpoint: &Checkpoint) -> Sampling {
    let said = checkpoint.generation();
    let default = Sampling::default();
    if said.do_sample == Some(false) {
        return Sampling { temperature: 0.0, ..default };
    }
    Sampling {
        temperature: said.temperature.unwrap_or(default.temperature),
        top_p: said.top_p.unwrap_or(default.top_p),
        top_k: said.top_k.unwrap_or(default.top_k),
        min_p: said.min_p.unwrap_or(default.min_p),
        seed: None,
    }
}

fn details(
    checkpoint: &Checkpoint,
    backend: Backend,
    dtype: Dtype,
    representation: Representation,
) -> BTreeMap<String, String> {
    let mut details = BTreeMap::new();
    details.insert("path".to_owned(), checkpoint.path().display().to_string());
    details.insert("backend".to_owned(), backend.to_string());
    details.insert("compute_dtype".to_owned(), format!("{dtype:?}").to_lowercase());
    details.insert("weights".to_owned(), format!("{representation:?}").to_lowercase());
    if let Ok(Some(architecture)) = checkpoint.config().optional::<String>("model_type") {
        details.insert("architecture".to_owned(), architecture);
    }
    details
}
