//! The reference interpreter: column operations run on a grid of values instead of tensors.

use crate::Error;
use crate::column::{ColumnOp, Piece};
use crate::units::{Columns, MAX_ROWS};

/// The most cells a grid may have: 2^24.
pub const CELL_LIMIT: usize = 1 << 24;

/// A table of rows and columns; every row has the same columns.
///
/// What the engine does to every plane of a layer, this does to one table, so that a plan can be tested, shown and stepped
/// through without a tensor. It is written to be obviously right, not to be fast.
///
/// ```
/// use annulus_plan::{Col, ColumnOp, Grid, Inputs};
///
/// let mut grid = Grid::new(2, 0);
/// let incoming = [vec![7], vec![8]];
/// let ops = [ColumnOp::Grow { columns: 2 }, ColumnOp::Write { at: Col(0), columns: 1 }];
/// grid.run(&ops, Inputs { incoming: &incoming, sources: &[] })?;
/// assert_eq!(grid.rows(), [[7, 0], [8, 0]]);
/// # Ok::<(), annulus_plan::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid<T> {
    cells: Vec<Vec<T>>,
    empty: T,
}

/// What a list of operations reads besides the grid.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a, T> {
    /// The incoming columns of each row.
    pub incoming: &'a [Vec<T>],
    /// The columns of each stored row that joins.
    pub sources: &'a [Vec<T>],
}

impl<T: Copy> Grid<T> {
    /// A grid of `rows` rows without columns. `empty` is what a column holds before it is written.
    pub fn new(rows: usize, empty: T) -> Self {
        Self { cells: vec![Vec::new(); rows.min(MAX_ROWS)], empty }
    }

    /// A grid of these rows, cut to the width of the first.
    pub fn of(cells: Vec<Vec<T>>, empty: T) -> Self {
        let mut grid = Self { cells, empty };
        let width = grid.width();
        grid.cells.iter_mut().for_each(|row| row.resize(width, empty));
        grid
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[Vec<T>] {
        &self.cells
    }

    /// How many columns each row has.
    #[must_use]
    pub fn width(&self) -> usize {
        self.cells.first().map_or(0, Vec::len)
    }

    /// The value in a cell.
    #[must_use]
    pub fn get(&self, row: usize, column: u32) -> Option<T> {
        self.cells.get(row)?.get(column as usize).copied()
    }

    /// These columns of one row; what lies outside the grid is left out.
    pub fn read(&self, row: usize, columns: Columns) -> impl Iterator<Item = T> + '_ {
        let cells = self.cells.get(row).map_or(&[][..], Vec::as_slice);
        cells.iter().copied().take(columns.to as usize).skip(columns.from as usize)
    }

    /// Makes the grid have `rows` rows: those that join or leave before any column was written are known to no operation.
    pub fn set_rows(&mut self, rows: usize) {
        let line = vec![self.empty; self.width()];
        self.cells.resize(rows.min(MAX_ROWS), line);
    }

    /// Runs a list of operations and returns the rows that it copied out, in the order of the operations, and of the rows where
    /// one copies all of them. A list that does not fit leaves the grid half done:
    /// who must be able to go back runs it on a copy.
    pub fn run(&mut self, ops: &[ColumnOp], inputs: Inputs<'_, T>) -> Result<Vec<Vec<T>>, Error> {
        let mut out = Vec::new();
        for op in ops {
            self.execute(op, inputs, &mut out)?;
        }
        Ok(out)
    }

    fn execute(&mut self, op: &ColumnOp, inputs: Inputs<'_, T>, out: &mut Vec<Vec<T>>) -> Result<(), Error> {
        match op {
            ColumnOp::Grow { columns } => self.insert(self.width(), *columns),
            ColumnOp::PadLeft { at, columns } => self.insert(at.0 as usize, *columns),
            ColumnOp::Write { at, columns } => {
                let starts = vec![*at; self.cells.len()];
                self.scatter(&starts, *columns, inputs.incoming)
            }
            ColumnOp::Scatter { starts, columns } => self.scatter(starts, *columns, inputs.incoming),
            ColumnOp::Pin { runs } => runs.iter().try_for_each(|run| {
                let from = slice(inputs.incoming.get(run.row.index()), run.incoming)?.to_vec();
                self.put(run.row.index(), run.at.0, &from)
            }),
            ColumnOp::Concat { columns } => {
                let at = self.width();
                self.insert(at, *columns)?;
                let starts = vec![crate::Col(at as u32); self.cells.len()];
                self.scatter(&starts, *columns, inputs.incoming)
            }
            ColumnOp::Slice { ranges } => {
                let cut = |row: &Vec<T>| {
                    let parts = ranges.iter().map(|r| slice(Some(row), *r)).collect::<Result<Vec<_>, Error>>()?;
                    Ok(parts.concat())
                };
                self.cells = self.cells.iter().map(cut).collect::<Result<_, Error>>()?;
                Ok(())
            }
            ColumnOp::Roll { over, shifts } => self.roll(*over, shifts),
            ColumnOp::TakeRows { rows } => {
                let take = |r: &crate::Row| {
                    self.cells.get(r.index()).cloned().ok_or(misfit("rows", r.index(), self.cells.len()))
                };
                self.cells = rows.iter().map(take).collect::<Result<_, Error>>()?;
                Ok(())
            }
            ColumnOp::Join { rows } => {
                rows.iter().enumerate().try_for_each(|(i, pieces)| self.join(pieces, inputs.sources.get(i)))
            }
            ColumnOp::CopyRow { row, ranges } => {
                let cells = self.cells.get(row.index());
                let parts = ranges.iter().map(|r| slice(cells, *r)).collect::<Result<Vec<_>, Error>>()?;
                out.push(parts.concat());
                Ok(())
            }
            ColumnOp::CopyColumns { ranges } => self.cells.iter().try_for_each(|cells| {
                let parts = ranges.iter().map(|r| slice(Some(cells), *r)).collect::<Result<Vec<_>, Error>>()?;
                out.push(parts.concat());
                Ok(())
            }),
        }
    }

