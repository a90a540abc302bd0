//! `org.vrdma.Log`: the daemon's log.

use crate::Method;
use serde::{Deserialize, Serialize};

/// A level of messages, from the most important one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// What ends the daemon, or a part of it.
    Error,
    /// What an operator should look at.
    Warn,
    /// What happens.
    Info,
    /// What a developer asks for.
    Debug,
    /// Everything.
    Trace,
}

/// The method Get.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct GetLog {}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LogState {
    /// The least important level that is logged; `None`: nothing is.
    pub level: Option<Level>,
}

/// The method Set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SetLog {
    /// The least important level that is to be logged.
    pub level: Level,
}

/// What was logged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LogBefore {
    /// The least important level that was logged; `None`: nothing was.
    pub before: Option<Level>,
}

impl Method for GetLog {
    const NAME: &'static str = "org.vrdma.Log.Get";
    type Output = LogState;
}

impl Method for SetLog {
    const NAME: &'static str = "org.vrdma.Log.Set";
    type Output = LogBefore;
}
