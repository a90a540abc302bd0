//! What all services share: a message is split into segments ([`stretch`]); each is checked at its responder ([`verdict`]), executed there
//! ([`effect`]), and ends for the responder ([`arrival`]) and the requester ([`departure`]). A request of own keys alone is
//! carried out by [`keys`].

pub(crate) mod arrival;
pub(crate) mod departure;
pub(crate) mod effect;
pub(crate) mod keys;
pub(crate) mod reason;
pub(crate) mod segment;
pub(crate) mod stretch;
pub(crate) mod transfer;
pub(crate) mod verdict;
