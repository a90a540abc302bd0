//! Tests the program as a person runs it. Each operation has its own daemon and few iterations. Its
//! error messages are checked, too.

use serde_json::Value;
use std::process::{Command, Output};

fn perf(line: &str) -> Output {
    perf_with(&line.split(' ').collect::<Vec<_>>())
}

/// Runs the program with arguments that may contain spaces.
fn perf_with(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-perf"));
    command.args(arguments).output().expect("the program runs")
}

/// Returns the results of a measurement that has to succeed.
fn results(line: &str) -> Vec<Value> {
    let output = perf(&format!("{line} --json"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn iterations(result: &Value) -> u64 {
    result["iterations"].as_u64().expect("a number")
}

#[test]
fn a_latency_has_percentiles_and_a_ratio_to_the_ring_floor() {
    let all = results("write lat -n 2000");
    let [result] = &all[..] else { panic!("{all:?}") };
    assert!(iterations(result) >= 2000, "{result}");
    let us = |key: &str| result["latency_us"][key].as_f64().unwrap_or_else(|| panic!("no {key}: {result}"));
    let rising = ["min", "typical", "p99", "p999", "max"].map(us);
    assert!(rising[0] > 0. && rising.is_sorted(), "{result}");
    assert_eq!((&result["operation"], &result["limit"]), (&"WRITE".into(), &"ring floor".into()));
    assert!(result["turns"]["left_out"].is_u64(), "{result}");
}

#[test]
fn long_messages_are_held_against_a_copy() {
    let all = results("write bw -s 65536 -n 1000");
    let limit = all[0]["limit"].as_str().expect("a limit");
    assert!(limit.starts_with("copy by "), "{limit}");
    assert!(all[0]["rate"]["median"].as_f64().expect("a rate") > 0.);
}

#[test]
fn each_operation_of_each_service_ends() {
    let lines = [
        "write rate",
        "write rate -I 32 -b",
        "write rate -q 5 -Q 8",
        "write bw -c UC --cold",
        "write bw -c XRC",
        "write lat -e",
        "read lat",
        "read bw --guests 3",
        "send lat",
        "send rate --srq -q 3",
        "send rate -c UC",
        "send rate -c UD -q 2 -b",
        "send rate -c UD --guests 3 -b",
        "send rate -c XRC",
        "send bw -s 100000 --cold",
        "atomic rate",
        "atomic lat -A CMP_AND_SWAP -c XRC",
        "atomic rate -A WRITE",
        "write rate --imm",
        "write rate --imm --srq",
        "write rate --window 1",
        "read rate --window 2B",
        "atomic rate --window 2B",
        "bind rate",
        "write rate --idle 20",
        "write rate --guests 1",
        "write lat -e --pause 200 --poll-us 0",
        "write lat --iwarp",
        "write rate --iwarp --imm -b",
        "write bw --iwarp -q 3",
        "write rate --iwarp --window 2B --idle 2",
        "write rate --iwarp --guests 1",
        "read lat --iwarp",
        "read bw --iwarp --guests 3",
        "send lat --iwarp -e",
        "send rate --iwarp --srq -q 3",
        "send bw --iwarp --cold",
        "atomic rate --iwarp",
        "send lat --iwarp --kernel-tcp",
        "write bw --iwarp --kernel-tcp -q 3",
    ];
    for line in lines {
        let all = results(&format!("{line} -n 300 --no-limits"));
        assert_eq!(all.len(), 1, "{line}");
        assert!(iterations(&all[0]) >= 300, "{line}: {}", all[0]);
        assert!(all[0]["turns"].is_null(), "{line}");
    }
}

#[test]
fn a_table_has_perftests_columns() {
    let output = perf("write rate -n 1000 --no-limits");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("MsgRate[Mpps]") && text.contains("\n 8 "), "{text}");
}

#[test]
fn mistakes_are_told_in_a_line() {
    let lines = [
        ("send lat -c UD -s 5000", "vrdma-perf: messages have 4096 bytes at most"),
        ("write lat --cpus 0,1023", "vrdma-perf: processor 1023 is none that we may run on"),
        ("wire ring --cpus 1023,0", "vrdma-perf: processor 1023 is none that we may run on"),
        (
            "write lat --attach /nowhere/a",
            "vrdma-perf: --attach wants 2 sockets, one for each guest: 1 given",
        ),
        ("write lat --attach /nowhere/a --attach /nowhere/b", "vrdma-perf: /nowhere/a: connect"),
        ("write lat --daemon /nowhere/vrdma-backend", "vrdma-perf: /nowhere/vrdma-backend: No such file"),
    ];
    for (line, message) in lines {
        let output = perf(line);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.starts_with(message), "{line}: {text}");
        assert_eq!(text.lines().count(), 1, "{line}: {text}");
    }
}

#[test]
fn frames_of_a_port_are_beside_what_engines_send_over_it() {
    for (line, figure, mtu) in [
        ("wire ring -s 64", "rate", 4096),
        ("wire memif", "bw", 4096),
        ("wire ring --iwarp --gap 9", "lat", 4500),
    ] {
        let output = perf(&format!("{line} -D 0.05 --json"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (result["figure"].as_str(), result["mtu"].as_u64()),
            (Some(figure), Some(mtu)),
            "{result}"
        );
        assert!(result["turns"]["left_out"].is_u64(), "{result}");
    }
}

#[test]
fn a_link_with_losses_is_beside_one_without() {
    let output = perf_with(&["loss", "--runs", "1", "-D", "0.1", "--losses", "10", "--only", "lost"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let cells = |name: &str| -> Vec<String> {
        let row = text.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let row = row.unwrap_or_else(|| panic!("{name}: {text}"));
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    for name in ["64 KiB WRITE, 1 % lost", "64 KiB READ, 1 % lost, reordered, doubled", "8 B WRITE, 1 % lost"]
    {
        assert_ne!(cells(name)[5], "0", "{name}: packets are lost: {text}");
    }
    // Ten operations of 200 have a planned loss. So may some of those before them.
    let lost: u32 = cells("16 KiB WRITE, its ACK lost")[5].parse().expect("a number");
    assert!((10..=30).contains(&lost), "{text}");
    assert!(!text.contains("that nobody answers"), "{text}");
}

#[test]
fn a_row_that_there_is_not_and_a_machine_without_a_veth_are_told() {
    let output = perf_with(&["loss", "--only", "16 MiB"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("vrdma-perf: no row has \"16 MiB\" in its name: 64 KiB"), "{error}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-perf"));
    let output = command.arg("loss").env("PATH", "/nowhere").output().expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("this machine has no veth"), "{error}");
}

#[test]
fn a_report_is_put_between_the_marks_of_its_document() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("report.md");
    std::fs::write(&file, "before\n<!-- report: begin -->\nold\n<!-- report: end -->\nafter\n")
        .expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-perf"));
    command.args(["report", "-D", "0.05", "--only", "10 QPs", "--out"]).arg(dir.path());
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file).expect("still there");
    assert!(text.starts_with("before\n") && text.ends_with("after\n") && !text.contains("old"), "{text}");
    assert!(text.contains("| 8 B WRITE rate, 10 QPs in random order |"), "{text}");
    // The plot is written next to the document. There is none if no two windows were alike.
    assert_eq!(text.contains("](qps.svg)"), dir.path().join("qps.svg").is_file(), "{text}");
}

#[test]
fn a_guest_that_sends_to_itself_is_beside_one_that_sends_to_another() {
    let output = perf_with(&["report", "-D", "0.05", "--only", "WRITE rate, 1 guest"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("| 8 B WRITE rate, 1 guest |"), "{text}");
}

#[test]
fn the_wire_has_its_processors_also_after_other_rows() {
    let output = perf_with(&["report", "-D", "0.05", "--only", "64 KiB WRITE"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for row in ["| 64 KiB WRITE, hot |", "| 64 KiB WRITE over net_memif, MTU 4096"] {
        assert!(text.contains(row), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_a_machine_has_not_got_is_said_in_its_row() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-perf"));
    command.args(["report", "-D", "0.05", "--only", "UCX's put: latency"]).env("PATH", "/nowhere");
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("not measured: write lat: ucx_perftest"), "{text}");
    // Engines over a port run in this program, so another daemon gives no figure for them.
    let arguments = ["report", "--only", "64 B WRITEs over net_memif", "--daemon", "/nowhere/vrdma-backend"];
    let output = perf_with(&arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("not measured: its engines are this program's"),
        "{text}"
    );
    // Measured alone, a missing program is an error.
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-perf"));
    command.args(["wire", "af_packet", "-D", "0.05"]).env("PATH", "/nowhere");
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn sizes_are_drawn() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.svg");
    let output = perf(&format!("write bw -a -n 10 --no-limits --plot {}", file.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(&file).expect("a file").contains("<polyline"));
}

#[test]
fn a_daemon_tells_what_its_time_went_to_if_it_was_built_so() {
    let output = perf("report --account -D 0.05 --only FETCH_ADD");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if cfg!(feature = "cycles") {
        assert!(output.status.success() && text.contains("\n| FETCH_ADD | "), "{text}{errors}");
    } else {
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(errors.contains("--features cycles"), "{errors}");
    }
}
