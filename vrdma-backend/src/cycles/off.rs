//! There is no account.

use super::stage::Stage;

/// Nothing.
#[derive(Debug)]
pub struct Mark;

/// Nothing begins.
#[inline(always)]
pub fn begin() {}

/// Nothing is entered.
#[inline(always)]
pub fn enter(_: Stage) -> Mark {
    Mark
}

/// Nothing is summed.
#[inline(always)]
pub fn end_turn(_busy: bool) {}
