//! `log`: what the daemon logs.

use crate::args::LogLevel;
use crate::connection::Connection;
use crate::print;
use crate::sheets::word;
use anyhow::Result;
use vrdma_admin::log::{GetLog, Level, SetLog};

/// Prints the level of the log, or sets it.
///
/// # Errors
/// The daemon refuses that, or does not answer.
pub fn log(connection: &Connection, json: bool, level: Option<LogLevel>) -> Result<()> {
    let shown = |level: Option<Level>| level.map_or("off".to_owned(), word);
    let Some(level) = level else {
        let found = connection.to_observe()?.call(&GetLog {})?;
        return if json { print::json(&found) } else { print::line(&shown(found.level)) };
    };
    let level = match level {
        LogLevel::Error => Level::Error,
        LogLevel::Warn => Level::Warn,
        LogLevel::Info => Level::Info,
        LogLevel::Debug => Level::Debug,
        LogLevel::Trace => Level::Trace,
    };
    let set = connection.to_administer()?.call(&SetLog { level })?;
    if json {
        return print::json(&set);
    }
    print::line(&format!("the log has level {}; it had {}", word(level), shown(set.before)))
}
