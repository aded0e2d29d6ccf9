//! The interpreter of plans: column operations run on arrays.
//!
//! It does on a plane what [`annulus_plan::Grid`] does on a table of integers, and decides nothing itself.

use annulus_plan::{Col, ColumnOp, Columns, Piece, PinRun, Row};
use mlx_rs::Array;
use mlx_rs::ops::{concatenate, zeros_dtype};

use super::planes::Planes;
use crate::error::{Error, Result};
use crate::mlx;

/// The axis of rows in every plane.
const ROWS: usize = 0;
/// The axis of columns in every plane.
const TOKENS: usize = 2;

/// A plan's operations, with the indices that some of them need on the device. It is made once and serves all planes.
#[derive(Debug)]
pub(super) struct Program {
    ops: Vec<(ColumnOp, Option<Array>)>,
    /// Rows of the group before the operations.
    rows: usize,
}

/// What operations read besides the planes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Inputs<'a> {
    /// The planes of the incoming columns of all rows.
    pub(super) incoming: Option<&'a Planes>,
    /// The planes of each row that joins; none for a row without columns.
    pub(super) sources: &'a [Option<&'a Planes>],
}

/// [`Inputs`] of one plane.
struct PlaneInputs<'a> {
    incoming: Option<&'a Array>,
    sources: Vec<Option<&'a Array>>,
}

impl PlaneInputs<'_> {
    /// An array whose heads and type a new plane must have.
    fn like(&self) -> Option<&Array> {
        self.incoming.or(self.sources.iter().flatten().next().copied())
    }
}

impl Program {
    /// Prepares operations for a group of `rows` rows.
    ///
    /// # Errors
    /// When an index is beyond what MLX can hold.
    pub(super) fn new(ops: Vec<ColumnOp>, rows: usize) -> Result<Self> {
        let prepared = ops.into_iter().map(|op| {
            let indices = device_index(&op)?;
            Ok((op, indices))
        });
        let ops = prepared.collect::<Result<_>>()?;
        Ok(Self { ops, rows })
    }

    /// Whether nothing is to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Builds the planes that the operations lead to; nothing is evaluated. `before` is untouched.
    ///
    /// # Errors
    /// When an operation does not fit the planes, or MLX refuses it.
    pub(super) fn run(&self, before: Option<&Planes>, inputs: Inputs<'_>) -> Result<Option<Planes>> {
        let joining = inputs.sources.iter().flatten().next().copied();
        let count = inputs.incoming.or(before).or(joining).map_or(0, |planes| planes.0.len());
        let mut built = Vec::with_capacity(count);
        for number in 0..count {
            let sources = inputs.sources.iter().map(|source| array(*source, number));
            let plane_inputs =
                PlaneInputs { incoming: array(inputs.incoming, number)?, sources: sources.collect::<Result<_>>()? };
            built.push(self.run_plane(array(before, number)?.cloned(), &plane_inputs)?);
        }
        // All planes of a layer have the same columns: either each has some, or none has.
        Ok(built.into_iter().collect::<Option<Vec<_>>>().filter(|planes| !planes.is_empty()).map(Planes))
    }

    fn run_plane(&self, mut plane: Option<Array>, inputs: &PlaneInputs<'_>) -> Result<Option<Array>> {
        let mut rows = index(self.rows)?;
        for (number, (op, indices)) in self.ops.iter().enumerate() {
            plane = match (op, plane) {
                // What is put together anew right after needs no copy of its own.
                (ColumnOp::Slice { ranges }, Some(plane)) if self.copies_all(number + 1) => {
                    view_columns(&plane, ranges)?
                }
                (op, plane) => step(op, indices.as_ref(), plane, rows, inputs)?,
            };
            rows = match op {
                ColumnOp::TakeRows { rows } => index(rows.len())?,
                ColumnOp::Join { rows: joined } => rows + index(joined.len())?,
                _ => rows,
            };
        }
        Ok(plane)
    }

    /// Whether an operation writes a new plane, whatever it starts from.
    fn copies_all(&self, number: usize) -> bool {
        matches!(
            self.ops.get(number),
            Some((ColumnOp::Concat { .. } | ColumnOp::Grow { .. } | ColumnOp::PadLeft { .. }, _))
        )
    }
}

/// One array of some planes, where there are planes.
fn array(planes: Option<&Planes>, number: usize) -> Result<Option<&Array>> {
    planes.map(|planes| planes.0.get(number).ok_or_else(|| misfit("arrays", planes.0.len(), number + 1))).transpose()
}

