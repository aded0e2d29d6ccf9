//! Complete models that are tiny and random: for tests of everything but answers.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

/// How positions are stretched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RopeScaling {
    /// They are not.
    #[default]
    Default,
    /// All by 4.
    Linear,
    /// By 8, as Llama 3 does: slow frequencies only. The original context is a quarter of the whole.
    Llama3,
}

/// The measures of a tiny model.
#[derive(Debug, Clone)]
pub struct TinyOptions {
    /// How positions are stretched.
    pub rope_scaling: RopeScaling,
    /// Whether the embedding serves as output projection too.
    pub tied: bool,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Tokens; at least 259, which are the bytes and three special ones. Further ones exist in the weights only.
    pub vocabulary: usize,
    /// Positions.
    pub context: usize,
    /// Chooses the weights.
    pub seed: u64,
}

impl Default for TinyOptions {
    fn default() -> Self {
        Self {
            rope_scaling: RopeScaling::Default,
            tied: true,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            vocabulary: 320,
            context: 256,
            seed: 1,
        }
    }
}

/// The id of `<|endoftext|>`; ids below it are the bytes.
pub const END_OF_TEXT: u32 = 256;
/// The id of `<|im_start|>`.
pub const IM_START: u32 = 257;
/// The id of `<|im_end|>`, which ends a generation.
pub const IM_END: u32 = 258;

/// The template that is written, ChatML as transformers' models have it.
pub const CHAT_TEMPLATE: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + \
    message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' \
    }}{% endif %}";

/// The config and the weights of a Llama model.
#[must_use]
pub fn llama(options: &TinyOptions) -> (Value, Vec<Tensor>) {
    (config(options), tensors(options))
}

/// Writes a Llama model into a folder: config, weights in float32, tokenizer, and chat template.
///
/// # Errors
/// When a file cannot be written.
#[allow(clippy::needless_pass_by_value, reason = "options are written where they are used")]
pub fn tiny_llama(folder: &Path, options: TinyOptions) -> io::Result<()> {
    write(folder, &config(&options), &tensors(&options))
}

/// Writes a model into a folder: this config, these weights in float32, tokenizer, and chat template.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, config: &Value, tensors: &[Tensor]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let write = |name: &str, value: &Value| fs::write(folder.join(name), format!("{value:#}"));
    write("config.json", config)?;
    write("generation_config.json", &json!({"eos_token_id": [IM_END, END_OF_TEXT]}))?;
    write("tokenizer.json", &tokenizer())?;
    write(
        "tokenizer_config.json",
        &json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "chat_template": CHAT_TEMPLATE,
        }),
    )?;
    fs::write(folder.join("model.safetensors"), safetensors(tensors))
}

fn config(options: &TinyOptions) -> Value {
    let hidden = options.heads * options.head_dim;
    let rope_scaling = match options.rope_scaling {
        RopeScaling::Default => Value::Null,
        RopeScaling::Linear => json!({"rope_type": "linear", "factor": 4.0}),
        RopeScaling::Llama3 => json!({
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": options.context / 4,
        }),
    };
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.kv_heads,
        "head_dim": options.head_dim,
        "vocab_size": options.vocabulary,
        "max_position_embeddings": options.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": rope_scaling,
        "tie_word_embeddings": options.tied,
        "attention_bias": false,
        "mlp_bias": false,
        "bos_token_id": IM_START,
        "eos_token_id": IM_END,
        "torch_dtype": "float32",
    })
}

/// A byte-level tokenizer without merges: each byte is a token, and its id is its value.
fn tokenizer() -> Value {
    let vocabulary: Map<String, Value> = alphabet()
        .into_iter()
        .zip(0..)
        .map(|(character, id): (char, u32)| (character.to_string(), id.into()))
        .collect();
    let added: Vec<Value> = [(END_OF_TEXT, "<|endoftext|>"), (IM_START, "<|im_start|>"), (IM_END, "<|im_end|>")]
        .into_iter()
        .map(|(id, content)| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": [],
        },
    })
}

/// All tokens in the order of their ids: the bytes in GPT-2's spelling, then the special ones.
#[must_use]
pub fn tokens() -> Vec<String> {
    let special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    alphabet().into_iter().map(String::from).chain(special.map(str::to_owned)).collect()
}

/// GPT-2's character for each byte, in the order of bytes.
fn alphabet() -> Vec<char> {
    let mut next = 0x100..;
    (0..=255_u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => next.next().and_then(char::from_u32).unwrap_or('?'),
        })
        .collect()
}

/// Name, shape and elements of a tensor.
pub type Tensor = (String, Vec<usize>, Vec<f32>);

fn tensors(options: &TinyOptions) -> Vec<Tensor> {
    let mut random = Random::new(options.seed);
    let hidden = options.heads * options.head_dim;
    let (inner, kv) = (2 * hidden, options.kv_heads * options.head_dim);
    let mut out: Vec<Tensor> = Vec::new();
    let mut matrix = |name: &str, rows: usize, columns: usize| {
        let values = (0..rows * columns).map(|_| random.uniform() * 0.4).collect();
        out.push((name.to_owned(), vec![rows, columns], values));
    };
    matrix("model.embed_tokens.weight", options.vocabulary, hidden);
    if !options.tied {
        matrix("lm_head.weight", options.vocabulary, hidden);
    }
    for layer in 0..options.layers {
        for (part, rows, columns) in [
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ] {
            matrix(&format!("model.layers.{layer}.{part}.weight"), rows, columns);
        }
    }
    let mut norm = |name: String| {
        let values = (0..hidden).map(|_| 1.0 + random.uniform() * 0.2).collect();
        out.push((name, vec![hidden], values));
    };
    for layer in 0..options.layers {
        norm(format!("model.layers.{layer}.input_layernorm.weight"));
        norm(format!("model.layers.{layer}.post_attention_layernorm.weight"));
    }
    norm("model.norm.weight".to_owned());
    out
}

/// A safetensors file, written from the format's description.
fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let mut header = Value::Object(header).to_string();
    // Spaces at the end, so that the data begins on a boundary of 8.
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.into_bytes());
    out.extend(data);
    out
}

/// A simple generator that gives the same numbers on every machine (Steele, Lea and Flood's SplitMix64).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator; the same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bits().to_le_bytes()[7]
    }

    /// A number from -0.5 up to 0.5, with 24 bits.
    pub fn uniform(&mut self) -> f32 {
        let bits = self.bits() >> 40;
        #[allow(clippy::cast_precision_loss, reason = "24 bits fit")]
        let value = bits as f32 / 16_777_216.0 - 0.5;
        value
    }
}
