//! Conversations of a connection: with a scripted peer, with another one over a bad network, and
//! with another TCP implementation.

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
