//! The KV cache: planes that only plans move.
//!
//! A layer has two *planes*, keys and values, `[B, heads, columns, head_dim]`. Layers whose columns lie alike share one
//! layout, which is planned once a step; the plan's column operations are then executed on every plane of these layers.
//!
//! A step is adopted in three parts, which keeps both safety and in-place writes:
//! 1. [`Cache::begin`] plans it. An error changes nothing.
//! 2. [`Pass::attend`] builds the lazy graph, layer by layer. An error, or dropping the pass, leaves everything as it was.
//! 3. [`Cache::adopt`] drops the old planes in favour of the new ones; then the caller evaluates. MLX writes into a plane
//!    in place only when nobody else holds it, so the cache alone owns planes and hands none out.

use annulus_plan::{ColumnOp, Columns, Growth, Kind, Layout, Mask, Step};
use mlx_rs::fast::{ScaledDotProductAttentionMask, scaled_dot_product_attention};
use mlx_rs::ops::{concatenate, zeros_dtype};
use mlx_rs::{Array, transforms};

use crate::error::{Error, Result};
use crate::mlx;
use crate::rope::{Rope, RopePositions};

/// The axis of columns in every plane.
const TOKENS: usize = 2;

/// The cache of a group of rows, all layers together.
#[derive(Debug)]
pub struct Cache {
    layouts: Vec<Layout>,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    /// Which of the layouts its columns follow.
    layout: usize,
    /// Keys and values; none before the first column.
    planes: Option<Planes>,
}

/// Keys and values of one layer.
type Planes = [Array; 2];

impl Cache {
    /// An empty cache of `rows` rows, with one entry of `kinds` a layer.
    ///
    /// # Errors
    /// When the planner refuses so many rows.
    pub fn new(kinds: &[Kind], growth: Growth, rows: usize) -> Result<Self> {
        let mut layouts: Vec<Layout> = Vec::new();
        let mut layers = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let layout = match layouts.iter().position(|known| known.kind() == *kind) {
                Some(known) => known,
                None => {
                    layouts.push(Layout::empty(*kind, growth, rows)?);
                    layouts.len() - 1
                }
            };
            layers.push(Layer { layout, planes: None });
        }
        Ok(Self { layouts, layers })
    }

    /// Plans an append of `columns` columns to every row.
    ///
    /// # Errors
    /// When the planner refuses it; nothing has changed then.
    pub fn begin(&self, columns: u32) -> Result<Pass<'_>> {
        let steps = self.layouts.iter().map(|layout| Planned::new(layout.append(columns)?)).collect::<Result<_>>()?;
        Ok(Pass { cache: self, steps, staged: self.layers.iter().map(|_| None).collect() })
    }

    /// Makes a finished pass the present. The arrays of the pass are evaluated after this, not before.
    pub fn adopt(&mut self, staged: Staged) {
        self.layouts = staged.layouts;
        for (layer, planes) in self.layers.iter_mut().zip(staged.planes) {
            layer.planes = planes;
        }
    }

    /// Evaluates every plane, and with them the steps that led to them.
    ///
    /// # Errors
    /// When the evaluation fails; the cache must not be used then.
    pub fn eval(&self) -> Result<()> {
        transforms::eval(self.layers.iter().flat_map(|layer| layer.planes.iter().flatten()))?;
        Ok(())
    }

    /// Bytes of all planes, spare columns included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.layers.iter().flat_map(|layer| layer.planes.iter().flatten()).map(Array::nbytes).sum()
    }
}

/// A step of one layout, ready for its layers.
#[derive(Debug)]
struct Planned {
    step: Step<Layout>,
    /// Captured before the write: keys, queries and layers that share them turn by the same positions.
    positions: RopePositions,
}

impl Planned {
    fn new(step: Step<Layout>) -> Result<Self> {
        if let Mask::Runs(_) = step.mask {
            return Err(Error::Unsupported("rows that see different columns are not supported yet".to_owned()));
        }
        let positions = RopePositions::new(&step.rope);
        Ok(Self { step, positions })
    }
}

/// One forward pass over a cache: the plan of its append, and the planes built so far.
#[derive(Debug)]
pub struct Pass<'c> {
    cache: &'c Cache,
    steps: Vec<Planned>,
    staged: Vec<Option<Planes>>,
}

/// The outcome of a pass, no longer bound to the cache.
#[derive(Debug)]
pub struct Staged {
    layouts: Vec<Layout>,
    planes: Vec<Option<Planes>>,
}

