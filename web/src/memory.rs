//! Bytes of named models: the planner's columns times the planner's bytes of a column.

use annulus_plan::{Error, Format, Growth, Heads, Kind, Layout, Refusal, Source, Window, column_bytes};
use serde::Serialize;

/// A model, as far as its cache goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// Its layers, those of a kind together.
    pub layers: &'static [Layers],
}

/// Layers that keep the same columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Layers {
    /// How many there are.
    pub count: u32,
    /// The window; absent where attention is full.
    pub window: Option<u32>,
    /// The keys of one token.
    pub heads: Heads,
}

/// What a model's rows take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// How many columns the planes of each kind of layer have, in the model's order.
    pub columns: Vec<u32>,
    /// The bytes in each representation.
    pub formats: Vec<Bytes>,
}

/// The bytes of one representation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Its name.
    pub name: &'static str,
    /// Its integers.
    pub format: Format,
    /// All layers, all rows.
    pub bytes: u64,
    /// All layers, one column of one row.
    pub column: u64,
}

/// The representations shown.
pub const FORMATS: [(&str, Format); 3] = [
    ("16-bit", Format::Plain { bits: 16 }),
    ("8-bit", Format::Affine { bits: 8, group: 64, scale_bits: 16 }),
    ("4-bit", Format::Affine { bits: 4, group: 64, scale_bits: 16 }),
];

const fn full(count: u32, kv_heads: u32, head_dim: u32) -> Layers {
    Layers { count, window: None, heads: Heads { kv_heads, head_dim } }
}

const fn sliding(count: u32, window: u32, kv_heads: u32, head_dim: u32) -> Layers {
    Layers { count, window: Some(window), heads: Heads { kv_heads, head_dim } }
}

/// The named models, from their published configurations.
pub const MODELS: [Model; 7] = [
    Model { name: "SmolLM2 135M", layers: &[full(30, 3, 64)] },
    Model { name: "Llama 3.2 1B", layers: &[full(16, 8, 64)] },
    Model { name: "Llama 3.1 8B", layers: &[full(32, 8, 128)] },
    Model { name: "Qwen3 4B", layers: &[full(36, 8, 128)] },
    Model { name: "Mistral 7B v0.1", layers: &[sliding(32, 4096, 8, 128)] },
    Model { name: "Gemma 3 4B", layers: &[full(5, 4, 256), sliding(29, 1024, 4, 256)] },
    Model { name: "gpt-oss 20B", layers: &[full(12, 8, 64), sliding(12, 128, 8, 64)] },
];

/// The model of a name.
pub fn named(name: &str) -> Result<&'static Model, Refusal> {
    let unknown = || Refusal {
        step: None,
        op: Some("memory".to_owned()),
        field: Some("model".to_owned()),
        message: format!("memory.model: no model is named {name:?}"),
    };
    MODELS.iter().find(|model| model.name == name).ok_or_else(unknown)
}

/// What `rows` rows take that were prefilled with so many tokens and have decoded one more.
pub fn memory(model: &Model, tokens: u32, rows: u32) -> Result<Memory, Error> {
    let columns: Vec<u32> =
        model.layers.iter().map(|layers| capacity(layers.window, tokens, rows)).collect::<Result<_, _>>()?;
    let bytes = |&(name, format): &(&'static str, Format)| {
        let (mut bytes, mut column) = (0u64, 0u64);
        for (layers, &columns) in model.layers.iter().zip(&columns) {
            let one = column_bytes(format, layers.heads)?.saturating_mul(layers.count.into());
            column = column.saturating_add(one);
            bytes = bytes.saturating_add(one.saturating_mul(columns.into()).saturating_mul(rows.into()));
        }
        Ok(Bytes { name, format, bytes, column })
    };
    let formats = FORMATS.iter().map(bytes).collect::<Result<_, Error>>()?;
    Ok(Memory { columns, formats })
}

/// The bytes that copying so many stored columns moves in all layers of one kind, at 16 bits.
pub fn moved(model: &Model, rotating: bool, columns: u64) -> Result<u64, Error> {
    let kind = model.layers.iter().filter(|layers| layers.window.is_some() == rotating);
    kind.map(|layers| {
        Ok(column_bytes(FORMATS[0].1, layers.heads)?.saturating_mul(layers.count.into()).saturating_mul(columns))
    })
    .sum()
}

/// The columns of the planes after one decode step, as the planner lays them out.
fn capacity(window: Option<u32>, tokens: u32, rows: u32) -> Result<u32, Error> {
    let kind = window.map_or(Kind::Full, |size| Kind::Ring(Window::of(size)));
    let held = window.map_or(tokens, |size| tokens.min(size));
    let source = Source { columns: held, capacity: held, ..Source::whole(tokens) };
    let merged = Layout::merge(kind, Growth::default(), &vec![source; rows as usize])?.next;
    Ok(merged.append(1)?.next.capacity())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 layers of 3 heads of 64: 30 * 3 * 64 * 2 numbers a column. 300 tokens and one more lie in 512 columns.
    #[test]
    fn a_model_of_full_attention() {
        let memory = memory(&MODELS[0], 300, 2).expect("small");
        assert_eq!(memory.columns, [512]);
        assert_eq!(memory.formats[0].column, 30 * 3 * 64 * 2 * 2);
        assert_eq!(memory.formats[0].bytes, 512 * 2 * 30 * 3 * 64 * 2 * 2);
    }

    /// However long the prompt, the layers with a window keep one window.
    #[test]
    fn windows_do_not_grow() {
        let gemma = named("Gemma 3 4B").expect("named");
        let memory = memory(gemma, 100_000, 1).expect("planned");
        assert_eq!(memory.columns[1], 1024);
        assert_eq!(memory.columns[0], 100_096);
    }

    #[test]
    fn only_the_layers_of_the_kind_move() {
        let gemma = named("Gemma 3 4B").expect("named");
        assert_eq!(moved(gemma, true, 3), Ok(3 * 29 * 4 * 256 * 2 * 2));
        assert_eq!(moved(gemma, false, 3), Ok(3 * 5 * 4 * 256 * 2 * 2));
    }

    #[test]
    fn an_unknown_model_is_refused_at_its_field() {
        assert_eq!(named("none").expect_err("unknown").field.as_deref(), Some("model"));
    }
}
