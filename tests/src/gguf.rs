//! GGUF files for tests, written from the format's description and not from our reader.

/// A metadata value.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names are the format's own")]
pub enum Value {
    U8(u8),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Strings(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    U64(u64),
    /// A value type by number, and bytes that follow it.
    Raw(u32, Vec<u8>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

/// A tensor with its data.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its axes, fastest first, as the file has them.
    pub dims: Vec<u64>,
    /// The number of its encoding.
    pub kind: u32,
    /// Its bytes.
    pub data: Vec<u8>,
    /// Where the file says that they begin, instead of where they do.
    pub claimed_offset: Option<u64>,
}

/// A GGUF file in parts.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// What it begins with: `GGUF`.
    pub magic: [u8; 4],
    /// 3, today.
    pub version: u32,
    /// Metadata in order.
    pub metadata: Vec<(String, Value)>,
    /// Tensors in order.
    pub tensors: Vec<Tensor>,
    /// The number of tensors that the header claims, instead of the true one.
    pub claimed_tensors: Option<u64>,
    /// The number of metadata pairs that the header claims, instead of the true one.
    pub claimed_pairs: Option<u64>,
    /// The boundary that tensors are put on.
    pub alignment: usize,
}

impl Default for Gguf {
    fn default() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            metadata: Vec::new(),
            tensors: Vec::new(),
            claimed_tensors: None,
            claimed_pairs: None,
            alignment: 32,
        }
    }
}

impl Gguf {
    /// Adds a metadata pair.
    pub fn set(&mut self, key: &str, value: Value) -> &mut Self {
        self.metadata.retain(|(other, _)| other != key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Adds a tensor; `dims` has the fastest axis first.
    pub fn tensor(&mut self, name: &str, dims: &[u64], kind: u32, data: Vec<u8>) -> &mut Self {
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), kind, data, claimed_offset: None });
        self
    }

    /// The file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.magic);
        out.extend(self.version.to_le_bytes());
        out.extend(self.claimed_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.claimed_pairs.unwrap_or(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            put(&mut out, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            string(&mut out, &tensor.name);
            out.extend(u32::try_from(tensor.dims.len()).unwrap_or(u32::MAX).to_le_bytes());
            for dim in &tensor.dims {
                out.extend(dim.to_le_bytes());
            }
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.claimed_offset.unwrap_or(offset as u64).to_le_bytes());
            offset = (offset + tensor.data.len()).next_multiple_of(self.alignment);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&tensor.data);
        }
        out
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put(out: &mut Vec<u8>, value: &Value) {
    let (kind, bytes): (u32, Vec<u8>) = match value {
        Value::U8(value) => (0, value.to_le_bytes().into()),
        Value::U32(value) => (4, value.to_le_bytes().into()),
        Value::I32(value) => (5, value.to_le_bytes().into()),
        Value::F32(value) => (6, value.to_le_bytes().into()),
        Value::Bool(value) => (7, vec![(*value).into()]),
        Value::U64(value) => (10, value.to_le_bytes().into()),
        Value::String(value) => {
            let mut bytes = Vec::new();
            string(&mut bytes, value);
            (8, bytes)
        }
        Value::Strings(values) => {
            let mut bytes = array_header(8, values.len() as u64);
            values.iter().for_each(|value| string(&mut bytes, value));
            (9, bytes)
        }
        Value::I32s(values) => {
            let mut bytes = array_header(5, values.len() as u64);
            values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            (9, bytes)
        }
        Value::F32s(values) => {
            let mut bytes = array_header(6, values.len() as u64);
            values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            (9, bytes)
        }
        Value::Raw(kind, bytes) => (*kind, bytes.clone()),
    };
    out.extend(kind.to_le_bytes());
    out.extend(bytes);
}

