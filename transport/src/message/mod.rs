//! What all services share: a message is split into segments ([`stretch`]); each is checked at its
//! responder ([`verdict`]), executed there ([`effect`]), and ends for the responder ([`arrival`])
//! and the requester ([`departure`]). A request of own keys alone is carried out by [`keys`].

pub(crate) mod accept;
pub(crate) mod arrival;
pub(crate) mod core;
pub(crate) mod ctx;
pub(crate) mod departure;
pub(crate) mod effect;
pub(crate) mod fail;
pub(crate) mod flush;
pub(crate) mod keys;
pub(crate) mod outlet;
pub(crate) mod pair;
pub(crate) mod receive;
pub(crate) mod step;
pub(crate) mod stretch;
pub(crate) mod transfer;
pub(crate) mod verdict;
pub(crate) mod wake;
