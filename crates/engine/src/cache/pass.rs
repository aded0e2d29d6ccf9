//! One forward pass over a cache.

use annulus_plan::{Columns, Layout, Step};
use mlx_rs::Array;

use super::Cache;
use super::attention::Fetched;
use super::execute::{Inputs, Program};
use super::planes::Planes;
use super::visible::Visible;
use crate::error::{Error, Result};
use crate::ops;
use crate::rope::{Rope, RopePositions};

/// A step of one layout, ready for its layers.
#[derive(Debug)]
struct Planned {
    program: Program,
    next: Layout,
    fetch: Columns,
    /// Captured before the write: keys, queries and layers that share them turn by the same positions.
    positions: RopePositions,
    visible: Visible,
}

impl Planned {
    fn new(step: Step<Layout>, rows: usize) -> Result<Self> {
        Ok(Self {
            program: Program::new(step.ops, rows)?,
            next: step.next,
            fetch: step.fetch,
            positions: RopePositions::new(&step.rope),
            visible: Visible::new(step.mask),
        })
    }
}

/// One forward pass over a cache: the plan of its append, and the planes built so far.
#[derive(Debug)]
pub struct Pass<'c> {
    cache: &'c Cache,
    columns: u32,
    steps: Vec<Planned>,
    layers: Vec<Option<Built>>,
}

/// What a layer's turn in the pass has led to.
#[derive(Debug)]
struct Built {
    planes: Planes,
    /// What attention read: layers that share this one's columns read the same.
    fetched: Fetched,
}

/// The outcome of a pass, no longer bound to the cache.
#[derive(Debug)]
pub struct Staged {
    /// The columns that it appends to every row.
    pub(super) columns: u32,
    pub(super) layouts: Vec<Layout>,
    pub(super) planes: Vec<Option<Planes>>,
}

impl<'c> Pass<'c> {
    /// Plans a step of every layout, which appends `columns` columns to every row.
    pub(super) fn new(
        cache: &'c Cache,
        columns: u32,
        plan: impl Fn(&Layout) -> std::result::Result<Step<Layout>, annulus_plan::Error>,
    ) -> Result<Self> {
        let steps =
            cache.layouts.iter().map(|layout| Planned::new(plan(layout)?, layout.rows())).collect::<Result<_>>()?;
        Ok(Self { cache, columns, steps, layers: cache.layers.iter().map(|_| None).collect() })
    }

    /// The attention of one layer: turns queries and keys by their positions, writes keys and values, and attends to
    /// what the plan lets each query see.
    ///
    /// `queries` is `[B, heads, L, D]`, `keys` and `values` are `[B, kv_heads, L, D]`; the result is `[B, L, heads * D]`.
    ///
    /// # Errors
    /// When shapes do not fit, or a layer is asked for twice or does not exist.
    #[allow(clippy::needless_pass_by_value, reason = "the cache takes values over; keys are turned first")]
    pub fn attend(
        &mut self,
        layer: usize,
        queries: &Array,
        keys: &Array,
        values: Array,
        rope: &Rope,
        scale: f32,
    ) -> Result<Array> {
        let (Some(slot), Some(None)) = (self.cache.layers.get(layer), self.layers.get(layer)) else {
            return Err(Error::Unsupported(format!("layer {layer} has no cache, or was run twice in one pass")));
        };
        let planned = &self.steps[slot.layout];
        let format = self.cache.arrangement.format;
        let [queries, keys] = rope.forward_both(queries, keys, &planned.positions)?;
        let mut incoming = format.encode(&keys)?;
        incoming.extend(format.encode(&values)?);
        let incoming = Planes(incoming);
        let inputs = Inputs { incoming: Some(&incoming), sources: &[] };
        let planes = planned.program.run(slot.planes.as_ref(), inputs)?;
        let planes = planes.ok_or_else(|| Error::Unsupported("an append that leaves no planes".to_owned()))?;
        let fetched = Fetched::new(&planes, planned.fetch);
        let attended = ops::chosen().attend(&queries, &fetched, format, scale, &planned.visible)?;
        self.layers[layer] = Some(Built { planes, fetched });
        Ok(attended)
    }

    /// The attention of a layer without keys of its own: its queries read the columns that layer `donor` has just written and
    /// read in this pass, at the same positions and under the same mask.
    ///
    /// # Errors
    /// When the donor has not had its turn yet, or shapes do not fit.
    pub fn share(&self, donor: usize, queries: &Array, rope: &Rope, scale: f32) -> Result<Array> {
        let (Some(slot), Some(Some(built))) = (self.cache.layers.get(donor), self.layers.get(donor)) else {
            return Err(Error::Unsupported(format!("layer {donor} has no columns to share in this pass")));
        };
        let planned = &self.steps[slot.layout];
        let queries = rope.forward(queries, &planned.positions)?;
        ops::chosen().attend(&queries, &built.fetched, self.cache.arrangement.format, scale, &planned.visible)
    }

    /// Ends the pass.
    ///
    /// # Errors
    /// When a layer was left out: its columns would be missing.
    pub fn finish(self) -> Result<Staged> {
        if let Some(layer) = self.layers.iter().position(Option::is_none) {
            return Err(Error::Unsupported(format!("layer {layer} was left out of the pass")));
        }
        let layouts = self.steps.into_iter().map(|planned| planned.next).collect();
        let planes = self.layers.into_iter().map(|built| built.map(|built| built.planes)).collect();
        Ok(Staged { columns: self.columns, layouts, planes })
    }
}