/// A file in so many parts as llama.cpp's `gguf-split` makes them: all metadata in the first, tensors in order.
#[must_use]
pub fn split(file: &Gguf, count: usize) -> Vec<Gguf> {
    let number = |value: usize| Value::Raw(2, u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes().into());
    let total = i32::try_from(file.tensors.len()).unwrap_or(i32::MAX);
    let bound = |part: usize| file.tensors.len() * part / count;
    (0..count)
        .map(|part| {
            let mut shard = Gguf { tensors: file.tensors[bound(part)..bound(part + 1)].to_vec(), ..Gguf::default() };
            if part == 0 {
                shard.metadata.clone_from(&file.metadata);
            }
            shard.set("split.no", number(part)).set("split.count", number(count));
            shard.set("split.tensors.count", Value::I32(total));
            shard
        })
        .collect()
}

/// The beginning of an array: the type of its items, and how many there are.
#[must_use]
pub fn array_header(items: u32, len: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = items.to_le_bytes().into();
    bytes.extend(len.to_le_bytes());
    bytes
}

/// A small sound Llama file: one layer, byte-level tokenizer of the ten digits and two control tokens, every encoding.
#[must_use]
pub fn small_llama() -> Gguf {
    let mut file = Gguf::default();
    let tokens: Vec<String> = ["<|endoftext|>".to_owned(), "<|im_end|>".to_owned()]
        .into_iter()
        .chain((0..10).map(|digit| digit.to_string()))
        .collect();
    let kinds = [3, 3].into_iter().chain([1; 10]).collect();
    file.set("general.architecture", "llama".into())
        .set("llama.block_count", Value::U32(1))
        .set("llama.context_length", Value::U32(64))
        .set("llama.embedding_length", Value::U32(32))
        .set("llama.feed_forward_length", Value::U32(64))
        .set("llama.attention.head_count", Value::U32(2))
        .set("llama.attention.head_count_kv", Value::U32(1))
        .set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5))
        .set("llama.rope.freq_base", Value::F32(10000.0))
        .set("tokenizer.ggml.model", "gpt2".into())
        .set("tokenizer.ggml.pre", "smollm".into())
        .set("tokenizer.ggml.tokens", Value::Strings(tokens))
        .set("tokenizer.ggml.token_type", Value::I32s(kinds))
        .set("tokenizer.ggml.merges", Value::Strings(vec![]))
        .set("tokenizer.ggml.eos_token_id", Value::U32(0))
        .set("tokenizer.chat_template", "{{ messages[0].content }}".into());
    // (name, dims with the fastest first, encoding, bytes for 32 elements)
    let tensors: [(&str, &[u64], u32, usize); 12] = [
        ("token_embd.weight", &[32, 12], 8, 34),
        ("output_norm.weight", &[32], 0, 128),
        ("blk.0.attn_norm.weight", &[32], 0, 128),
        ("blk.0.ffn_norm.weight", &[32], 0, 128),
        ("blk.0.attn_q.weight", &[32, 32], 3, 20),
        ("blk.0.attn_k.weight", &[32, 16], 2, 18),
        ("blk.0.attn_v.weight", &[32, 16], 1, 64),
        ("blk.0.attn_output.weight", &[32, 32], 30, 64),
        ("blk.0.ffn_gate.weight", &[32, 64], 0, 128),
        ("blk.0.ffn_up.weight", &[32, 64], 8, 34),
        ("blk.0.ffn_down.weight", &[64, 32], 3, 20),
        ("blk.0.attn_q.bias", &[32], 0, 128),
    ];
    let mut random = crate::tiny::Random::new(7);
    for (name, dims, kind, bytes) in tensors {
        let blocks = usize::try_from(dims.iter().product::<u64>() / 32).unwrap_or(0);
        let mut data = Vec::new();
        for _ in 0..blocks {
            let mut block: Vec<u8> = match kind {
                0 => (0..32).flat_map(|_| random.uniform().to_le_bytes()).collect(),
                _ => (0..bytes).map(|_| random.byte()).collect(),
            };
            if kind != 0 {
                // Keeps float16 and bfloat16 finite: the scale of a block, or each element.
                let odd = if kind == 2 || kind == 3 || kind == 8 { 4.min(bytes) } else { bytes };
                block[..odd].iter_mut().skip(1).step_by(2).for_each(|byte| *byte &= 0xbf);
            }
            data.extend(block);
        }
        file.tensor(name, dims, kind, data);
    }
    file
}

