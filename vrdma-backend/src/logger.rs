//! The log: its filter (the `--log` level, or `RUST_LOG` for developers), and where it goes.
//!
//! It goes to standard error, with time stamps. Under systemd it goes to the journal, which has
//! stamps of its own, and takes priorities and fields.

mod journal;

use crate::nearest::nearest;
use clap::ValueEnum;
use journal::Journal;
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// The level if neither the option nor `RUST_LOG` names one.
const USUAL: LevelFilter = LevelFilter::Info;
/// Levels that `RUST_LOG` may name.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Parts of this program that log.
///
/// `RUST_LOG` may name them and the modules below them (`vrdma_backend::net`).
const PARTS: [&str; 7] =
    ["vrdma_backend", "vrdma_perf", "dpdk", "vhost", "virtio_queue", "vm_memory", "vmm_sys_util"];

/// Messages of this level and of those before it are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What ends the daemon, or a part of it.
    Error,
    /// What an operator should look at.
    Warn,
    /// What happens: front-ends come and leave, the link goes up and down.
    Info,
    /// What a developer asks for.
    Debug,
    /// Everything.
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> LevelFilter {
        match level {
            LogLevel::Error => LevelFilter::Error,
            LogLevel::Warn => LevelFilter::Warn,
            LogLevel::Info => LevelFilter::Info,
            LogLevel::Debug => LevelFilter::Debug,
            LogLevel::Trace => LevelFilter::Trace,
        }
    }
}

/// Whether `RUST_LOG` decides what is logged.
static FIXED: AtomicBool = AtomicBool::new(false);

/// The error that `RUST_LOG` decides what is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("RUST_LOG was set when the daemon started, and decides what is logged: start it with --log LEVEL")]
pub struct Fixed;

/// Sets the level while the daemon runs. Returns the level before.
///
/// # Errors
/// `RUST_LOG` decides what is logged.
pub fn set(level: LogLevel) -> Result<Option<LogLevel>, Fixed> {
    if FIXED.load(Ordering::Relaxed) {
        return Err(Fixed);
    }
    let before = self::level();
    log::set_max_level(level.into());
    Ok(before)
}

/// Whether `RUST_LOG` decides what is logged, so that [`set`] fails.
pub fn is_fixed() -> bool {
    FIXED.load(Ordering::Relaxed)
}

/// Whether what is logged is what a daemon logs that was told nothing.
pub fn is_usual() -> bool {
    FIXED.load(Ordering::Relaxed) || log::max_level() == USUAL
}

/// Returns the least important level that is logged, or `None` if nothing is.
pub fn level() -> Option<LogLevel> {
    Some(match log::max_level().to_level()? {
        Level::Error => LogLevel::Error,
        Level::Warn => LogLevel::Warn,
        Level::Info => LogLevel::Info,
        Level::Debug => LogLevel::Debug,
        Level::Trace => LogLevel::Trace,
    })
}

/// Starts to log, to the journal if standard error is one of its streams.
///
/// Messages of `level` and above are logged. Without a level, `RUST_LOG` decides, and level info
/// applies to everything that it does not name. A `RUST_LOG` with a mistake is ignored, and one
/// line says so.
pub fn start(level: Option<LogLevel>) {
    let filter = std::env::var("RUST_LOG").unwrap_or_default();
    let mistake = if level.is_none() { mistake(&filter) } else { None };
    let mut builder = env_logger::Builder::new();
    // `log` itself leaves out what is less important than the level, which may change.
    builder.filter_level(LevelFilter::Trace);
    builder.parse_write_style(&std::env::var("RUST_LOG_STYLE").unwrap_or_default());
    let is_fixed = level.is_none() && mistake.is_none() && !filter.trim().is_empty();
    if is_fixed {
        builder.filter_level(USUAL);
        builder.parse_filters(&filter);
    }
    // It logs each mistake of a driver, without a rate limit. Its callers log them too.
    builder.filter_module("virtio_queue", LevelFilter::Off);
    if journal::has_stderr() {
        builder.format(|out, record| {
            let text = format!("[{}] {}", record.target(), record.args());
            out.write_all(journal::lines(record.level(), &text).as_bytes())
        });
        let stderr = builder.build();
        log::set_max_level(stderr.filter());
        let logger = JournalLogger { journal: Journal::open().ok(), stderr };
        log::set_boxed_logger(Box::new(logger)).expect("the log is started once");
    } else {
        builder.init();
    }
    FIXED.store(is_fixed, Ordering::Relaxed);
    if !is_fixed {
        log::set_max_level(level.map_or(USUAL, Into::into));
    }
    if let Some(mistake) = mistake {
        log::warn!(
            "RUST_LOG={filter} is left out: {mistake}; messages from info on are logged (--log LEVEL says otherwise)"
        );
    }
}

