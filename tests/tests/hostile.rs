//! Files that lie: each is an error that says what is wrong, never a panic, and never an allocation that the file does not
//! back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use annulus_engine::checkpoint::{Checkpoint, LoadError};
use annulus_engine::text::{ChatTemplate, TextError, Tokenizer, end_tokens};
use annulus_tests::gguf::{Gguf, Value, array_header, small_llama};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

/// Remembers the largest allocation of this process.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// All files here are below 100 kB; whoever allocates this much has believed one of them.
const TOO_LARGE: usize = 64 << 20;

fn assert_modest() {
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(largest < TOO_LARGE, "something allocated {largest} bytes at once");
}

/// Opens a file and reads all that is in it.
fn read_all(path: &std::path::Path) -> Result<(), TextError> {
    let checkpoint = Checkpoint::open(path)?;
    for name in checkpoint.names() {
        let _ = checkpoint.tensor(name, None)?.to_f32();
        checkpoint.to_f32(name)?;
    }
    let tokenizer = Tokenizer::open(&checkpoint)?;
    end_tokens(&checkpoint, &tokenizer)?;
    ChatTemplate::open(&checkpoint, &tokenizer)?;
    Ok(())
}

fn read_gguf(bytes: &[u8]) -> Result<(), TextError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    fs::write(&path, bytes).unwrap();
    read_all(&path)
}

