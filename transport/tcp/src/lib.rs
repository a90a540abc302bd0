//! TCP (in progress).
#![forbid(unsafe_code)]

mod acknowledge;
mod config;
mod congestion;
mod connection;
mod counters;
mod initial;
mod input;
mod output;
mod prr;
mod rack;
mod reassembly;
mod recovery;
mod rtt;
mod save;
mod scoreboard;
mod seq;
mod stack;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod timeout;
mod timers;
mod tuple;

pub use config::{Config, KeepAlive};
pub use connection::{Connection, Event, Ports, Reason, State};
pub use counters::Counters;
pub use output::{Segment, Source};
pub use reassembly::Arrival;
pub use save::Saved;
pub use stack::{Refused, Sources, Stack, StackCounters, StackLimits};
pub use table::ConnectionId;
pub use time::Instant;
pub use tuple::Tuple;
