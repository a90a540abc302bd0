//! What all services share: a message is cut into segments ([`stretch`]); each is judged at its responder ([`verdict`]), carried out there
//! ([`effect`]), arrives ([`arrival`]), and is done with ([`departure`]).

pub(crate) mod arrival;
pub(crate) mod departure;
pub(crate) mod effect;
pub(crate) mod segment;
pub(crate) mod stretch;
pub(crate) mod transfer;
pub(crate) mod verdict;
