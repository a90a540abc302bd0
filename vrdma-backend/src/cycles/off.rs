//! The account of time by stage, without the feature `cycles`: it does nothing.

use super::stage::Stage;

/// A mark that does nothing.
#[derive(Debug)]
pub struct Mark;

/// Does nothing.
#[inline(always)]
pub fn begin() {}

/// Does nothing.
#[inline(always)]
pub fn enter(_: Stage) -> Mark {
    Mark
}

/// Does nothing.
#[inline(always)]
pub fn end_turn(_busy: bool) {}
