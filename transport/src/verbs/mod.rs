//! The interface to callers: operations, requests, completions, attributes, limits, counters.

pub(crate) mod attr;
pub(crate) mod caps;
pub(crate) mod completion;
pub(crate) mod counters;
pub(crate) mod fast;
pub(crate) mod limits;
pub(crate) mod mirror;
pub(crate) mod op;
pub(crate) mod reason;
pub(crate) mod request;
pub(crate) mod segment;
pub(crate) mod view;
pub(crate) mod window;
pub(crate) mod work;
