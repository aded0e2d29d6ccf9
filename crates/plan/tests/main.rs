//! The tests of the planner, one binary: ten would each be linked, natively and as wasm.

mod cli;
mod common;
mod faults;
mod fuzz;
mod geometry;
mod hostile;
mod inspect;
mod laws;
mod recorded;
mod replay;
mod reports;
mod small_scope;
