//! Conversations of one connection with a peer that is a table, of two with each other over a bad
//! network, and with another's TCP.

mod attacks;
mod closing;
mod fpdus;
mod loss;
mod opening;
mod records;
mod requirements;
mod script;
pub(crate) mod sim;
mod smoltcp;
mod stack;
mod streams;
mod windows;