/// One operation on one plane.
fn step(
    op: &ColumnOp,
    indices: Option<&Array>,
    plane: Option<Array>,
    rows: i32,
    inputs: &PlaneInputs<'_>,
) -> Result<Option<Array>> {
    let incoming = || inputs.incoming.ok_or_else(|| Error::Unsupported(format!("{op:?} without incoming columns")));
    let held = |plane: Option<Array>| plane.ok_or_else(|| Error::Unsupported(format!("{op:?} without planes")));
    Ok(match op {
        ColumnOp::Grow { columns } => {
            let at = plane.as_ref().map_or(0, |plane| plane.dim(2));
            Some(insert(plane, at, *columns, rows, inputs)?)
        }
        ColumnOp::PadLeft { at, columns } => Some(insert(plane, column(at.0)?, *columns, rows, inputs)?),
        ColumnOp::Write { at, .. } => Some(mlx::slice_update(&held(plane)?, incoming()?, TOKENS, column(at.0)?)?),
        ColumnOp::Scatter { .. } => {
            let indices = indices.ok_or_else(|| Error::Unsupported(format!("{op:?} without indices")))?;
            Some(held(plane)?.put_along_axis(indices, incoming()?, 2)?)
        }
        ColumnOp::Pin { runs } => Some(pin(held(plane)?, incoming()?, runs)?),
        ColumnOp::Concat { .. } => Some(match plane {
            None => incoming()?.clone(),
            Some(plane) => concatenate(&[&plane, incoming()?], 2)?,
        }),
        ColumnOp::Slice { ranges } => gather_columns(&held(plane)?, ranges)?,
        ColumnOp::Roll { over, .. } => match (plane, indices) {
            (Some(plane), Some(indices)) => Some(roll(&plane, *over, indices)?),
            (plane, _) => plane,
        },
        ColumnOp::TakeRows { rows } if rows.is_empty() => None,
        ColumnOp::TakeRows { .. } => match (plane, indices) {
            (Some(plane), Some(indices)) => Some(plane.take_axis(indices, 0)?),
            (plane, _) => plane,
        },
        ColumnOp::Join { rows: joined } => join(plane, joined, inputs)?,
        // What is copied out leaves the planes as they are; whoever asked for the copy makes it.
        ColumnOp::CopyRow { .. } | ColumnOp::CopyColumns { .. } => plane,
    })
}

/// The index array of an operation that has one.
fn device_index(op: &ColumnOp) -> Result<Option<Array>> {
    Ok(match op {
        ColumnOp::Scatter { starts, columns } => {
            let all = starts.iter().flat_map(|Col(start)| (*start..).take(*columns as usize));
            Some(indices(all, &[starts.len(), 1, *columns as usize, 1])?)
        }
        ColumnOp::Roll { over, shifts } if !over.is_empty() => {
            let length = over.len();
            let line = |shift: &u32| {
                let first = length - shift % length;
                (0..length).map(move |column| (first + column) % length)
            };
            Some(indices(shifts.iter().flat_map(line), &[shifts.len(), 1, length as usize, 1])?)
        }
        ColumnOp::TakeRows { rows } if !rows.is_empty() => Some(indices(rows.iter().map(|row| row.0), &[rows.len()])?),
        _ => None,
    })
}

fn indices(values: impl Iterator<Item = u32>, shape: &[usize]) -> Result<Array> {
    let values = values.map(column).collect::<Result<Vec<i32>>>()?;
    let shape = shape.iter().map(|n| index(*n)).collect::<Result<Vec<i32>>>()?;
    Ok(Array::from_slice(&values, &shape))
}

/// Inserts empty columns before column `at`; makes a plane of them when there is none.
fn insert(plane: Option<Array>, at: i32, columns: u32, rows: i32, inputs: &PlaneInputs<'_>) -> Result<Array> {
    let like = plane.as_ref().or(inputs.like());
    let like = like.ok_or_else(|| Error::Unsupported("columns without a plane to be like".to_owned()))?;
    let rows = plane.as_ref().map_or(rows, |plane| plane.dim(0));
    let empty = empty_like(like, rows, columns)?;
    let Some(plane) = plane else { return Ok(empty) };
    let width = plane.dim(2);
    Ok(match at {
        0 => concatenate(&[&empty, &plane], 2)?,
        at if at == width => concatenate(&[&plane, &empty], 2)?,
        at => {
            let (left, right) = (mlx::slice(&plane, TOKENS, 0, at)?, mlx::slice(&plane, TOKENS, at, width)?);
            concatenate(&[&left, &empty, &right], 2)?
        }
    })
}

fn empty_like(like: &Array, rows: i32, columns: u32) -> Result<Array> {
    let mut shape = like.shape().to_vec();
    (shape[ROWS], shape[TOKENS]) = (rows, column(columns)?);
    Ok(zeros_dtype(&shape, like.dtype())?)
}