/// Checks that this GGUF file is refused with a message that holds all of `parts`.
#[track_caller]
fn refuse(bytes: &[u8], parts: &[&str]) {
    let error = read_gguf(bytes).unwrap_err().to_string();
    for part in parts.iter().chain(&["m.gguf"]) {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
    assert_modest();
}

/// The small file with one change.
fn changed(change: impl FnOnce(&mut Gguf)) -> Vec<u8> {
    let mut file = small_llama();
    change(&mut file);
    file.to_bytes()
}

#[test]
fn the_unchanged_file_is_sound() {
    read_gguf(&changed(|_| {})).unwrap();
}

#[test]
fn a_gguf_file_cut_off_anywhere() {
    let bytes = changed(|_| {});
    assert!(bytes.len() > 16_000);
    let all_of_the_header = 0..2_000;
    for len in all_of_the_header.chain((2_000..bytes.len()).step_by(499)).chain([bytes.len() - 1]) {
        let error = read_gguf(&bytes[..len]).unwrap_err();
        assert!(matches!(error, TextError::Load(_)), "{len}: {error}");
    }
    assert_modest();
}

#[test]
fn a_file_of_another_kind() {
    refuse(b"", &["takes 4 bytes, but the file ends after 0"]);
    refuse(&changed(|file| file.magic = *b"GGML"), &["begins with \"GGML\""]);
    refuse(b"PK\x03\x04 and so on", &["begins with \"PK\\x03\\x04\""]);
    refuse(&changed(|file| file.version = 1), &["version 1", "convert it again"]);
    refuse(&changed(|file| file.version = 3_u32.swap_bytes()), &["big-endian"]);
    refuse(&changed(|file| file.version = 4), &["version 4"]);
}

#[test]
fn counts_that_no_file_could_hold() {
    for count in [1 << 60, u64::MAX, 1 << 32, 14] {
        refuse(&changed(|file| file.claimed_tensors = Some(count)), &["tensor"]);
        refuse(&changed(|file| file.claimed_pairs = Some(count.saturating_add(10))), &[]);
    }
    let array = |items: u32, len: u64| {
        changed(|file| {
            file.set("tokenizer.ggml.tokens", Value::Raw(9, array_header(items, len)));
        })
    };
    for len in [1 << 60, u64::MAX, u64::MAX / 4 + 1] {
        for items in [0, 4, 5, 8, 9, 10] {
            // The items of an array of arrays are read from what follows, which is no array's beginning.
            let problem = if items == 9 { "value type" } else { "the file ends after" };
            refuse(&array(items, len), &["\"tokenizer.ggml.tokens\"", problem]);
        }
    }
    let string = |len: u64| {
        changed(|file| {
            file.set("general.name", Value::Raw(8, len.to_le_bytes().into()));
        })
    };
    for len in [1 << 60, u64::MAX, 1 << 20] {
        refuse(&string(len), &["\"general.name\"", "the file ends after"]);
    }
}

#[test]
fn metadata_that_is_none() {
    let value = |kind: u32, bytes: Vec<u8>| {
        changed(|file| {
            file.set("general.name", Value::Raw(kind, bytes));
        })
    };
    refuse(&value(13, vec![]), &["value type 13"]);
    refuse(&value(u32::MAX, vec![]), &["value type 4294967295"]);
    let deep = (0..64).flat_map(|_| array_header(9, 1)).collect();
    refuse(&value(9, deep), &["nests arrays"]);
    refuse(&value(8, [&2_u64.to_le_bytes()[..], &[0xff, 0xfe]].concat()), &["is not UTF-8"]);
    let twice = changed(|file| {
        file.metadata.push(("general.architecture".to_owned(), "llama".into()));
    });
    refuse(&twice, &["\"general.architecture\" is given twice"]);
}

#[test]
fn metadata_that_makes_no_model() {
    let set = |key: &str, value: Value| {
        changed(|file| {
            file.set(key, value);
        })
    };
    let without = |key: &str| changed(|file| file.metadata.retain(|(other, _)| other != key));
    refuse(&set("general.architecture", "mamba".into()), &["architecture \"mamba\"", "\"llama\""]);
    refuse(&set("general.architecture", Value::U32(1)), &["general.architecture", "a string, found 1"]);
    refuse(&without("general.architecture"), &["general.architecture", "missing"]);
    for key in ["llama.block_count", "llama.embedding_length", "llama.attention.head_count", "llama.context_length"] {
        refuse(&without(key), &[key, "missing"]);
        refuse(&set(key, Value::I32(-1)), &[key, "found -1"]);
        refuse(&set(key, "many".into()), &[key, "found a string"]);
    }
    refuse(&set("llama.attention.head_count", Value::U32(0)), &["head_count", "at least 1"]);
    refuse(&set("llama.attention.head_count", Value::U64(u64::MAX)), &["heads"]);
    refuse(&set("llama.attention.head_count", Value::U32(3)), &["blk.0.attn_q", "32 rows", "3 heads"]);
    refuse(&set("llama.attention.head_count_kv", Value::U32(0)), &["num_key_value_heads", "at least 1"]);
    refuse(&set("llama.attention.head_count_kv", Value::U32(16)), &["blk.0.attn_k", "an even number of rows"]);
    refuse(&set("llama.rope.freq_base", Value::F32(f32::NAN)), &["freq_base", "a finite number"]);
    refuse(&set("general.alignment", Value::U32(0)), &["general.alignment", "power of two"]);
    refuse(&set("general.alignment", Value::U32(48)), &["general.alignment", "power of two"]);
    refuse(&set("general.alignment", Value::U64(1 << 60)), &["general.alignment", "power of two"]);
}

#[test]
fn tokenizers_that_contradict_themselves() {
    let set = |key: &str, value: Value| {
        changed(|file| {
            file.set(key, value);
        })
    };
    let strings = |items: &[&str]| Value::Strings(items.iter().map(|item| (*item).to_owned()).collect());
    refuse(&set("tokenizer.ggml.model", "bert".into()), &["tokenizer model \"bert\"", "\"gpt2\"", "\"llama\""]);
    refuse(&set("tokenizer.ggml.model", "llama".into()), &["tokenizer.ggml.scores", "missing"]);
    let scored = |scores: Value| {
        changed(|file| {
            file.set("tokenizer.ggml.model", "llama".into()).set("tokenizer.ggml.scores", scores);
        })
    };
    refuse(&scored(Value::F32s(vec![0.0; 3])), &["12 tokens, but 3 scores"]);
    refuse(&scored(Value::I32s(vec![0; 12])), &["tokenizer.ggml.scores", "float32"]);
    refuse(&scored(Value::F32s(vec![-1000.0; 12])), &["one score", "tokenizer.model"]);
    let mut numbers: Vec<f32> = (0..12_u8).map(f32::from).collect();
    read_gguf(&scored(Value::F32s(numbers.clone()))).unwrap();
    numbers[5] = f32::NAN;
    read_gguf(&scored(Value::F32s(numbers))).unwrap();
    refuse(&set("tokenizer.ggml.token_type", Value::I32s(vec![1])), &["12 tokens, but 1 token types"]);
    refuse(&set("tokenizer.ggml.token_type", Value::I32s(vec![-1; 12])), &["without negative numbers"]);
    refuse(&set("tokenizer.ggml.tokens", Value::I32s(vec![1])), &["an array of strings", "1 I32"]);
    refuse(&set("tokenizer.ggml.tokens", strings(&[])), &["0 tokens, but 12"]);
    // A token that is one of many parts must not take time for each pair of them.
    let long = changed(|file| {
        let tokens = (0..12).map(|i| if i < 9 { "a".repeat(200_000 + i) } else { "a".repeat(i - 8) }).collect();
        file.set("tokenizer.ggml.tokens", Value::Strings(tokens)).set("tokenizer.ggml.model", "llama".into());
        file.set("tokenizer.ggml.scores", Value::F32s((0..12_u8).map(f32::from).collect()));
    });
    read_gguf(&long).unwrap();
    refuse(&set("tokenizer.ggml.merges", strings(&["12"])), &["merge \"12\""]);
    refuse(&set("tokenizer.ggml.merges", strings(&["1 x"])), &["cannot be built"]);
    refuse(&set("tokenizer.ggml.merges", strings(&["1 2"])), &["cannot be built"]);
    refuse(&set("tokenizer.ggml.eos_token_id", Value::U32(12)), &["one of the 12 tokens, found 12"]);
    refuse(&set("tokenizer.ggml.bos_token_id", Value::U64(1 << 60)), &["bos_token_id"]);
    refuse(&set("tokenizer.chat_template", "{% for %}".into()), &["cannot be compiled"]);
}

#[test]
fn tensors_that_are_not_where_they_say() {
    let tensor = |change: &dyn Fn(&mut annulus_tests::gguf::Tensor)| changed(|file| change(&mut file.tensors[4]));
    let name = "blk.0.attn_q.weight";
    let beyond = [1 << 60, u64::MAX - 31, 1 << 20];
    for offset in beyond {
        refuse(&tensor(&|t| t.claimed_offset = Some(offset)), &[name, "truncated or damaged"]);
    }
    refuse(&tensor(&|t| t.claimed_offset = Some(1)), &[name, "no multiple of 32"]);
    refuse(&tensor(&|t| t.claimed_offset = Some(0)), &["overlaps"]);
    refuse(&tensor(&|t| t.dims = vec![1 << 32, 1 << 32]), &[name, "larger than memory"]);
    refuse(&tensor(&|t| t.dims = vec![1 << 63, 2]), &[name, "larger than memory"]);
    refuse(&tensor(&|t| t.dims = vec![1 << 40, 1]), &[name, "truncated or damaged"]);
    refuse(&tensor(&|t| t.dims = vec![0, 32]), &[name, "no axis may be 0"]);
    refuse(&tensor(&|t| t.dims = vec![]), &[name, "0 axes"]);
    refuse(&tensor(&|t| t.dims = vec![1; 5]), &[name, "5 axes"]);
    refuse(&tensor(&|t| t.dims = vec![33, 32]), &[name, "blocks of 32"]);
    for (kind, encoding) in [(4, "Q4_2"), (10, "Q2_K"), (11, "Q3_K"), (20, "IQ4_NL"), (39, "MXFP4")] {
        refuse(&tensor(&|t| t.kind = kind), &[name, encoding, "supported: F32", "Q6_K", "named Q4_K_M or Q8_0"]);
    }
    for (kind, encoding) in [(12, "Q4_K"), (13, "Q5_K"), (14, "Q6_K")] {
        // The rows of this tensor have 32 elements.
        refuse(&tensor(&|t| t.kind = kind), &[name, "rows of 32 elements", encoding, "blocks of 256"]);
        refuse(&tensor(&|t| (t.kind, t.dims) = (kind, vec![256, 32])), &[name, "overlaps"]);
        refuse(&tensor(&|t| (t.kind, t.dims) = (kind, vec![256, 1 << 30])), &[name, "truncated or damaged"]);
    }
    refuse(&tensor(&|t| t.kind = u32::MAX), &[name, "number 4294967295"]);
    refuse(&tensor(&|t| "token_embd.weight".clone_into(&mut t.name)), &["token_embd.weight", "described twice"]);
    refuse(
        &tensor(&|t| "blk.0.ffn_gate_exps.weight".clone_into(&mut t.name)),
        &["ffn_gate_exps", "none that a model of architecture \"llama\" has"],
    );
    refuse(&changed(|file| file.tensors.clear()), &["token_embd.weight"]);
}

/// A folder with this as its weights.
fn folder(weights: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    fs::write(dir.path().join("model.safetensors"), weights).unwrap();
    dir
}

fn read_folder(dir: &TempDir) -> Result<(), LoadError> {
    let checkpoint = Checkpoint::open(dir.path())?;
    for name in checkpoint.names() {
        let _ = checkpoint.tensor(name, None)?.to_f32();
    }
    Ok(())
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

#[track_caller]
fn refuse_safetensors(weights: &[u8], parts: &[&str]) {
    let error = read_folder(&folder(weights)).unwrap_err().to_string();
    for part in parts.iter().chain(&["model.safetensors"]) {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
    assert_modest();
}

const SOUND: &str =
    r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[1,2],"data_offsets":[8,12]}}"#;

#[test]
fn a_safetensors_file_cut_off_anywhere() {
    let bytes = safetensors(SOUND, &[0; 12]);
    read_folder(&folder(&bytes)).unwrap();
    for len in 0..bytes.len() {
        refuse_safetensors(&bytes[..len], &[]);
    }
    refuse_safetensors(&bytes[..bytes.len() - 2], &["\"b\"", "ends at byte 12", "the file holds 10", "truncated"]);
    refuse_safetensors(&[&bytes[..], &[0]].concat(), &["not where its last tensor ends"]);
}

#[test]
fn a_safetensors_header_that_lies() {
    let claims = |len: u64| [&len.to_le_bytes()[..], b"{}"].concat();
    refuse_safetensors(&claims(1 << 60), &["1152921504606846976", "no safetensors file"]);
    refuse_safetensors(&claims(u64::MAX), &["no safetensors file"]);
    refuse_safetensors(&claims(99_999_999), &["has 10 in all"]);
    refuse_safetensors(b"1234", &["has 4 bytes"]);
    refuse_safetensors(&safetensors("[]", &[]), &["not what safetensors defines"]);
    refuse_safetensors(&safetensors(&"[".repeat(100_000), &[]), &["not what safetensors defines"]);
    let not_utf8 = [&3_u64.to_le_bytes()[..], &[b'{', 0xff, b'}']].concat();
    refuse_safetensors(&not_utf8, &["not UTF-8"]);
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        let header = format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#);
        safetensors(&header, &[0; 8])
    };
    refuse_safetensors(&entry("F32", "[3]", "[0,8]"), &["\"a\"", "shape [3] takes 12 bytes"]);
    refuse_safetensors(&entry("F32", "[4294967296,4294967296]", "[0,8]"), &["\"a\"", "larger than memory"]);
    refuse_safetensors(&entry("F32", "[2]", "[4,12]"), &["\"a\"", "overlap or leave a hole"]);
    refuse_safetensors(&entry("F32", "[2]", "[8,0]"), &["\"a\""]);
    refuse_safetensors(&entry("F32", "[2]", "[0,18446744073709551615]"), &["\"a\""]);
    refuse_safetensors(&entry("F32", "[-2]", "[0,8]"), &["not what safetensors defines"]);
    refuse_safetensors(&entry("F99", "[2]", "[0,8]"), &["not what safetensors defines"]);
    refuse_safetensors(&entry("F8_E4M3", "[8]", "[0,8]"), &["\"a\"", "F8_E4M3", "not supported"]);
}

