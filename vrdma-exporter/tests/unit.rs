//! What systemd says of the unit. The score is printed, so that a change shows.

use std::io::{ErrorKind, Write};
use std::process::Command;

const UNIT: &str = include_str!("../../docs/vrdma-exporter.service");

/// Prints to stderr, which the test harness does not capture.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

#[test]
fn systemd_calls_the_unit_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vrdma-exporter.service");
    std::fs::write(&path, UNIT).unwrap();
    let mut command = Command::new("systemd-analyze");
    let output = match command.args(["security", "--offline=true", "--no-pager"]).arg(&path).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            say("systemd_calls_the_unit_closed: skipped: there is no systemd-analyze");
            return;
        }
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let level = said.lines().find_map(|line| line.split_once("exposure level for ")?.1.split(' ').nth(1));
    let score: f32 =
        level.and_then(|level| level.parse().ok()).unwrap_or_else(|| panic!("no score: {output:?}"));
    say(&format!("systemd-analyze security: vrdma-exporter.service: {score}, at most 1.2"));
    assert!(score <= 1.2, "{score}");
}

#[test]
fn the_unit_has_no_right_but_its_group() {
    for line in
        ["DynamicUser=yes", "SupplementaryGroups=vrdma", "CapabilityBoundingSet=", "NoNewPrivileges=yes"]
    {
        assert!(UNIT.lines().any(|own| own == line), "{line} is missing");
    }
    assert!(!UNIT.contains("/run/vrdma/admin"));
}
