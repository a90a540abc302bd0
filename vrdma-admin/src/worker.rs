//! `org.vrdma.Worker`: the threads that serve guests.

use crate::Method;
use serde::{Deserialize, Serialize};

/// The method List.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ListWorkers {}

/// All workers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct WorkerList {
    /// The workers in the order of their numbers.
    pub workers: Vec<Worker>,
}

/// A worker. Its numbers count from the daemon's start, and are `None` if it is stuck.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Worker {
    /// Its number.
    pub number: u64,
    /// Names of its guests.
    pub guests: Vec<String>,
    /// Whether it makes no progress.
    pub stuck: bool,
    /// The processor where it ran just now.
    pub processor: Option<u64>,
    /// Microseconds of a processor that its thread has used.
    pub processor_time: Option<u64>,
    /// Microseconds of turns in which it found work.
    pub busy: Option<u64>,
    /// Microseconds of turns in which it found none.
    pub idle: Option<u64>,
    /// Microseconds that it waited to be woken.
    pub asleep: Option<u64>,
    /// Most microseconds of a turn: the longest time between two looks at the clock, which are at
    /// most 16 turns apart.
    pub longest_turn: Option<u64>,
    /// How many times it went to sleep.
    pub sleeps: Option<u64>,
    /// Turns in which it found work.
    pub busy_turns: Option<u64>,
    /// Turns in which it found none.
    pub idle_turns: Option<u64>,
    /// Requests that it took from guests.
    pub requests: Option<u64>,
}

impl Method for ListWorkers {
    const NAME: &'static str = "org.vrdma.Worker.List";
    type Output = WorkerList;
}
