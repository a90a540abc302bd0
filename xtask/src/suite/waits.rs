//! Tests wait by one helper, `testing/guest/src/wait.rs`, or in VMs `testing/lab/src/wait.rs`.
//!
//! The helper has a generous deadline and says what it waited for. A test that sleeps, or looks at
//! a clock, sooner or later has a time limit that a busy machine exceeds.

use anyhow::{Result, bail};
use vrdma_lab::paths;
use vrdma_lab::proc::indent;

use super::rust::{test_code, tokens};
use super::sources::{is_test, read_all, test_modules};

/// What is refused: names that end a path or are called as methods.
const REFUSED: &[&[&str]] = &[
    &["thread", "::", "sleep"],
    &["thread", "::", "park_timeout"],
    &["use", "std", "::", "thread", "::", "sleep"],
    &["Instant", "::", "now"],
    &[".", "elapsed"],
    &[".", "recv_timeout"],
    &[".", "wait_timeout"],
    &[".", "wait_timeout_while"],
    &[".", "set_read_timeout"],
    &[".", "set_write_timeout"],
];

/// Folders and files that are for tests as a whole, beside folders named `tests`.
const FOR_TESTS: &[&str] = &[
    "testing/guest/src/",
    "testing/lab/src/driver.rs",
    "testing/lab/src/third.rs",
    "testing/lab/src/watch.rs",
    "testing/vm/src/",
    "tests/src/",
];

/// Files that may, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("testing/guest/src/wait.rs", "the helper"),
    ("testing/guest/src/virtqueue.rs", "sleeps as long as it is told"),
    ("tests/src/vm_peer.rs", "a program that plays a guest; it gives up after the helper's patience"),
    ("tests/src/far.rs", "its TCP wants a clock"),
    ("tests/tests/end_to_end/panics.rs", "says how long the others paused, and asserts nothing of it"),
    (
        "tests/tests/end_to_end/uplink_gone.rs",
        "says how long traffic took to go on, and asserts nothing of it",
    ),
    ("tests/tests/end_to_end/refusals.rs", "a socket's time limit is the helper's patience"),
    ("tests/tests/end_to_end/vhost_fuzz.rs", "a socket's time limit is the helper's patience"),
    ("tests/tests/end_to_end/iwarp_ends.rs", "a socket's time limit is the helper's patience"),
    (
        "transport/tcp/tests/linux/main.rs",
        "two minutes for a conversation, which takes seconds; it has a clock and a network",
    ),
    ("transport/tcp/tests/linux/net.rs", "the network's clock"),
    ("testing/vm/src/runner.rs", "says how long each test takes"),
    ("vrdma-perf/src/windows.rs", "plays a load that stalls now and then, which is what is measured"),
    ("vrdma-backend/src/worker/polling.rs", "times are reckoned from one that is read once"),
    ("vrdma-backend/src/worker/watch.rs", "times are reckoned from one that is read once"),
    ("vrdma-backend/src/ratelimit.rs", "times are reckoned from one that is read once"),
    ("vrdma-backend/src/queue/call.rs", "what is measured is told to what is tested"),
    ("vrdma-backend/src/cycles/on.rs", "spends time that is to be counted"),
    (
        "vrdma-perf/src/wire/account.rs",
        "spends time that is to be counted, and compares it with a clock around it",
    ),
];

/// A place in a file's text that is refused: its line, and what stands there.
type Place = (usize, String);

/// Fails if a test waits by itself.
pub fn check() -> Result<()> {
    let files = read_all(paths::workspace())?;
    let modules: Vec<String> = files.iter().flat_map(|(file, text)| test_modules(file, text)).collect();
    let (mut found, mut unused) = (Vec::new(), Vec::new());
    for (file, text) in files.iter().filter(|(file, _)| file.ends_with(".rs") && !is_timed(file)) {
        let whole = is_test(file, &modules) || FOR_TESTS.iter().any(|folder| file.starts_with(folder));
        let places = places(text, whole);
        match ALLOWED.iter().any(|(allowed, _)| allowed == file) {
            true if places.is_empty() => unused.push(format!("{file} does not any more")),
            true => {}
            false => found.extend(places.iter().map(|(line, what)| format!("{file}:{line}: {what}"))),
        }
    }
    found.extend(unused);
    if found.is_empty() {
        return Ok(());
    }
    bail!(
        "tests that wait by themselves; use `wait::until` and its like, or give the reason in xtask/src/suite/waits.rs:\n{}",
        indent(&found.join("\n"))
    )
}

/// Benches measure time, and fuzz targets have none.
fn is_timed(file: &str) -> bool {
    file.split('/').any(|part| ["benches", "fuzz", "fuzzing"].contains(&part))
}

/// What is refused in a file, of which tests are all or some modules and functions.
fn places(text: &str, whole: bool) -> Vec<Place> {
    // Most files name none of it, and to take files apart takes long.
    if !REFUSED.iter().any(|refused| text.contains(refused[refused.len() - 1])) {
        return Vec::new();
    }
    let tokens = tokens(text);
    let parts = if whole { vec![tokens.as_slice()] } else { test_code(&tokens) };
    let line = |token: &str| {
        let offset = token.as_ptr() as usize - text.as_ptr() as usize;
        1 + text[..offset].matches('\n').count()
    };
    let mut places = Vec::new();
    for tests in parts {
        for (at, token) in tests.iter().enumerate() {
            if let Some(refused) = REFUSED.iter().find(|refused| tests[at..].starts_with(refused)) {
                places.push((line(token), refused.concat()));
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, whole: bool) -> Vec<Place> {
        places(text, whole)
    }

    #[test]
    fn a_test_that_sleeps_is_found() {
        let text = "// thread::sleep\nfn f() {\n    std::thread::sleep(T);\n    let x = start\n        .elapsed();\n}\n";
        assert_eq!(found(text, true), [(3, "thread::sleep".to_owned()), (5, ".elapsed".to_owned())]);
        assert_eq!(found("fn f() { wait::pause(T, \"thread::sleep\"); elapsed() }", true), []);
        assert_eq!(found("use std::thread::sleep;\n", true).len(), 2);
    }

    #[test]
    fn of_other_files_tests_alone_are_looked_at() {
        let text = "fn f() { thread::sleep(T) }\n#[cfg(test)]\nmod tests {\n    fn g() { x.recv_timeout(T) }\n}\nfn h() { Instant::now() }\n";
        assert_eq!(found(text, false), [(4, ".recv_timeout".to_owned())]);
        assert_eq!(found(text, true).len(), 3);
    }

    #[test]
    fn each_file_that_may_gives_a_reason() {
        assert!(ALLOWED.iter().all(|(file, why)| paths::workspace().join(file).exists() && !why.is_empty()));
    }
}
