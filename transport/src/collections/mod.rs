//! Collections that several kinds of objects use.

pub(crate) mod flush;
pub(crate) mod pool;
pub(crate) mod table;
pub(crate) mod wakes;
pub(crate) mod watches;