    fn insert(&mut self, at: usize, columns: u32) -> Result<(), Error> {
        let width = self.width();
        let area = (width + columns as usize).saturating_mul(self.cells.len());
        if at > width {
            return Err(misfit("at", at, width));
        }
        if area > CELL_LIMIT {
            let got = i64::try_from(area).unwrap_or(i64::MAX);
            return Err(Error::TooLarge { op: "grid", field: "columns", got, limit: CELL_LIMIT as i64 });
        }
        for row in &mut self.cells {
            row.splice(at..at, core::iter::repeat_n(self.empty, columns as usize));
        }
        Ok(())
    }

    fn scatter(&mut self, starts: &[crate::Col], columns: u32, incoming: &[Vec<T>]) -> Result<(), Error> {
        if starts.len() != self.cells.len() || incoming.len() != self.cells.len() {
            return Err(misfit("rows", incoming.len(), self.cells.len()));
        }
        for (row, (start, tokens)) in starts.iter().zip(incoming).enumerate() {
            if tokens.len() != columns as usize {
                return Err(misfit("columns", tokens.len(), columns as usize));
            }
            self.put(row, start.0, tokens)?;
        }
        Ok(())
    }

    fn put(&mut self, row: usize, at: u32, tokens: &[T]) -> Result<(), Error> {
        let (at, width) = (at as usize, self.width());
        let room = self.cells.get_mut(row).and_then(|cells| cells.get_mut(at..at.checked_add(tokens.len())?));
        room.ok_or(misfit("at", at, width))?.copy_from_slice(tokens);
        Ok(())
    }

    fn roll(&mut self, over: Columns, shifts: &[u32]) -> Result<(), Error> {
        let (rows, width) = (self.cells.len(), self.width());
        if shifts.len() != rows {
            return Err(misfit("shifts", shifts.len(), rows));
        }
        for (row, shift) in self.cells.iter_mut().zip(shifts) {
            let cells =
                row.get_mut(over.from as usize..over.to as usize).ok_or(misfit("over", over.to as usize, width))?;
            if !cells.is_empty() {
                cells.rotate_right(*shift as usize % cells.len());
            }
        }
        Ok(())
    }

    fn join(&mut self, pieces: &[Piece], source: Option<&Vec<T>>) -> Result<(), Error> {
        let mut row = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Empty(n) if *n as usize > CELL_LIMIT => return Err(misfit("empty", *n as usize, CELL_LIMIT)),
                Piece::Empty(n) => row.extend(core::iter::repeat_n(self.empty, *n as usize)),
                Piece::Source(columns) => row.extend_from_slice(slice(source, *columns)?),
            }
        }
        let area = row.len().saturating_mul(self.cells.len() + 1);
        if area > CELL_LIMIT {
            return Err(Error::TooLarge { op: "grid", field: "rows", got: area as i64, limit: CELL_LIMIT as i64 });
        }
        if !self.cells.is_empty() && row.len() != self.width() {
            return Err(misfit("rows", row.len(), self.width()));
        }
        self.cells.push(row);
        Ok(())
    }
}

fn slice<T>(cells: Option<&Vec<T>>, columns: Columns) -> Result<&[T], Error> {
    let cells = cells.map_or(&[][..], Vec::as_slice);
    cells.get(columns.from as usize..columns.to as usize).ok_or(misfit("columns", columns.to as usize, cells.len()))
}

fn misfit(field: &'static str, got: usize, want: usize) -> Error {
    let wide = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    Error::Misfit { op: "grid", field, got: wide(got), want: wide(want) }
}
