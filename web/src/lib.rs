//! `annulus-plan` for JavaScript.
//!
//! # Layout
//! - this file: what JavaScript may call, and nothing else;
//! - [`stills`]: a scenario frame by frame, kept compactly so that a page can scrub through large ones;
//! - [`guide`]: from "two prompts, then a draft" to the operations of a scenario;
//! - [`memory`]: bytes of named models;
//! - [`rust_test`]: a scenario as a Rust test;
//! - [`exception`]: the planner's errors as exceptions.
//!
//! Values cross the boundary as JSON or as typed arrays. Their TypeScript types are in `types.d.ts`, which wasm-bindgen copies
//! into what it writes; a test compiles real output against them.

pub mod exception;
pub mod guide;
pub mod memory;
pub mod rust_test;
pub mod stills;

use annulus_plan::inspect::Options;
use annulus_plan::scenario::read_kind;
use annulus_plan::{Format, Heads, Rule};
use js_sys::JSON;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wasm_bindgen::prelude::*;

use exception::exception;
use stills::Stills;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");

/// Replays a file of scenarios, or the geometry log of a server: one line of output a scenario, in order. Never throws: what is
/// wrong with a scenario stands in its line.
#[wasm_bindgen]
pub fn replay(text: &str) -> String {
    annulus_plan::replay(text)
}

/// The same for a person.
#[wasm_bindgen]
pub fn explain(text: &str) -> String {
    annulus_plan::explain(text).0
}

/// Every frame of a scenario. Throws a `PlanError` where an operation is refused; an `Inspector` keeps the frames before it.
#[wasm_bindgen(unchecked_return_type = "Inspection")]
pub fn inspect(
    #[wasm_bindgen(unchecked_param_type = "Line | Scenario | string")] scenario: &JsValue,
    #[wasm_bindgen(unchecked_optional_param_type = "Options")] options: &JsValue,
) -> Result<JsValue, JsValue> {
    let line = stills::line(&text(scenario)?).map_err(|e| exception(&e))?;
    let inspection = annulus_plan::inspect::inspect(&line.to_string(), read_options(options)?);
    match &inspection.error {
        Some(error) => Err(exception(error)),
        None => give(&inspection),
    }
}

/// The bytes of one column of one row in one layer, keys and values together.
#[wasm_bindgen(js_name = columnBytes)]
pub fn column_bytes(
    #[wasm_bindgen(unchecked_param_type = "Format")] format: &JsValue,
    #[wasm_bindgen(unchecked_param_type = "Heads")] heads: &JsValue,
) -> Result<f64, JsValue> {
    let (format, heads): (Format, Heads) = (read(format, "format")?, read(heads, "heads")?);
    annulus_plan::column_bytes(format, heads).map(|n| n as f64).map_err(|e| exception(&stills::refusal(&e)))
}

/// The definition: whether a query at one position sees the key at another.
#[wasm_bindgen]
pub fn sees(
    #[wasm_bindgen(unchecked_param_type = "Cache")] cache: &JsValue,
    query: i32,
    key: i32,
) -> Result<bool, JsValue> {
    let kind = read_kind(&read(cache, "cache")?).map_err(|e| exception(&stills::refusal(&e)))?;
    Ok(Rule::from(kind).sees(query.into(), key.into()))
}

/// The operations of a guide, and which of its cards made which of them.
#[wasm_bindgen(unchecked_return_type = "Built")]
pub fn build(#[wasm_bindgen(unchecked_param_type = "Guide")] guide: &JsValue) -> Result<JsValue, JsValue> {
    give(&guide::build(&read(guide, "guide")?))
}

/// A Rust test that holds the scenario to the planner's laws.
#[wasm_bindgen(js_name = rustTest)]
pub fn rust_test(
    #[wasm_bindgen(unchecked_param_type = "Line | Scenario | string")] scenario: &JsValue,
) -> Result<String, JsValue> {
    let line = stills::line(&text(scenario)?).map_err(|e| exception(&e))?;
    Ok(rust_test::rust_test(&line))
}

/// The models whose memory is known.
#[wasm_bindgen(unchecked_return_type = "Model[]")]
pub fn models() -> Result<JsValue, JsValue> {
    give(&memory::MODELS)
}

/// The bytes that rows of so many tokens take in a named model, in each representation.
///
/// Not `memory`: every wasm exports its linear memory under that name.
#[wasm_bindgen(js_name = modelMemory, unchecked_return_type = "Memory")]
pub fn model_memory(model: &str, tokens: u32, rows: u32) -> Result<JsValue, JsValue> {
    let model = memory::named(model).map_err(|e| exception(&e))?;
    give(&memory::memory(model, tokens, rows).map_err(|e| exception(&stills::refusal(&e)))?)
}

/// The bytes that copying so many stored columns of one layout moves in a named model: its layers of that kind together.
#[wasm_bindgen(js_name = movedBytes)]
pub fn moved_bytes(model: &str, rotating: bool, columns: f64) -> Result<f64, JsValue> {
    let model = memory::named(model).map_err(|e| exception(&e))?;
    memory::moved(model, rotating, columns as u64).map(|n| n as f64).map_err(|e| exception(&stills::refusal(&e)))
}

