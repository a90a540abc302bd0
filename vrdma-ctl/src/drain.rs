//! `drain` and `resume`: a daemon that lets nothing new in.

use crate::connection::Connection;
use crate::print;
use anyhow::{Result, bail};
use std::fmt;
use std::time::{Duration, Instant};
use vrdma_admin::daemon::{Drain, Resume};

/// The time was over, and these guests are busy.
#[derive(Debug)]
pub struct Busy(Vec<String>);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the time is over, and guests have sends that have not ended: {}", self.0.join(", "))
    }
}

impl std::error::Error for Busy {}

/// Lets nothing new in, and waits until no guest is busy.
///
/// # Errors
/// [`Busy`], or the daemon does not answer.
pub fn drain(connection: &Connection, json: bool, timeout: Option<Duration>) -> Result<()> {
    let mut client = connection.to_administer()?;
    let until = timeout.map(|timeout| Instant::now() + timeout);
    for found in client.follow(&Drain {})? {
        let found = found?;
        let is_over = until.is_some_and(|until| Instant::now() >= until);
        if found.busy.is_empty() || is_over {
            if json {
                print::json(&found)?;
            }
            if is_over && !found.busy.is_empty() {
                return Err(Busy(found.busy).into());
            }
            return if json { Ok(()) } else { print::line("no guest has sends that have not ended") };
        }
    }
    bail!("the daemon's answer ended before its guests were idle")
}

/// Lets all in again.
///
/// # Errors
/// The daemon does not answer.
pub fn resume(connection: &Connection, json: bool) -> Result<()> {
    let found = connection.to_administer()?.call(&Resume {})?;
    if json { print::json(&found) } else { print::line("front-ends, queue pairs and connections are let in") }
}
