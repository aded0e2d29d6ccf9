//! The flags that say which model to run and how.

use std::path::PathBuf;
use std::sync::Arc;

use annulus_engine::cache::KvOptions;
use annulus_engine::device::{ComputeDtype, DeviceChoice};
use annulus_engine::engine::Engine;
use annulus_engine::geometry::{Geometry, LogFile};
use annulus_engine::load::{self, ActivationForm, Kernels, LoadOptions, Loaded, WeightForm};
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::Failure;

/// Which model, and how its numbers are computed.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// A folder with a checkpoint, a .gguf file, or a name org/model that is in the Hugging Face cache; without one,
    /// the default model.
    #[arg(env = "ANNULUS_MODEL")]
    model: Option<String>,
    #[command(flatten)]
    how: How,
    /// Write every move of the KV cache to a file, which `annulus plan replay` and the inspector read.
    #[arg(long, env = "ANNULUS_GEOMETRY_LOG", value_name = "FILE")]
    geometry_log: Option<PathBuf>,
}

/// How a model's numbers are computed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct How {
    /// Which device to use; auto takes the GPU where there is one.
    #[arg(long, env = "ANNULUS_DEVICE", default_value = "auto", value_parser = choice(DEVICES))]
    device: DeviceChoice,
    /// The type of activations and of weights that are not packed; auto is f32 on the CPU and the checkpoint's elsewhere.
    #[arg(long, env = "ANNULUS_COMPUTE_DTYPE", default_value = "auto", value_parser = choice(COMPUTE_DTYPES))]
    compute_dtype: ComputeDtype,
    /// Whose matrix products to use on the CPU; mlx compares bit by bit with other programs that use MLX.
    #[arg(long, env = "ANNULUS_KERNELS", default_value = "own", value_parser = choice(KERNELS))]
    kernels: Kernels,
    /// How to keep quantized weights: packed, also in the layout of the CPU's kernels, or dense; auto is packed, but for what
    /// those kernels do not know spells them out where that is faster and there is memory for it.
    #[arg(long, env = "ANNULUS_WEIGHTS", default_value = "auto", value_parser = choice(WEIGHTS))]
    weights: WeightForm,
    /// What activations become in products with packed weights on the CPU: float32 or, with a scale for every 32, integers of
    /// 16 bits; auto takes those where the processor has instructions for them.
    #[arg(long, env = "ANNULUS_ACTIVATIONS", default_value = "auto", value_parser = choice(ACTIVATIONS))]
    activations: ActivationForm,
    /// Quantize keys and values to so many bits (2, 3, 4, 5, 6 or 8); plain when absent.
    #[arg(long, env = "ANNULUS_KV_BITS", value_name = "BITS")]
    kv_bits: Option<i32>,
    /// How many numbers share a scale in a quantized KV cache (32, 64 or 128); by default 64, or 32 for small heads.
    #[arg(long, env = "ANNULUS_KV_GROUP_SIZE", value_name = "NUMBERS", requires = "kv_bits")]
    kv_group_size: Option<i32>,
    /// Bound the KV cache of layers that attend to everything: it keeps the first 4 tokens and the newest, W in all.
    #[arg(long, env = "ANNULUS_MAX_KV_SIZE", value_name = "W")]
    max_kv_size: Option<u32>,
    /// Tokens that a prompt and its answer may take together; by default as many as the model was made for.
    #[arg(long, env = "ANNULUS_CTX_SIZE", value_name = "TOKENS")]
    ctx_size: Option<usize>,
}

const DEVICES: &[(&str, DeviceChoice)] =
    &[("auto", DeviceChoice::Auto), ("cpu", DeviceChoice::Cpu), ("gpu", DeviceChoice::Gpu)];

const COMPUTE_DTYPES: &[(&str, ComputeDtype)] = &[
    ("auto", ComputeDtype::Auto),
    ("f32", ComputeDtype::F32),
    ("bf16", ComputeDtype::Bf16),
    ("f16", ComputeDtype::F16),
];

const KERNELS: &[(&str, Kernels)] = &[("own", Kernels::Own), ("mlx", Kernels::Mlx)];

const ACTIVATIONS: &[(&str, ActivationForm)] =
    &[("auto", ActivationForm::Auto), ("f32", ActivationForm::F32), ("int16", ActivationForm::Int16)];

const WEIGHTS: &[(&str, WeightForm)] =
    &[("auto", WeightForm::Auto), ("packed", WeightForm::Packed), ("dense", WeightForm::Dense)];

/// Takes one of a few words for what it means to the engine, which knows nothing of command lines.
fn choice<T: Copy + Send + Sync>(words: &'static [(&'static str, T)]) -> impl TypedValueParser<Value = T> {
    let known = PossibleValuesParser::new(words.iter().map(|(word, _)| *word));
    known.try_map(move |given| {
        let found = words.iter().find(|(word, _)| *word == given);
        found.map(|(_, meaning)| *meaning).ok_or("this word has no meaning")
    })
}

impl Args {
    /// Begins to load the model on a thread of its own; at most `max_queue` jobs may wait. With `fault_after` that
    /// thread dies after so many steps.
    pub(super) fn open(&self, max_queue: usize, fault_after: Option<usize>) -> Result<Engine, Failure> {
        Ok(load::open(LoadOptions { fault_after, ..self.options()? }, max_queue)?)
    }

    /// Loads the model on this thread.
    pub(super) fn load(&self) -> Result<Loaded, Failure> {
        Ok(load::load(&self.options()?)?)
    }

    /// The model as messages name it.
    pub(super) fn shown(&self) -> &str {
        self.model.as_deref().unwrap_or("the default model")
    }

    fn options(&self) -> Result<LoadOptions, Failure> {
        Ok(LoadOptions {
            model: self.model.clone(),
            device: self.how.device,
            compute_dtype: self.how.compute_dtype,
            kernels: self.how.kernels,
            weights: self.how.weights,
            activations: self.how.activations,
            kv: KvOptions { bits: self.how.kv_bits, group: self.how.kv_group_size, max_size: self.how.max_kv_size },
            context: self.how.ctx_size,
            fault_after: None,
            geometry: self.geometry()?,
        })
    }

    fn geometry(&self) -> Result<Arc<Geometry>, Failure> {
        let geometry = Geometry::default();
        if let Some(path) = &self.geometry_log {
            let file = LogFile::create(path);
            let file = file.map_err(|error| format!("cannot write the geometry log {}: {error}", path.display()))?;
            geometry.listen(Box::new(file));
        }
        Ok(Arc::new(geometry))
    }
}
