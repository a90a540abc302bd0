//! Collections that several objects have.

pub(crate) mod flush;
pub(crate) mod pool;
pub(crate) mod table;
pub(crate) mod wakes;
