//! What systemd says of the unit. The score is printed, so that a change shows.

use std::io::{ErrorKind, Write};
use std::process::Command;

const UNIT: &str = include_str!("../../docs/vrdma-backend.service");
const VFIO: &str = include_str!("../../docs/vrdma-backend-vfio.conf");

/// Prints to stderr, which the test harness does not capture.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Returns systemd's score of a unit: 0 is closed, 10 is open. `None`: systemd is not there.
fn score(unit: &str) -> Option<f32> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vrdma-backend.service");
    std::fs::write(&path, unit).unwrap();
    let mut command = Command::new("systemd-analyze");
    let output = match command.args(["security", "--offline=true", "--no-pager"]).arg(&path).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let level = said.lines().find_map(|line| line.split_once("exposure level for ")?.1.split(' ').nth(1));
    Some(level.and_then(|level| level.parse().ok()).unwrap_or_else(|| panic!("no score: {output:?}")))
}

#[test]
fn systemd_calls_the_unit_closed() {
    // A drop-in continues the section, as lines at its end do.
    let (service, install) = UNIT.split_once("[Install]").unwrap();
    let (_, vfio) = VFIO.split_once("[Service]").unwrap();
    let with_vfio = format!("{service}{vfio}\n[Install]{install}");
    for (what, unit, most) in [("vrdma-backend.service", UNIT, 2.0), ("with vfio", &with_vfio, 2.2)] {
        let Some(score) = score(unit) else {
            say("systemd_calls_the_unit_closed: skipped: there is no systemd-analyze");
            return;
        };
        say(&format!("systemd-analyze security: {what}: {score}, at most {most}"));
        assert!(score <= most, "{what}: {score}");
    }
}

#[test]
fn the_unit_never_is_root() {
    assert!(UNIT.lines().any(|line| line == "User=vrdma"));
    assert!(!VFIO.contains("User="));
}