/// A scenario as it runs, frame by frame.
///
/// Made from a scenario it holds its operations and plans none; `advance` plans the next. `push` adds an operation and plans
/// it: this is how a running server is followed.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Inspector(Stills);

#[wasm_bindgen]
impl Inspector {
    /// Reads a scenario; throws when it is none.
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(unchecked_param_type = "Line | Scenario | string")] scenario: &JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "Options")] options: &JsValue,
    ) -> Result<Self, JsValue> {
        let line = stills::line(&text(scenario)?).map_err(|e| exception(&e))?;
        Stills::new(&line, read_options(options)?).map(Self).map_err(|e| exception(&e))
    }

    /// Plans the next operation. Returns whether there is another one; throws when the operation is refused.
    pub fn advance(&mut self) -> Result<bool, JsValue> {
        self.0.advance().map_err(|e| exception(&e))
    }

    /// Adds an operation and plans it. With the state that a server recorded after it, the two must agree.
    pub fn push(
        &mut self,
        #[wasm_bindgen(unchecked_param_type = "Op")] op: &JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "State")] state: &JsValue,
    ) -> Result<(), JsValue> {
        let recorded: Option<Value> = if state.is_undefined() { None } else { Some(read(state, "state")?) };
        self.0.push(read(op, "op")?, recorded.as_ref()).map_err(|e| exception(&e))
    }

    /// How many operations there are, planned or not.
    #[wasm_bindgen(getter)]
    pub fn total(&self) -> usize {
        self.0.total()
    }

    /// How many operations were planned.
    #[wasm_bindgen(getter)]
    pub fn length(&self) -> usize {
        self.0.length()
    }

    /// The first step that is still kept.
    #[wasm_bindgen(getter)]
    pub fn first(&self) -> usize {
        self.0.first()
    }

    /// How many cells all kept steps hold together.
    #[wasm_bindgen(getter)]
    pub fn cells(&self) -> f64 {
        self.0.cells() as f64
    }

    /// Forgets the oldest steps, so that no more than so many cells are kept.
    pub fn forget(&mut self, cells: f64) {
        self.0.forget(cells as u64);
    }

    /// All of a step but its cells and queries.
    #[wasm_bindgen(unchecked_return_type = "Head")]
    pub fn head(&self, step: usize) -> Result<JsValue, JsValue> {
        JSON::parse(self.still(step)?.head())
    }

    /// The kind of every cell, row by row: an index into `KINDS`, plus 8 where the next append drops or overwrites the cell.
    pub fn kinds(&self, step: usize) -> Result<Vec<u8>, JsValue> {
        Ok(self.still(step)?.kinds().to_vec())
    }

    /// The position of every cell of a row; `NO_POSITION` where no token counts.
    pub fn positions(&self, step: usize, row: usize) -> Result<Vec<i32>, JsValue> {
        Ok(self.still(step)?.positions(row).to_vec())
    }

    /// The tag of every cell of a row; exact up to 2^53.
    pub fn tags(&self, step: usize, row: usize) -> Result<Vec<f64>, JsValue> {
        Ok(self.still(step)?.tags(row).to_vec())
    }

    /// The columns in use from the oldest to the newest, pinned ones first.
    pub fn order(&self, step: usize) -> Result<Vec<u32>, JsValue> {
        Ok(self.still(step)?.order().to_vec())
    }

    /// The visible runs of every query of a row of an append, in physical columns.
    #[wasm_bindgen(unchecked_return_type = "Range[][]")]
    pub fn runs(&self, step: usize, row: usize) -> Result<JsValue, JsValue> {
        give(&self.still(step)?.runs(row))
    }

    /// Every query of a row of an append, beside the definition.
    #[wasm_bindgen(unchecked_return_type = "Compared[]")]
    pub fn queries(&self, step: usize, row: usize) -> Result<JsValue, JsValue> {
        give(&self.still(step)?.queries(row))
    }

    fn still(&self, step: usize) -> Result<&stills::Still, JsValue> {
        self.0.still(step).ok_or_else(|| exception(&stills::no_step(step)))
    }
}

/// A scenario as text, whether it came as text or as an object.
fn text(value: &JsValue) -> Result<String, JsValue> {
    match value.as_string() {
        Some(text) => Ok(text),
        None => JSON::stringify(value)?.as_string().ok_or_else(|| exception(&stills::not_json("a scenario"))),
    }
}

fn read<T: DeserializeOwned>(value: &JsValue, what: &str) -> Result<T, JsValue> {
    serde_json::from_str(&text(value)?).map_err(|error| exception(&stills::not_json(&format!("{what}: {error}"))))
}

fn read_options(value: &JsValue) -> Result<Options, JsValue> {
    if value.is_undefined() { Ok(Options::default()) } else { read(value, "options") }
}

fn give(value: &(impl Serialize + ?Sized)) -> Result<JsValue, JsValue> {
    // Maps with string keys, strings and integers: there is nothing that could fail to serialize.
    JSON::parse(&serde_json::to_string(value).unwrap_or_default())
}
