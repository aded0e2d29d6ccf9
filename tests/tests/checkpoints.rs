//! Sound checkpoints of every kind.

use std::fs;
use std::path::{Path, PathBuf};

use annulus_engine::checkpoint::{Checkpoint, Dtype, LoadError, TensorData};
use annulus_engine::text::{ChatInput, ChatTemplate, Tokenizer, end_tokens};
use annulus_tests::gguf::{self, small_llama};
use annulus_tests::tiny::{self, Random, RopeScaling, TinyOptions, tiny_llama};
use serde_json::{Value, json};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn write_json(path: &Path, value: &Value) {
    fs::write(path, value.to_string()).unwrap();
}

/// A safetensors file of these tensors: name, dtype, shape, bytes.
fn safetensors(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend(bytes);
        header.insert((*name).to_owned(), json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn a_tiny_model_is_complete() {
    let dir = folder();
    let options = TinyOptions { tied: false, layers: 3, rope_scaling: RopeScaling::Llama3, ..TinyOptions::default() };
    tiny_llama(dir.path(), options).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.names().count(), 2 + 3 * 9 + 1);
    let q = checkpoint.tensor("model.layers.2.self_attn.q_proj.weight", Some(&[64, 64])).unwrap();
    let values = q.to_f32().unwrap();
    assert!(values.iter().all(|value| value.abs() <= 0.2) && values.iter().any(|value| *value != values[0]));
    let TensorData::Plain(plain) = q else { panic!("weights are plain") };
    assert!(plain.place.is_some(), "stored weights are mapped");
    let rope = checkpoint.config().section("rope_scaling").unwrap().unwrap();
    assert_eq!(rope.required::<String>("rope_type").unwrap(), "llama3");

    let tokenizer = Tokenizer::open(&checkpoint).unwrap();
    let text = "a é 🦀\0\x7f";
    let ids = tokenizer.encode(text, true).unwrap();
    assert_eq!(ids, text.bytes().map(u32::from).collect::<Vec<_>>());
    assert!((0..256).all(|id: u32| tokenizer.token_bytes(id) == [u8::try_from(id).unwrap()]));
    assert_eq!(end_tokens(&checkpoint, &tokenizer).unwrap(), [tiny::END_OF_TEXT, tiny::IM_END]);
    assert_eq!(tokenizer.vocab_size(), 259);
    let template = ChatTemplate::open(&checkpoint, &tokenizer).unwrap().unwrap();
    let chat = ChatInput { messages: vec![json!({"role": "user", "content": "x"})], ..ChatInput::default() };
    assert_eq!(template.render(&chat).unwrap(), "<|im_start|>user\nx<|im_end|>\n");
}

/// The same seed gives the same bytes on every machine: recorded runs of other programs depend on it.
#[test]
fn a_tiny_model_never_changes() {
    let mut random = Random::new(1);
    // From the authors' reference implementation of SplitMix64.
    assert_eq!(random.bits(), 0x910a_2dec_8902_5cc1);
    assert_eq!(random.bits(), 0xbeeb_8da1_658e_ec67);
}

#[test]
fn shards_are_found_by_their_index() {
    let dir = folder();
    let path = |name: &str| dir.path().join(name);
    write_json(&path("config.json"), &json!({"model_type": "llama"}));
    let one = safetensors(&[("a", "F32", &[2], floats(&[1.0, 2.0])), ("hidden", "F32", &[1], floats(&[9.0]))]);
    let two = safetensors(&[("b", "BF16", &[1, 2], vec![0x80, 0x3f, 0x00, 0xc0])]);
    fs::write(path("model-00001-of-00002.safetensors"), one).unwrap();
    fs::write(path("model-00002-of-00002.safetensors"), two).unwrap();
    let without_index = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(without_index.names().collect::<Vec<_>>(), ["a", "b", "hidden"]);

    let map = json!({"weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors",
    }});
    write_json(&path("model.safetensors.index.json"), &map);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(checkpoint.to_f32("a").unwrap(), [1.0, 2.0]);
    let b = checkpoint.tensor("b", Some(&[1, 2])).unwrap();
    assert_eq!(b.to_f32().unwrap(), [1.0, -2.0]);
    let TensorData::Plain(b) = b else { panic!("b is plain") };
    assert_eq!(b.dtype, Dtype::BF16);
    let place = b.place.unwrap();
    assert!(place.file.path().ends_with("model-00002-of-00002.safetensors"));
    assert_eq!(place.file.bytes()[place.offset..], *b.bytes);
}

