//! Tiny random models of other architectures than Llama: configs to change, and weights that fit them before they change.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::tiny::{self, IM_END, Random, Tensor};

/// Columns that a sliding layer of these models keeps.
pub const WINDOW: usize = 8;
/// Tokens of these models.
pub const VOCABULARY: usize = 320;

const WIDTH: usize = 32;
const INNER: usize = 48;
const HEADS: usize = 4;

/// A model before it is written.
#[derive(Debug, Clone)]
pub struct Model {
    /// What will be `config.json`.
    pub config: Value,
    /// The weights.
    pub tensors: Vec<Tensor>,
}

impl Model {
    /// Every architecture, with a name.
    #[must_use]
    pub fn all() -> Vec<(&'static str, Self)> {
        vec![
            ("qwen3", Self::qwen3()),
            ("gemma3", Self::gemma3()),
            ("gemma4", Self::gemma4()),
            ("gemma4 that shares keys and values", Self::gemma4_shared()),
            ("gemma4 with experts", Self::gemma4_experts()),
        ]
    }

    /// Writes the model, with tokenizer and chat template.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        tiny::write(folder, &self.config, &self.tensors)
    }

    /// The object that holds the text model's fields.
    pub fn text(&mut self) -> &mut Value {
        if self.config["text_config"].is_object() { &mut self.config["text_config"] } else { &mut self.config }
    }

    /// The same model as a part of one that also sees: `from` becomes `to` in the names of tensors, and there are others.
    #[must_use]
    pub fn nested(mut self, kind: &str, to: &str) -> Self {
        for (name, ..) in &mut self.tensors {
            if let Some(rest) = name.strip_prefix("model.") {
                *name = format!("{to}.{rest}");
            }
        }
        self.tensors.push(("vision_tower.patch.weight".to_owned(), vec![2, 2], vec![0.0; 4]));
        self.config = json!({"model_type": kind, "text_config": self.config, "eos_token_id": IM_END});
        self
    }

    /// Two layers of Qwen3, with an output projection of its own.
    #[must_use]
    pub fn qwen3() -> Self {
        let mut weights = Weights::new();
        weights.matrix("lm_head", VOCABULARY, WIDTH);
        for layer in 0..2 {
            let layer = format!("model.layers.{layer}");
            weights.attention(&layer, Heads { kv: 2, dim: 16 }, &["k_proj", "v_proj"], 1.0);
            weights.gated(&layer, INNER);
            weights.norms(&layer, &["input_layernorm", "post_attention_layernorm"], 1.0);
        }
        let mut config = common("qwen3", 2);
        extend(&mut config, json!({"hidden_act": "silu", "num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1e6}));
        config["tie_word_embeddings"] = json!(false);
        Self { config, tensors: weights.finish(1.0) }
    }

    /// Three layers of Gemma 3, of which every third attends to all columns.
    #[must_use]
    pub fn gemma3() -> Self {
        let mut weights = Weights::new();
        for layer in 0..3 {
            let layer = format!("model.layers.{layer}");
            weights.attention(&layer, Heads { kv: 1, dim: 16 }, &["k_proj", "v_proj"], 0.0);
            weights.gated(&layer, INNER);
            weights.norms(&layer, &SANDWICH, 0.0);
        }
        let mut config = common("gemma3_text", 3);
        extend(
            &mut config,
            json!({
                "hidden_activation": "gelu_pytorch_tanh", "num_key_value_heads": 1, "head_dim": 16,
                "query_pre_attn_scalar": 16, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                "sliding_window": WINDOW, "sliding_window_pattern": 3,
            }),
        );
        Self { config, tensors: weights.finish(0.0) }
    }

    /// Three layers of Gemma 4, the second of which attends to all columns, with keys that serve as values.
    #[must_use]
    pub fn gemma4() -> Self {
        Self::gemma4_with(&[SLIDING, FULL, SLIDING], |_, _| {}, json!({}))
    }

    /// Five layers, of which the last two share the columns of the second and third, with inputs for each layer.
    #[must_use]
    pub fn gemma4_shared() -> Self {
        let inputs = |weights: &mut Weights, layer: Option<&str>| match layer {
            Some(layer) => {
                weights.matrix(&format!("{layer}.per_layer_input_gate"), 8, WIDTH);
                weights.matrix(&format!("{layer}.per_layer_projection"), WIDTH, 8);
                weights.norms(layer, &["post_per_layer_input_norm"], 1.0);
            }
            None => {
                weights.matrix("model.embed_tokens_per_layer", VOCABULARY, 5 * 8);
                weights.matrix("model.per_layer_model_projection", 5 * 8, WIDTH);
                weights.vector("model.per_layer_projection_norm.weight", 8, 1.0);
            }
        };
        let fields = json!({
            "num_kv_shared_layers": 2, "use_double_wide_mlp": true, "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCABULARY,
        });
        Self::gemma4_with(&[SLIDING, FULL, SLIDING, SLIDING, FULL], inputs, fields)
    }

    /// Two layers with six experts, of which a token runs through two.
    #[must_use]
    pub fn gemma4_experts() -> Self {
        let experts = |weights: &mut Weights, layer: Option<&str>| {
            let Some(layer) = layer else { return };
            weights.matrix(&format!("{layer}.router.proj"), 6, WIDTH);
            weights.vector(&format!("{layer}.router.scale"), WIDTH, 1.0);
            weights.vector(&format!("{layer}.router.per_expert_scale"), 6, 1.0);
            weights.tensor(format!("{layer}.experts.gate_up_proj"), &[6, 2 * 16, WIDTH], 0.0, 0.4);
            weights.tensor(format!("{layer}.experts.down_proj"), &[6, WIDTH, 16], 0.0, 0.4);
            let norms = ["pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"];
            weights.norms(layer, &norms, 1.0);
        };
        let fields =
            json!({"enable_moe_block": true, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 16});
        Self::gemma4_with(&[SLIDING, FULL], experts, fields)
    }

    /// `more` adds the tensors of a layer, or of none.
    fn gemma4_with(types: &[&str], more: impl Fn(&mut Weights, Option<&str>), fields: Value) -> Self {
        let shared = fields["num_kv_shared_layers"].as_u64().map_or(0, |count| usize::try_from(count).unwrap_or(0));
        let mut weights = Weights::new();
        more(&mut weights, None);
        for (layer, kind) in types.iter().enumerate() {
            let owner = layer < types.len() - shared;
            let layer = format!("model.layers.{layer}");
            let (heads, projections) = match *kind {
                FULL => (Heads { kv: 1, dim: 32 }, &["k_proj"][..]),
                _ => (Heads { kv: 2, dim: 16 }, &["k_proj", "v_proj"][..]),
            };
            weights.attention(&layer, heads, if owner { projections } else { &[] }, 1.0);
            weights.gated(&layer, if owner { INNER } else { 2 * INNER });
            weights.norms(&layer, &SANDWICH, 1.0);
            weights.vector(&format!("{layer}.layer_scalar"), 1, 1.0);
            more(&mut weights, Some(&layer));
        }
        let mut config = common("gemma4_text", types.len());
        extend(
            &mut config,
            json!({
                "hidden_activation": "gelu_pytorch_tanh", "num_key_value_heads": 2, "head_dim": 16,
                "global_head_dim": 32, "attention_k_eq_v": true, "num_global_key_value_heads": 1,
                "sliding_window": WINDOW, "layer_types": types, "final_logit_softcapping": 30.0,
                "rope_parameters": {
                    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
                },
            }),
        );
        extend(&mut config, fields);
        Self { config, tensors: weights.finish(1.0) }
    }
}

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// The norms around attention and the gated unit of a Gemma.
const SANDWICH: [&str; 4] =
    ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"];

/// Heads of keys and values.
#[derive(Clone, Copy)]
struct Heads {
    kv: usize,
    dim: usize,
}

fn common(kind: &str, layers: usize) -> Value {
    json!({
        "model_type": kind, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "vocab_size": VOCABULARY, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": true, "eos_token_id": IM_END,
    })
}

fn extend(config: &mut Value, fields: Value) {
    if let (Some(config), Value::Object(fields)) = (config.as_object_mut(), fields) {
        config.extend(fields);
    }
}

/// Random tensors under the names of their modules.
struct Weights {
    random: Random,
    tensors: Vec<Tensor>,
}

impl Weights {
    fn new() -> Self {
        Self { random: Random::new(3), tensors: Vec::new() }
    }

    fn tensor(&mut self, name: String, shape: &[usize], centre: f32, spread: f32) {
        let elements = (0..shape.iter().product()).map(|_| centre + self.random.uniform() * spread).collect();
        self.tensors.push((name, shape.to_vec(), elements));
    }

    fn matrix(&mut self, path: &str, rows: usize, columns: usize) {
        self.tensor(format!("{path}.weight"), &[rows, columns], 0.0, 0.6);
    }

    fn vector(&mut self, name: &str, width: usize, centre: f32) {
        self.tensor(name.to_owned(), &[width], centre, 0.4);
    }

    fn norms(&mut self, layer: &str, names: &[&str], centre: f32) {
        for name in names {
            self.vector(&format!("{layer}.{name}.weight"), WIDTH, centre);
        }
    }

    fn gated(&mut self, layer: &str, inner: usize) {
        self.matrix(&format!("{layer}.mlp.gate_proj"), inner, WIDTH);
        self.matrix(&format!("{layer}.mlp.up_proj"), inner, WIDTH);
        self.matrix(&format!("{layer}.mlp.down_proj"), WIDTH, inner);
    }

    /// Attention with norms of heads; without keys when there are no projections for them.
    fn attention(&mut self, layer: &str, heads: Heads, projections: &[&str], centre: f32) {
        let path = format!("{layer}.self_attn");
        self.matrix(&format!("{path}.q_proj"), HEADS * heads.dim, WIDTH);
        self.matrix(&format!("{path}.o_proj"), WIDTH, HEADS * heads.dim);
        self.vector(&format!("{path}.q_norm.weight"), heads.dim, centre);
        for name in projections {
            self.matrix(&format!("{path}.{name}"), heads.kv * heads.dim, WIDTH);
        }
        if !projections.is_empty() {
            self.vector(&format!("{path}.k_norm.weight"), heads.dim, centre);
        }
    }

    fn finish(mut self, centre: f32) -> Vec<Tensor> {
        self.matrix("model.embed_tokens", VOCABULARY, WIDTH);
        self.vector("model.norm.weight", WIDTH, centre);
        self.tensors
    }
}