/// Copies incoming columns of some rows to pinned ones. Rows that agree are written together.
fn pin(mut plane: Array, incoming: &Array, runs: &[PinRun]) -> Result<Array> {
    let alike = |a: &PinRun, b: &PinRun| a.row.0 + 1 == b.row.0 && a.incoming == b.incoming && a.at == b.at;
    for group in runs.chunk_by(alike) {
        let [PinRun { row: Row(first), incoming: columns, at }, ..] = group else { continue };
        let (from, to) = (column(*first)?, column(*first)? + index(group.len())?);
        let update = mlx::slice(incoming, ROWS, from, to)?;
        let update = mlx::slice(&update, TOKENS, column(columns.from)?, column(columns.to)?)?;
        plane = mlx::block_update(&plane, &update, &[(ROWS, from), (TOKENS, column(at.0)?)])?;
    }
    Ok(plane)
}

/// Columns of a plane, perhaps as a view of it: the plane itself when they are all it has.
///
/// # Errors
/// When the plane has no such columns.
pub(super) fn view(plane: &Array, columns: Columns) -> Result<Array> {
    let (from, to) = (column(columns.from)?, column(columns.to)?);
    if from == 0 && to == plane.dim(2) {
        return Ok(plane.clone());
    }
    Ok(mlx::slice(plane, TOKENS, from, to)?)
}

/// These columns in this order, perhaps as a view of the plane; nothing when there are none.
fn view_columns(plane: &Array, ranges: &[Columns]) -> Result<Option<Array>> {
    let parts = ranges.iter().filter(|range| !range.is_empty()).map(|range| view(plane, *range));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    Ok(match parts.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        parts => Some(concatenate(parts, 2)?),
    })
}

/// These columns in this order, as memory of their own: a view would keep all of the old plane.
pub(super) fn gather_columns(plane: &Array, ranges: &[Columns]) -> Result<Option<Array>> {
    match view_columns(plane, ranges)? {
        Some(view) if ranges.iter().filter(|range| !range.is_empty()).count() == 1 => Ok(Some(copied(&view)?)),
        columns => Ok(columns),
    }
}

/// A copy that shares no memory with the original, on every backend: a gather always writes a new array.
fn copied(array: &Array) -> Result<Array> {
    let rows = u32::try_from(array.dim(0)).unwrap_or(0);
    Ok(array.take_axis(indices(0..rows, &[rows as usize])?, 0)?)
}

/// One row's columns, in this order, as a plane of their own, `[1, .., columns, ..]`.
///
/// # Errors
/// When the row or a range does not exist.
pub(super) fn copy_row(plane: &Array, row: Row, ranges: &[Columns]) -> Result<Option<Array>> {
    let row = column(row.0)?;
    gather_columns(&mlx::slice(plane, ROWS, row, row + 1)?, ranges)
}

fn roll(plane: &Array, over: Columns, indices: &Array) -> Result<Array> {
    let (from, to, width) = (column(over.from)?, column(over.to)?, plane.dim(2));
    let turned = mlx::slice(plane, TOKENS, from, to)?.take_along_axis(indices, 2)?;
    if from == 0 && to == width {
        return Ok(turned);
    }
    let (left, right) = (mlx::slice(plane, TOKENS, 0, from)?, mlx::slice(plane, TOKENS, to, width)?);
    let parts: Vec<_> = [left, turned, right].into_iter().filter(|part| part.dim(2) > 0).collect();
    Ok(concatenate(&parts, 2)?)
}

fn join(plane: Option<Array>, joined: &[Vec<Piece>], inputs: &PlaneInputs<'_>) -> Result<Option<Array>> {
    // A single stored row that is taken whole hands its buffer over.
    if let (None, [pieces]) = (&plane, joined)
        && let ([Piece::Source(columns)], Some(Some(source))) = (pieces.as_slice(), inputs.sources.first())
        && *columns == Columns::new(0, columns.to)
        && column(columns.to)? == source.dim(2)
    {
        return Ok(Some((*source).clone()));
    }
    let like = plane.as_ref().or(inputs.like());
    let Some(like) = like.cloned() else { return Ok(None) };
    let mut parts: Vec<Array> = plane.into_iter().collect();
    for (row, pieces) in joined.iter().enumerate() {
        let source = inputs.sources.get(row).copied().flatten();
        let pieces = pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| match (piece, source) {
            (Piece::Empty(columns), _) => empty_like(&like, 1, *columns),
            (Piece::Source(range), Some(source)) => view(source, *range),
            (Piece::Source(range), None) => Err(misfit("columns of a row that has none", range.len() as usize, 0)),
        });
        parts.push(concatenate(&pieces.collect::<Result<Vec<_>>>()?, 2)?);
    }
    Ok(Some(concatenate(&parts, 0)?))
}

fn misfit(what: &str, got: usize, want: usize) -> Error {
    Error::Unsupported(format!("a plan does not fit its planes: {got} {what}, where there are {want}"))
}

/// A row or column number as MLX takes it.
fn column(number: u32) -> Result<i32> {
    index(number as usize)
}

fn index(number: usize) -> Result<i32> {
    i32::try_from(number).map_err(|_| Error::Unsupported(format!("{number} is beyond what MLX can index")))
}
