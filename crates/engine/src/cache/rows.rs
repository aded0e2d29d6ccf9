//! Rows that join a group, leave it, are taken back or copied out.

use annulus_plan::{ColumnOp, Layout, Move, Padding, Row, Source};
use mlx_rs::{Array, transforms};

use super::execute::{Inputs, Program, copy_row};
use super::planes::Planes;
use super::{Arrangement, Cache};
use crate::error::{Error, Result};

/// One row outside any group: its columns in every layer, with memory of its own.
#[derive(Debug)]
pub struct StoredRow {
    arrangement: Arrangement,
    /// What the columns are: one entry a layout.
    sources: Vec<Source>,
    /// One entry a layer; none when it holds no column.
    layers: Vec<Option<Planes>>,
}

impl StoredRow {
    /// What its columns are in each distinct kind of layer.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The stored arrays of one layer, keys then values, `[1, kv_heads, columns, ..]`; none when it holds no column.
    #[must_use]
    pub fn layer(&self, number: usize) -> &[Array] {
        self.layers.get(number).and_then(Option::as_ref).map_or(&[], |planes| &planes.0)
    }
}

type Planned<T> = std::result::Result<T, annulus_plan::Error>;

impl Cache {
    /// A group of stored rows. A single one hands its planes over.
    ///
    /// # Errors
    /// When the planner refuses them, or they were stored from a cache of another arrangement.
    pub fn merge(arrangement: Arrangement, rows: Vec<StoredRow>) -> Result<Self> {
        let mut cache = Self::new(arrangement, 0)?;
        let growth = cache.arrangement.growth;
        cache.join(rows, |layout, sources| Layout::merge(layout.kind(), growth, sources))?;
        Ok(cache)
    }

    /// Adds stored rows below the others.
    ///
    /// # Errors
    /// As for [`merge`](Self::merge); the group is as it was then, and the rows are gone.
    pub fn extend(&mut self, rows: Vec<StoredRow>) -> Result<()> {
        self.join(rows, Layout::extend)
    }

    /// Starts a padded prefill.
    ///
    /// # Errors
    /// When the planner refuses it; nothing has changed then. So for all that follow.
    pub fn prepare(&mut self, padding: Padding<'_>) -> Result<()> {
        self.apply(|layout| layout.prepare(padding))
    }

    /// Ends a padded prefill.
    ///
    /// # Errors
    /// See [`prepare`](Self::prepare).
    pub fn finalize(&mut self) -> Result<()> {
        self.apply(Layout::finalize)
    }

    /// Keeps these rows, in this order.
    ///
    /// # Errors
    /// See [`prepare`](Self::prepare).
    pub fn filter(&mut self, keep: &[Row]) -> Result<()> {
        self.apply(|layout| layout.filter(keep))
    }

    /// Drops the newest `n` tokens of every row.
    ///
    /// # Errors
    /// See [`prepare`](Self::prepare).
    pub fn trim(&mut self, n: u32) -> Result<()> {
        self.apply(|layout| layout.trim(n))
    }

    /// Begins a round, of which every row may later take back what it appended.
    ///
    /// # Errors
    /// See [`prepare`](Self::prepare).
    pub fn round_begin(&mut self) -> Result<()> {
        self.apply(Layout::round_begin)
    }

    /// Ends a round that keeps every token.
    ///
    /// # Errors
    /// See [`prepare`](Self::prepare).
    pub fn round_commit(&mut self) -> Result<()> {
        self.apply(Layout::round_commit)
    }

    /// Ends a round of which each row keeps its first `keep[r]` tokens.
    ///
    /// # Errors
    /// See [`prepare`](Self::prepare).
    pub fn round_rollback(&mut self, keep: &[u32]) -> Result<()> {
        self.apply(|layout| layout.round_rollback(keep))
    }

    /// Copies one row out: its newest `limit` tokens, by default a window of them on a ring and all on full attention. The copy
    /// is evaluated and shares no memory with the group.
    ///
    /// # Errors
    /// When the row does not exist. A failed evaluation poisons the cache, since it may have been that of an earlier step.
    pub fn extract(&mut self, row: Row, limit: Option<u32>) -> Result<StoredRow> {
        self.usable()?;
        let plans: Vec<_> = self.layouts.iter().map(|layout| layout.extract(row, limit)).collect::<Planned<_>>()?;
        let mut layers = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let copied = match (&layer.planes, plans[layer.layout].ops.as_slice()) {
                (Some(planes), [ColumnOp::CopyRow { row, ranges }]) => {
                    let copies = planes.0.iter().map(|plane| copy_row(plane, *row, ranges));
                    copies.collect::<Result<Option<Vec<_>>>>()?.map(Planes)
                }
                _ => None,
            };
            layers.push(copied);
        }
        let evaluated = transforms::eval(layers.iter().flatten().flat_map(|planes| &planes.0));
        self.guard(|| Ok(evaluated?))?;
        let sources = plans.into_iter().map(|plan| plan.source).collect();
        Ok(StoredRow { arrangement: self.arrangement.clone(), sources, layers })
    }

    /// Plans a move of every layout, executes it on every layer and adopts it.
    fn apply(&mut self, plan: impl Fn(&Layout) -> Planned<Move<Layout>>) -> Result<()> {
        self.usable()?;
        let plans: Vec<_> = self.layouts.iter().map(plan).collect::<Planned<_>>()?;
        self.execute(plans, &[])
    }

    fn join(&mut self, rows: Vec<StoredRow>, plan: impl Fn(&Layout, &[Source]) -> Planned<Move<Layout>>) -> Result<()> {
        self.usable()?;
        for row in &rows {
            let same = (&row.arrangement.kinds, row.arrangement.format);
            if same != (&self.arrangement.kinds, self.arrangement.format) {
                return Err(Error::Unsupported("a stored row joins only caches arranged as its own was".to_owned()));
            }
        }
        let plans = self.layouts.iter().enumerate().map(|(number, layout)| {
            let sources: Vec<Source> = rows.iter().map(|row| row.sources[number]).collect();
            plan(layout, &sources)
        });
        let plans: Vec<_> = plans.collect::<Planned<_>>()?;
        self.execute(plans, &rows)?;
        // A handle that stayed would make the next write copy the planes that a row has handed over.
        drop(rows);
        Ok(())
    }

    /// Builds what the moves lead to for every layer, then adopts all of it or, after an error, nothing.
    fn execute(&mut self, plans: Vec<Move<Layout>>, joining: &[StoredRow]) -> Result<()> {
        let programs = plans.into_iter().zip(&self.layouts);
        let programs: Vec<_> = programs
            .map(|(plan, layout)| Ok((Program::new(plan.ops, layout.rows())?, plan.next)))
            .collect::<Result<_>>()?;
        let still = programs.iter().all(|(program, _)| program.is_empty());
        if !still {
            let mut planes = Vec::with_capacity(self.layers.len());
            for (number, layer) in self.layers.iter().enumerate() {
                let sources: Vec<_> = joining.iter().map(|row| row.layers[number].as_ref()).collect();
                let inputs = Inputs { incoming: None, sources: &sources };
                planes.push(programs[layer.layout].0.run(layer.planes.as_ref(), inputs)?);
            }
            for (layer, planes) in self.layers.iter_mut().zip(planes) {
                layer.planes = planes;
            }
        }
        self.layouts = programs.into_iter().map(|(_, next)| next).collect();
        if still { Ok(()) } else { self.eval() }
    }
}