#[test]
fn safetensors_that_share_bytes_or_names() {
    let overlap = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#;
    refuse_safetensors(&safetensors(overlap, &[0; 12]), &["\"b\"", "overlap"]);
    let twice = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}}"#;
    refuse_safetensors(&safetensors(twice, &[0; 8]), &["\"a\"", "described twice"]);
    let dir = folder(&safetensors(SOUND, &[0; 12]));
    fs::copy(dir.path().join("model.safetensors"), dir.path().join("model-2.safetensors")).unwrap();
    let error = read_folder(&dir).unwrap_err().to_string();
    assert!(error.contains("tensor \"a\" lies in") && error.contains("too"), "{error}");
}

#[test]
fn an_index_that_lies() {
    let dir = folder(&safetensors(SOUND, &[0; 12]));
    let error = |index: &serde_json::Value| {
        fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        read_folder(&dir).unwrap_err().to_string()
    };
    let message = error(&json!({"weight_map": {"a": "model.safetensors", "c": "model.safetensors"}}));
    assert!(message.contains("tensor \"c\" lies in model.safetensors, but it is not there"), "{message}");
    let message = error(&json!({"weight_map": {"a": "other.safetensors"}}));
    assert!(message.contains("tensor \"a\" lies in other.safetensors, but there is no such file"), "{message}");
    for name in ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..\\x.safetensors", "model.bin"] {
        let message = error(&json!({"weight_map": {"a": name}}));
        assert!(message.contains("\"weight_map.a\" must be a .safetensors file beside the index"), "{message}");
    }
    assert!(error(&json!({"weight_map": {}})).contains("names no tensor"));
    assert!(error(&json!({"weight_map": {"a": 1}})).contains("must be a string, found 1"));
    assert!(error(&json!({})).contains("\"weight_map\" is missing"));
    assert!(error(&json!([])).contains("a JSON object was expected, found a list"));
}