impl Pass<'_> {
    /// The attention of one layer: turns queries and keys by their positions, writes keys and values, and attends to
    /// what the plan lets each query see. This is the one attention path of the engine.
    ///
    /// `queries` is `[B, heads, L, D]`, `keys` and `values` are `[B, kv_heads, L, D]`; the result is like `queries`.
    ///
    /// # Errors
    /// When shapes do not fit, or a layer is asked for twice or does not exist.
    pub fn attend(
        &mut self,
        layer: usize,
        queries: &Array,
        keys: &Array,
        values: Array,
        rope: &Rope,
        scale: f32,
    ) -> Result<Array> {
        let (Some(slot), Some(None)) = (self.cache.layers.get(layer), self.staged.get(layer)) else {
            return Err(Error::Unsupported(format!("layer {layer} has no cache, or was run twice in one pass")));
        };
        let Planned { step, positions } = &self.steps[slot.layout];
        let queries = rope.forward(queries, positions)?;
        let incoming = [rope.forward(keys, positions)?, values];
        let mut fetched = Vec::with_capacity(2);
        let mut planes = Vec::with_capacity(2);
        for (plane, incoming) in incoming.iter().enumerate() {
            let before = slot.planes.as_ref().map(|planes| &planes[plane]);
            let after = execute(&step.ops, before, incoming)?;
            fetched.push(fetch(&after, step.fetch)?);
            planes.push(after);
        }
        self.staged[layer] = planes.try_into().ok();
        let mask = match step.mask {
            Mask::None => None,
            Mask::Causal | Mask::Runs(_) => Some(ScaledDotProductAttentionMask::Causal),
        };
        Ok(scaled_dot_product_attention(queries, &fetched[0], &fetched[1], scale, mask, None)?)
    }

    /// The attention of a layer that has no cache of its own: attends with its queries to the columns that `layer` fetched
    /// earlier in this pass, at the positions and under the mask of that layer.
    ///
    /// # Errors
    /// When shapes do not fit, or `layer` has not run in this pass.
    pub fn share(&self, _layer: usize, _queries: &Array, _rope: &Rope, _scale: f32) -> Result<Array> {
        Err(Error::Unsupported("layers that share another layer's keys and values are not supported yet".to_owned()))
    }

    /// Ends the pass.
    ///
    /// # Errors
    /// When a layer was left out: its columns would be missing.
    pub fn finish(self) -> Result<Staged> {
        if let Some(layer) = self.staged.iter().position(Option::is_none) {
            return Err(Error::Unsupported(format!("layer {layer} was left out of the pass")));
        }
        let layouts = self.steps.into_iter().map(|planned| planned.step.next).collect();
        Ok(Staged { layouts, planes: self.staged })
    }
}

/// Executes a plan's operations on one plane.
fn execute(ops: &[ColumnOp], before: Option<&Array>, incoming: &Array) -> Result<Array> {
    let mut plane = before.cloned();
    for op in ops {
        plane = Some(match (op, plane) {
            (ColumnOp::Grow { columns }, plane) => grow(plane, incoming, *columns)?,
            (ColumnOp::Write { at, .. }, Some(plane)) => mlx::slice_update(&plane, incoming, TOKENS, index(at.0)?)?,
            (op, _) => return Err(Error::Unsupported(format!("the operation {op:?} is not supported yet"))),
        });
    }
    plane.ok_or_else(|| Error::Unsupported("a plan without operations leaves no plane".to_owned()))
}

/// Adds empty columns on the right, in the shape and type of what comes in.
fn grow(plane: Option<Array>, incoming: &Array, columns: u32) -> Result<Array> {
    let mut shape = incoming.shape().to_vec();
    shape[TOKENS] = index(columns)?;
    let empty = zeros_dtype(&shape, incoming.dtype())?;
    match plane {
        None => Ok(empty),
        Some(plane) => Ok(concatenate(&[&plane, &empty], 2)?),
    }
}

/// The columns that attention reads: the plane itself when it reads all of them.
fn fetch(plane: &Array, columns: Columns) -> Result<Array> {
    if columns.from == 0 && index(columns.to)? == plane.dim(2) {
        return Ok(plane.clone());
    }
    Ok(mlx::slice(plane, TOKENS, index(columns.from)?, index(columns.to)?)?)
}

fn index(column: u32) -> Result<i32> {
    i32::try_from(column).map_err(|_| Error::Unsupported(format!("column {column} is beyond what MLX can index")))
}