/// A folder with one quantized linear layer: 2 rows of 32 columns, 4 bits, and one plain one.
fn quantized(quantization: &Value) -> (TempDir, Result<Checkpoint, LoadError>) {
    let dir = folder();
    write_json(&dir.path().join("config.json"), &json!({"quantization": quantization}));
    // Element i of row 0 is i % 16, of row 1 15 - i % 16.
    let words =
        [0x7654_3210_u32, 0xfedc_ba98, 0x7654_3210, 0xfedc_ba98, 0x89ab_cdef, 0x0123_4567, 0x89ab_cdef, 0x0123_4567];
    let packed = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let file = safetensors(&[
        ("up.weight", "U32", &[2, 4], packed),
        ("up.scales", "F32", &[2, 1], floats(&[0.5, 2.0])),
        ("up.biases", "F32", &[2, 1], floats(&[-1.0, 0.25])),
        ("norm.weight", "F32", &[1], floats(&[1.0])),
    ]);
    fs::write(dir.path().join("model.safetensors"), file).unwrap();
    let checkpoint = Checkpoint::open(dir.path());
    (dir, checkpoint)
}

#[test]
fn a_quantized_weight_is_one_tensor() {
    let (_dir, checkpoint) = quantized(&json!({"group_size": 32, "bits": 4}));
    let checkpoint = checkpoint.unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["norm.weight", "up.weight"]);
    let up = checkpoint.tensor("up.weight", Some(&[2, 32])).unwrap();
    let expected: Vec<f32> = (0..64_u8)
        .map(|i| if i < 32 { f32::from(i % 16) * 0.5 - 1.0 } else { f32::from(15 - i % 16) * 2.0 + 0.25 })
        .collect();
    assert_eq!(up.to_f32().unwrap(), expected);
    assert_eq!(checkpoint.to_f32("up.weight").unwrap(), expected);
    let TensorData::Affine(up) = up else { panic!("up is quantized") };
    assert_eq!((up.bits, up.group_size), (4, 32));
    assert!(up.packed.place.is_some() && up.scales.place.is_some(), "stored parts are mapped");
}

#[test]
fn a_layer_of_its_own_kind_is_read_by_its_own_entry() {
    let (_dir, checkpoint) = quantized(&json!({"group_size": 64, "bits": 8, "up": {"group_size": 32, "bits": 4}}));
    checkpoint.unwrap().tensor("up.weight", Some(&[2, 32])).unwrap();
}

#[test]
fn a_quantization_that_does_not_fit_is_an_error() {
    for quantization in [
        json!({"group_size": 64, "bits": 4}),
        json!({"group_size": 32, "bits": 8}),
        json!({"group_size": 32, "bits": 4, "up": false}),
        json!({"group_size": 32, "bits": 4, "mode": "mxfp4"}),
        json!({"bits": 4}),
        json!(null),
    ] {
        let (_dir, checkpoint) = quantized(&quantization);
        let error = checkpoint.unwrap().tensor("up.weight", None).unwrap_err().to_string();
        assert!(error.contains("up") || error.contains("quantization"), "{error}");
    }
}

fn write_gguf(file: &gguf::Gguf) -> (TempDir, PathBuf) {
    let dir = folder();
    let path = dir.path().join("model.gguf");
    fs::write(&path, file.to_bytes()).unwrap();
    (dir, path)
}

