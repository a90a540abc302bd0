//! Tests wait by one helper, `testing/guest/src/wait.rs`, or in VMs `testing/lab/src/wait.rs`.
//!
//! The helper has a generous deadline and says what it waited for. A test that sleeps, or looks at
//! a clock, sooner or later has a time limit that a busy machine exceeds.

use anyhow::{Result, bail};
use vrdma_lab::proc::indent;

use super::rust::{Code, Facts};
use super::sources::{Source, all};

/// Functions that are refused, in paths and imports, with the module or type before them.
const FUNCTIONS: &[[&str; 2]] = &[["thread", "sleep"], ["thread", "park_timeout"], ["Instant", "now"]];

/// Methods that are refused.
const METHODS: &[&str] = &[
    "elapsed",
    "recv_timeout",
    "wait_timeout",
    "wait_timeout_while",
    "set_read_timeout",
    "set_write_timeout",
];

/// Folders and files that are for tests as a whole, beside folders named `tests`.
const FOR_TESTS: &[&str] = &[
    "testing/conformance/src/families/storage.rs",
    "testing/conformance/src/rdmacore.rs",
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
    ("tests/src/remote_host.rs", "its TCP wants a clock"),
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
    (
        "vrdma-backend/src/worker/exact_wait.rs",
        "the time of a system call is what is tested: never too short, and not always a millisecond",
    ),
    ("vrdma-backend/src/worker/polling.rs", "times are reckoned from one that is read once"),
    ("vrdma-backend/src/worker/watch.rs", "times are reckoned from one that is read once"),
    ("vrdma-ctl/src/top/tests.rs", "times are reckoned from one that is read once"),
    ("vrdma-ctl/tests/program.rs", "a socket's time limit is the helper's patience"),
    ("tests/tests/end_to_end/captures.rs", "times of packets have the right unit, within a minute"),
    ("vrdma-backend/src/admin/client.rs", "a client is read once, at some time"),
    ("vrdma-exporter/tests/common/mod.rs", "a socket's time limit is the helper's patience"),
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
    let (mut found, mut unused) = (Vec::new(), Vec::new());
    for source in all()?.iter().filter(|source| !is_timed(&source.file)) {
        let Source { file, code: Some(code), .. } = source else { continue };
        let whole = source.is_test() || FOR_TESTS.iter().any(|folder| file.starts_with(folder));
        let places = places(code, whole);
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

/// What is refused in a file, of which tests are all or what only tests have.
fn places(code: &Code, whole: bool) -> Vec<Place> {
    let mut places = places_of(&code.tests);
    if whole {
        places.extend(places_of(&code.product));
    }
    places.sort_unstable();
    places
}

/// What is refused of these facts.
fn places_of(facts: &Facts) -> Vec<Place> {
    let imports = facts.imports.iter().map(|import| (&import.path, import.line));
    let paths = facts.paths.iter().map(|named| (&named.path, named.line));
    let functions = imports.chain(paths).filter_map(|(path, line)| {
        let refused = FUNCTIONS.iter().find(|refused| path.windows(2).any(|pair| pair == **refused))?;
        Some((line, refused.join("::")))
    });
    let methods = facts.calls.iter().filter(|call| METHODS.contains(&call.name.as_str()));
    functions.chain(methods.map(|call| (call.line, format!(".{}", call.name)))).collect()
}

#[cfg(test)]
mod tests {
    use vrdma_lab::paths;

    use super::*;
    use crate::suite::rust;

    fn found(text: &str, whole: bool) -> Vec<Place> {
        places(&rust::read(text).unwrap(), whole)
    }

    #[test]
    fn a_test_that_sleeps_is_found() {
        let text = "// thread::sleep\nfn f() {\n    std::thread::sleep(T);\n    let x = start\n        .elapsed();\n}\n";
        assert_eq!(found(text, true), [(3, "thread::sleep".to_owned()), (5, ".elapsed".to_owned())]);
        assert_eq!(found("fn f() { wait::pause(T, \"thread::sleep\"); elapsed() }", true), []);
        assert_eq!(found("use std::thread::sleep;\n", true), [(1, "thread::sleep".to_owned())]);
        assert_eq!(found("use std::thread::{self, sleep};\n", true).len(), 1);
        assert_eq!(found("fn f() { assert!(start.elapsed() < T, \"{}\", Instant::now()) }", true).len(), 2);
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