/// Whether standard error is a stream of the journal, which takes a priority with each line.
pub fn has_journal() -> bool {
    journal::has_stderr()
}

/// Returns an error's text as a stream of the journal takes it: each line has its priority.
pub fn error_lines(text: &str) -> String {
    journal::lines(Level::Error, text)
}

/// Tells why the program ends, whether the log was started or not.
pub fn tell_end(error: &anyhow::Error) {
    let text = format!("vrdma-backend: {error:#}\n");
    let text = if has_journal() { error_lines(&text) } else { text };
    // Standard error may be closed. Then only the exit status tells.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Logs to the journal. What the journal does not take goes to standard error.
struct JournalLogger {
    /// `None` if there was no descriptor for it.
    journal: Option<Journal>,
    stderr: env_logger::Logger,
}

impl Log for JournalLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.stderr.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.stderr.matches(record) {
            return;
        }
        if self.journal.as_ref().is_none_or(|journal| journal.send(record).is_err()) {
            self.stderr.log(record);
        }
    }

    fn flush(&self) {}
}

/// Returns the first mistake in `RUST_LOG`, which has the form `LEVEL,PART=LEVEL,.../TEXT`.
fn mistake(filter: &str) -> Option<String> {
    let (parts, _text) = filter.split_once('/').unwrap_or((filter, ""));
    parts.split(',').map(str::trim).filter(|part| !part.is_empty()).find_map(|part| {
        let (name, level) = part.split_once('=').map_or((part, None), |(name, level)| (name, Some(level)));
        match level {
            Some(level) if !is_level(level) => Some(format!("{level} is no level{}", meant(level, &LEVELS))),
            None if is_level(name) => None,
            _ if is_part(name) => None,
            None => {
                let known = [&LEVELS[..], &PARTS[..]].concat();
                Some(format!("{name} is neither a level nor a part of this program{}", meant(name, &known)))
            }
            Some(_) => Some(format!("{name} is no part of this program{}", meant(name, &PARTS))),
        }
    })
}

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
}

fn is_part(name: &str) -> bool {
    PARTS.contains(&name.split("::").next().unwrap_or_default())
}

fn meant(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!(": did you mean {meant}?"),
        None => format!(": there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_silence_us_by_mistake_is_known() {
        for good in [
            "",
            "debug",
            "WARN",
            "off",
            "vrdma_backend",
            "vrdma_backend::net=trace,warn",
            "info,dpdk=off/link",
            " info , vhost=debug",
        ] {
            assert_eq!(mistake(good), None, "{good}");
        }
        for (wrong, said) in [
            ("debgu", "debgu is neither a level nor a part of this program: did you mean debug?"),
            ("info,vrdma_backend=dbug", "dbug is no level: did you mean debug?"),
            ("vrdma_bakend=debug", "vrdma_bakend is no part of this program: did you mean vrdma_backend?"),
            ("=debug", " is no part of this program: there are vrdma_backend, "),
            ("vrdma_backend=a=b", "a=b is no level: there are off, "),
            ("7", "7 is neither a level nor a part of this program: there are off, error, "),
        ] {
            let found = mistake(wrong).unwrap_or_default();
            assert!(found.starts_with(said), "{wrong}: {found}");
        }
    }
}