#[test]
fn folders_that_hold_no_model() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: PathBuf| Checkpoint::open(&path).unwrap_err().to_string();
    assert!(open(dir.path().join("none")).contains("no such file or folder"));
    assert!(open(dir.path().to_owned()).contains("neither a config.json nor a .gguf"));
    for name in ["a.gguf", "b.gguf"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    assert!(open(dir.path().to_owned()).contains("name one of a.gguf, b.gguf"));
    fs::write(dir.path().join("config.json"), "{\"a\": 1").unwrap();
    assert!(open(dir.path().to_owned()).contains("config.json: is not valid JSON"));
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    assert!(open(dir.path().to_owned()).contains("there are no weights"));
    fs::create_dir(dir.path().join("model.safetensors")).unwrap();
    assert!(open(dir.path().to_owned()).contains("model.safetensors"));
    fs::write(dir.path().join("generation_config.json"), "{\"temperature\": \"hot\"}").unwrap();
    assert!(open(dir.path().to_owned()).contains("generation_config.json: field \"temperature\""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Whatever bytes are changed, reading ends in a model or an error.
    #[test]
    fn a_mutated_gguf_file(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        header_only in prop::bool::weighted(0.8),
        newer in any::<bool>(),
    ) {
        let mut bytes = changed(|file| {
            let more: [(&str, u64, u32, usize); 5] = [
                ("blk.1.attn_q.weight", 32, 6, 22),
                ("blk.1.attn_v.weight", 32, 7, 24),
                ("blk.1.ffn_up.weight", 256, 12, 144),
                ("blk.1.ffn_gate.weight", 256, 13, 176),
                ("blk.1.ffn_down.weight", 256, 14, 210),
            ];
            for (name, columns, kind, size) in more.into_iter().filter(|_| newer) {
                file.tensor(name, &[columns, 2], kind, vec![0x35; 2 * size]);
            }
        });
        let end = if header_only { 1_700 } else { bytes.len() };
        for (at, value) in changes {
            bytes[at.index(end)] = value;
        }
        let _ = read_gguf(&bytes);
        assert_modest();
    }

    #[test]
    fn a_mutated_safetensors_file(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = safetensors(SOUND, &[0; 12]);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = read_folder(&folder(&bytes));
        assert_modest();
    }
}
