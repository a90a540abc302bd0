//! Progress for the person at the terminal: a line per step, and more lines while a step takes
//! long.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

/// Steps shorter than this are reported only when they end.
const QUIET: Duration = Duration::from_secs(2);

/// Runs a step and prints how long it took. After two seconds it prints that the step runs.
pub fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    step_with_log(what, None, work)
}

/// [`step`] that shows the log file's last line while the step runs.
pub fn step_with_log<T>(what: &str, log: Option<&Path>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = unless_quick(what, log, work);
    let seconds = start.elapsed().as_secs_f64();
    match &result {
        Ok(_) => say_done(what, seconds),
        Err(_) => say(&format!("FAIL {seconds:7.1} s  {what}")),
    }
    result
}

/// Prints that a step has ended, and which of the announced steps are left.
pub fn say_done(what: &str, seconds: f64) {
    say(&format!("  ok {seconds:7.1} s  {what}{}", left_after(&mut expected(), what)));
}

/// Removes a step with nothing to do from the list of announced steps.
pub fn done_unsaid(what: &str) {
    left_after(&mut expected(), what);
}

/// Returns the steps that were announced and have not ended.
fn expected() -> MutexGuard<'static, Vec<String>> {
    static EXPECTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    // The list is consistent at all times, even if a thread panicked while it had the lock.
    EXPECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Announces steps that take some time. Each of them that ends then prints which are left.
pub fn expect(steps: Vec<String>) {
    if steps.len() > 1 {
        say(&format!("to do: {}", steps.join(", ")));
    }
    *expected() = steps;
}

/// Removes an ended step from the list. Returns the text about the steps that are left.
fn left_after(expected: &mut Vec<String>, what: &str) -> String {
    let before = expected.len();
    expected.retain(|step| step != what);
    match (expected.len(), before) {
        (0, _) => String::new(),
        (left, before) if left == before => String::new(),
        _ => format!(" (left: {})", expected.join(", ").replace("building ", "")),
    }
}

/// Runs `work`. Prints progress if it takes long, and nothing otherwise.
pub fn unless_quick<T>(what: &str, log: Option<&Path>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let ticker = Ticker::start(what.to_owned(), log.map(Path::to_owned));
    let result = work();
    ticker.stop();
    result
}

/// Prints a line of progress to standard error.
///
/// Standard output is reserved for the requested output.
pub fn say(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    // An error is ignored: work goes on if nobody reads its progress.
    let _ = writeln!(stderr, "{clear}{line}");
}

struct Ticker {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Ticker {
    fn start(what: String, log: Option<PathBuf>) -> Self {
        let (stop, stopped) = channel();
        let terminal = std::io::stderr().is_terminal();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            let mut pause = QUIET;
            // The loop ends on a message, and also if the sender is dropped.
            while stopped.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let elapsed = start.elapsed().as_secs();
                if terminal {
                    let last = log.as_deref().map(last_line).unwrap_or_default();
                    let line: String =
                        format!("  .. {elapsed:5} s    {what}  {last}").chars().take(110).collect();
                    let mut stderr = std::io::stderr().lock();
                    let _ = write!(stderr, "\r\x1b[K{line}");
                    let _ = stderr.flush();
                    pause = Duration::from_secs(1);
                } else {
                    say(&format!("  .. {elapsed:5} s    {what}"));
                    pause = if elapsed < 10 { Duration::from_secs(8) } else { Duration::from_secs(20) };
                }
            }
        });
        Self { stop, thread }
    }

    fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Returns the last lines of a log file, for error messages. Empty if there is no file.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn last_line(path: &Path) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut end = String::new();
    if let Ok(mut file) = std::fs::File::open(path) {
        let length = file.metadata().map_or(0, |meta| meta.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(400)));
        let mut bytes = Vec::new();
        let _ = file.read_to_end(&mut bytes);
        end = String::from_utf8_lossy(&bytes).lines().last().unwrap_or_default().to_owned();
    }
    end.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_that_was_announced_says_what_is_left() {
        let mut steps: Vec<String> = ["building a", "building b", "c"].map(str::to_owned).into();
        assert_eq!(left_after(&mut steps, "another"), "");
        assert_eq!(left_after(&mut steps, "building b"), " (left: a, c)");
        assert_eq!(left_after(&mut steps, "building a"), " (left: c)");
        assert_eq!(left_after(&mut steps, "c"), "");
        assert_eq!(steps, Vec::<String>::new());
    }
}