#[test]
fn a_gguf_file_of_every_encoding_is_read() {
    let (dir, path) = write_gguf(&small_llama());
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.names().count(), 12);
    for name in checkpoint.names().map(str::to_owned).collect::<Vec<_>>() {
        let tensor = checkpoint.tensor(&name, None).unwrap();
        assert_eq!(tensor.to_f32().unwrap(), checkpoint.to_f32(&name).unwrap(), "{name}");
    }
    // A folder that holds only this file stands for it.
    let folder = Checkpoint::open(dir.path()).unwrap();
    assert!(folder.gguf().is_some());
    assert!(folder.config().required::<bool>("attention_bias").unwrap());
}

/// Rows of q, and its bias, are put back in the order of the Hugging Face layout, whatever their encoding.
#[test]
fn rows_of_q_and_k_are_put_back() {
    for (kind, packed) in [(0_u32, false), (8, true)] {
        let mut file = small_llama();
        file.tensors.retain(|tensor| !tensor.name.contains("attn_q"));
        // Row r of the file is all r, in 2 heads of 16 rows.
        let row = |value: u8| match kind {
            0 => floats(&[f32::from(value); 32]),
            // Q8_0 with a scale of 1.
            _ => [vec![0x00, 0x3c], vec![value; 32]].concat(),
        };
        file.tensor("blk.0.attn_q.weight", &[32, 32], kind, (0..32).flat_map(row).collect());
        file.tensor("blk.0.attn_q.bias", &[32], 0, floats(&(0..32_u8).map(f32::from).collect::<Vec<_>>()));
        let (_dir, path) = write_gguf(&file);
        let checkpoint = Checkpoint::open(&path).unwrap();
        let expected: Vec<f32> = (0..2_u8)
            .flat_map(|head| {
                (0..2).flat_map(move |half| (0..8).map(move |pair| f32::from(head * 16 + pair * 2 + half)))
            })
            .collect();
        let weight = checkpoint.tensor("model.layers.0.self_attn.q_proj.weight", Some(&[32, 32])).unwrap();
        assert_eq!(matches!(weight, TensorData::Affine(_)), packed);
        let firsts: Vec<f32> = weight.to_f32().unwrap().chunks(32).map(|row| row[0]).collect();
        assert_eq!(firsts, expected);
        assert_eq!(checkpoint.to_f32("model.layers.0.self_attn.q_proj.bias").unwrap(), expected);
    }
}

#[test]
fn rope_scaling_is_read_from_metadata() {
    let scaling = |file: &gguf::Gguf| {
        let (_dir, path) = write_gguf(file);
        Checkpoint::open(&path).unwrap().config().fields()["rope_scaling"].clone()
    };
    let mut file = small_llama();
    assert_eq!(scaling(&file), Value::Null);
    file.set("llama.rope.scale_linear", gguf::Value::F32(2.0));
    assert_eq!(scaling(&file)["rope_type"], "linear");
    assert_eq!(scaling(&file)["factor"], 2.0);
    file.set("llama.rope.scaling.type", "yarn".into())
        .set("llama.rope.scaling.factor", gguf::Value::F32(4.0))
        .set("llama.rope.scaling.original_context_length", gguf::Value::U32(16));
    assert_eq!(scaling(&file), json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}));
    file.tensor("rope_freqs.weight", &[8], 0, floats(&[1.0; 8]));
    assert_eq!(scaling(&file), json!({"rope_type": "factors", "tensor": "rope_freqs.weight"}));
}

