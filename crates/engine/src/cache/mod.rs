//! The KV cache: planes that only plans move.
//!
//! A layer has two *planes*, keys and values, `[B, heads, columns, head_dim]`, stored in a [`Format`]. Layers whose columns lie
//! alike share one layout, which is planned once a step; the plan's column operations are then executed on every plane of
//! these layers.
//!
//! # Layout
//! - [`Cache`]: a group of rows; [`Pass`]: one forward pass over it; [`StoredRow`]: a row outside any group;
//! - [`KvOptions`]: what a user may choose about it;
//! - `planes`: what a plane is stored as; `execute`: the interpreter of column operations;
//! - `visible`: masks on the device; `attention`: the one place where queries meet keys;
//! - [`DonorColumns`]: a read-only copy for a drafter;
//! - `rows`: rows that join, leave, are taken back or copied out.
//!
//! # Plan, execute, adopt
//! A step is adopted in three parts, which keeps both safety and in-place writes:
//! 1. [`Cache::begin`] plans it. An error changes nothing.
//! 2. [`Pass::attend`] builds the lazy graph, layer by layer. An error, or dropping the pass, leaves everything as it was.
//! 3. [`Cache::adopt`] drops the old planes in favour of the new ones; then the caller evaluates, inside [`Cache::guard`].
//!    MLX writes into a plane in place only when nobody else holds it, so the cache alone owns planes and hands none out.
//!    An evaluation that fails poisons the cache: its planes are lost, and every further use is an error.

mod attention;
mod choice;
mod donor;
mod execute;
mod pass;
mod planes;
mod rows;
mod visible;

pub use attention::Fetched;
pub(crate) use attention::attend_with_mlx;
pub use choice::KvOptions;
pub use donor::DonorColumns;
pub use pass::{Pass, Staged};
pub use planes::{Affine, Format};
pub use rows::StoredRow;
pub use visible::Visible;

use std::mem;
use std::sync::Arc;

use annulus_plan::{Growth, Kind, Layout};
use mlx_rs::{Array, transforms};

use crate::error::{Error, Result};
use crate::geometry::{Geometry, Recorder, Told};
use planes::Planes;

/// What a cache is made of, before it has rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    /// How the columns lie in each layer that has a cache.
    pub kinds: Vec<Kind>,
    /// How keys and values are stored.
    pub format: Format,
    /// How planes get spare columns.
    pub growth: Growth,
}

/// The cache of a group of rows, all layers together.
#[derive(Debug)]
pub struct Cache {
    arrangement: Arrangement,
    layouts: Vec<Layout>,
    layers: Vec<Layer>,
    /// Why the cache cannot be used any more.
    poison: Option<String>,
    /// Tells of every move.
    recorder: Option<Recorder>,
}

#[derive(Debug)]
struct Layer {
    /// Which of the layouts its columns follow.
    layout: usize,
    /// Keys and values; none before the first column.
    planes: Option<Planes>,
}

impl Cache {
    /// An empty cache of `rows` rows.
    ///
    /// # Errors
    /// When the planner refuses so many rows, or a window.
    pub fn new(arrangement: Arrangement, rows: usize) -> Result<Self> {
        let mut layouts: Vec<Layout> = Vec::new();
        let mut layers = Vec::with_capacity(arrangement.kinds.len());
        for kind in &arrangement.kinds {
            let layout = match layouts.iter().position(|known| known.kind() == *kind) {
                Some(known) => known,
                None => {
                    layouts.push(Layout::empty(*kind, arrangement.growth, rows)?);
                    layouts.len() - 1
                }
            };
            layers.push(Layer { layout, planes: None });
        }
        Ok(Self { arrangement, layouts, layers, poison: None, recorder: None })
    }

    /// What the cache is made of.
    #[must_use]
    pub fn arrangement(&self) -> &Arrangement {
        &self.arrangement
    }

    /// The geometry of each distinct kind of layer.
    #[must_use]
    pub fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// Plans an append of `columns` columns to every row.
    ///
    /// # Errors
    /// When the planner refuses it; nothing has changed then.
    pub fn begin(&self, columns: u32) -> Result<Pass<'_>> {
        self.usable()?;
        Pass::new(self, columns, |layout| layout.append(columns))
    }

    /// Plans an append of `columns` columns inside a round, of which only the first `real[r]` of row `r` are tokens.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub fn begin_ragged(&self, columns: u32, real: &[u32]) -> Result<Pass<'_>> {
        self.usable()?;
        Pass::new(self, columns, |layout| layout.append_ragged(columns, real))
    }

    /// Tells `geometry` of every move from now on.
    pub fn record(&mut self, geometry: &Arc<Geometry>) {
        self.recorder = Some(Recorder::new(geometry));
        self.tell(Told::Begin, None);
    }

    /// Tells of a move that has been made; `before` is where the layouts stood, if it moved them.
    fn tell(&mut self, told: Told, before: Option<&[Layout]>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.moved(told, before.unwrap_or(&self.layouts), &self.layouts);
        }
    }

    /// Makes a finished pass the present. The arrays of the pass are evaluated after this, not before.
    pub fn adopt(&mut self, staged: Staged) {
        let before = mem::replace(&mut self.layouts, staged.layouts);
        for (layer, planes) in self.layers.iter_mut().zip(staged.planes) {
            layer.planes = planes;
        }
        self.tell(Told::Append(staged.columns), Some(&before));
    }

    /// Runs an evaluation that may include steps adopted by this cache. When it fails the planes are lost with it: the cache
    /// is poisoned.
    ///
    /// # Errors
    /// Those of the evaluation.
    pub fn guard<T>(&mut self, evaluate: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = evaluate();
        if let Err(error) = &result {
            self.layers.iter_mut().for_each(|layer| layer.planes = None);
            self.poison = Some(error.to_string());
        }
        result
    }

    /// Evaluates every plane, and with them the steps that led to them.
    ///
    /// # Errors
    /// When the evaluation fails; the cache is poisoned then.
    pub fn eval(&mut self) -> Result<()> {
        self.usable()?;
        let evaluated = transforms::eval(self.arrays());
        self.guard(|| Ok(evaluated?))
    }

    /// Bytes of all planes, spare columns included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.layers.iter().filter_map(|layer| layer.planes.as_ref()).map(Planes::bytes).sum()
    }

    fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.layers.iter().filter_map(|layer| layer.planes.as_ref()).flat_map(|planes| &planes.0)
    }

    fn usable(&self) -> Result<()> {
        match &self.poison {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned(reason.clone())),
        }
    }
}