/// The encodings that a matrix can have, by their numbers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the format's own")]
#[allow(non_camel_case_types, reason = "the names are the format's own")]
pub enum Kind {
    F32 = 0,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
}

impl Kind {
    /// Elements and bytes of a block, and where it holds float16 numbers, as their bits: they make weights of about 0.1 that
    /// are centred on zero.
    fn block(self) -> (usize, usize, &'static [(usize, u16)]) {
        match self {
            Self::F32 => (1, 4, &[]),
            Self::Q4_0 => (32, 18, &[(0, 0x2400)]),
            Self::Q4_1 => (32, 20, &[(0, 0x2400), (2, 0xaf80)]),
            Self::Q5_0 => (32, 22, &[(0, 0x2000)]),
            Self::Q5_1 => (32, 24, &[(0, 0x2000), (2, 0xafc0)]),
            Self::Q8_0 => (32, 34, &[(0, 0x1400)]),
            Self::Q4_K => (256, 144, &[(0, 0x0c00), (2, 0x1780)]),
            Self::Q5_K => (256, 176, &[(0, 0x0800), (2, 0x17c0)]),
            Self::Q6_K => (256, 210, &[(208, 0x0400)]),
        }
    }

    /// Random numbers in this encoding, as bytes.
    fn random(self, elements: usize, random: &mut crate::tiny::Random) -> Vec<u8> {
        if self == Self::F32 {
            return (0..elements).flat_map(|_| (random.uniform() / 4.0).to_le_bytes()).collect();
        }
        let (in_block, bytes, halves) = self.block();
        let mut data = Vec::new();
        for _ in 0..elements / in_block {
            let mut block: Vec<u8> = (0..bytes).map(|_| random.byte()).collect();
            for (at, bits) in halves {
                block[*at..at + 2].copy_from_slice(&bits.to_le_bytes());
            }
            data.extend(block);
        }
        data
    }
}

/// A random Llama of two layers whose matrices have the encodings that `kind` says, by their names: width 256, heads of 64,
/// and a byte-level tokenizer of all bytes and the special tokens of [`tiny`](crate::tiny).
pub fn llama_of(kind: impl Fn(&str) -> Kind) -> Gguf {
    let mut file = Gguf::default();
    file.set("general.architecture", "llama".into())
        .set("llama.block_count", Value::U32(2))
        .set("llama.context_length", Value::U32(256))
        .set("llama.embedding_length", Value::U32(256))
        .set("llama.feed_forward_length", Value::U32(512))
        .set("llama.attention.head_count", Value::U32(4))
        .set("llama.attention.head_count_kv", Value::U32(2))
        .set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5))
        .set("tokenizer.ggml.model", "gpt2".into())
        .set("tokenizer.ggml.tokens", Value::Strings(crate::tiny::tokens()))
        .set("tokenizer.ggml.token_type", Value::I32s([1; 256].into_iter().chain([3; 3]).collect()))
        .set("tokenizer.ggml.merges", Value::Strings(vec![]))
        .set("tokenizer.ggml.eos_token_id", Value::U32(crate::tiny::IM_END));
    let mut random = crate::tiny::Random::new(11);
    let mut matrix = |file: &mut Gguf, name: &str, columns: usize, rows: usize| {
        let kind = kind(name);
        let data = kind.random(columns * rows, &mut random);
        file.tensor(name, &[columns as u64, rows as u64], kind as u32, data);
    };
    let norm = || [1.0_f32; 256].iter().flat_map(|one| one.to_le_bytes()).collect();
    matrix(&mut file, "token_embd.weight", 256, 259);
    file.tensor("output_norm.weight", &[256], 0, norm());
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        file.tensor(&name("attn_norm"), &[256], 0, norm());
        file.tensor(&name("ffn_norm"), &[256], 0, norm());
        for (part, columns, rows) in [
            ("attn_q", 256, 256),
            ("attn_k", 256, 128),
            ("attn_v", 256, 128),
            ("attn_output", 256, 256),
            ("ffn_gate", 256, 512),
            ("ffn_up", 256, 512),
            ("ffn_down", 512, 256),
        ] {
            matrix(&mut file, &name(part), columns, rows);
        }
    }
    file
}