/// Llama 3's pattern and what else its files leave unsaid, on a vocabulary of single bytes.
#[test]
fn pre_tokenizers_bring_their_habits() {
    let ids = |name: &str, text: &str, add_special: bool| {
        let mut file = small_llama();
        file.set("tokenizer.ggml.pre", name.into()).set("tokenizer.ggml.bos_token_id", gguf::Value::U32(1));
        let (_dir, path) = write_gguf(&file);
        let tokenizer = Tokenizer::open(&Checkpoint::open(&path).unwrap()).unwrap();
        tokenizer.encode(text, add_special).unwrap()
    };
    for name in ["gpt-2", "smollm", "default", "llama-bpe", "qwen2"] {
        assert_eq!(ids(name, "42<|im_end|>", false), [6, 4, 1], "{name}");
    }
    assert_eq!(ids("llama-bpe", "7", true), [1, 9]);
    assert_eq!(ids("smollm", "7", true), [9]);
}

#[test]
fn an_unknown_pre_tokenizer_is_an_error() {
    let mut file = small_llama();
    file.set("tokenizer.ggml.pre", "bloom".into());
    let (_dir, path) = write_gguf(&file);
    let error = Tokenizer::open(&Checkpoint::open(&path).unwrap()).unwrap_err().to_string();
    assert!(error.contains("pre-tokenizer \"bloom\" is not supported"), "{error}");
    assert!(error.contains("\"smollm\""), "{error}");
}

#[test]
fn templates_are_found_where_models_keep_them() {
    let render = |dir: &TempDir, tools: bool| {
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let tokenizer = Tokenizer::open(&checkpoint).unwrap();
        ChatTemplate::open(&checkpoint, &tokenizer).unwrap().map(|template| {
            let tools = tools.then(|| vec![json!({})]);
            template.render(&ChatInput { tools, ..ChatInput::default() }).unwrap()
        })
    };
    let dir = folder();
    tiny_llama(dir.path(), TinyOptions::default()).unwrap();
    let config = dir.path().join("tokenizer_config.json");
    write_json(
        &config,
        &json!({"eos_token": {"content": "<|im_end|>"}, "chat_template": [
            {"name": "default", "template": "plain {{ eos_token }}"},
            {"name": "tool_use", "template": "tools"},
            {"name": "rag", "template": "{% broken"},
        ]}),
    );
    assert_eq!(render(&dir, false).unwrap(), "plain <|im_end|>");
    assert_eq!(render(&dir, true).unwrap(), "tools");
    fs::write(dir.path().join("chat_template.jinja"), "file").unwrap();
    assert_eq!(render(&dir, true).unwrap(), "file");
    fs::remove_file(dir.path().join("chat_template.jinja")).unwrap();
    write_json(&config, &json!({}));
    assert_eq!(render(&dir, false), None);
}

#[test]
fn broken_text_files_are_errors() {
    let dir = folder();
    tiny_llama(dir.path(), TinyOptions::default()).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let tokenizer = Tokenizer::open(&checkpoint).unwrap();
    fs::write(dir.path().join("chat_template.jinja"), "{% if %}").unwrap();
    let error = ChatTemplate::open(&checkpoint, &tokenizer).unwrap_err().to_string();
    assert!(error.contains("chat_template.jinja: the chat template cannot be compiled"), "{error}");

    let path = dir.path().join("tokenizer.json");
    let sound: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let error = |change: &dyn Fn(&mut Value)| {
        let mut tokenizer = sound.clone();
        change(&mut tokenizer);
        write_json(&path, &tokenizer);
        Tokenizer::open(&checkpoint).unwrap_err().to_string()
    };
    assert!(
        error(&|t| t["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true})).contains("ByteLevel")
    );
    assert!(error(&|t| t["decoder"] = Value::Null).contains("a decoder of the steps []"));
    assert!(error(&|t| t["model"]["vocab"]["x"] = json!(4_000_000_000_u32)).contains("4000000000"));
    assert!(error(&|t| *t = json!([])).contains("cannot be read"));
    fs::remove_file(&path).unwrap();
    assert!(Tokenizer::open(&checkpoint).unwrap_err().to_string().contains("AutoTokenizer"));
}
