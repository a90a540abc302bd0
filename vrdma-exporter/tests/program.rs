//! Runs the program for a daemon that the test plays, with good clients and bad ones.

use common::{Exporter, FakeDaemon, Manners, ODD_NAME, answer, ask, wait};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use vrdma_admin::Fault;
use vrdma_admin::worker::ListWorkers;
use vrdma_admin::{Call, Method};
use vrdma_exporter::families;
use vrdma_exporter::family::{Family, Kind};

mod common;

/// Returns the names of series in a text.
fn names(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

fn lab() -> (tempfile::TempDir, FakeDaemon, Exporter) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("observe");
    let daemon = FakeDaemon::start(&socket);
    let exporter = Exporter::start(&socket, &[]);
    (directory, daemon, exporter)
}

#[test]
fn a_scrape_shows_all_families_and_no_others() {
    let (_directory, _daemon, exporter) = lab();
    let plain = exporter.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = plain.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    assert_eq!(names(body), families::all().flat_map(Family::series).collect());
    let accept = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let open = exporter.ask(accept.as_bytes());
    let (head, body) = open.split_once("\r\n\r\n").unwrap();
    let kind = "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(head.contains(kind), "{head}");
    assert!(body.ends_with("\n# EOF\n"));
    assert_eq!(names(body), families::all().flat_map(Family::series).collect());
    let infos = families::all().filter(|family| family.kind == Kind::Info).count();
    assert_eq!(
        body.lines().filter(|line| line.starts_with("# TYPE") && line.ends_with(" info")).count(),
        infos
    );
}

#[test]
fn names_of_guests_are_escaped() {
    let (_directory, _daemon, exporter) = lab();
    let escaped = ODD_NAME.replace('\\', "\\\\").replace('"', "\\\"");
    let line = format!("vrdma_guest_connected{{guest=\"{escaped}\",function=\"roce\"}} 1\n");
    let text = exporter.metrics();
    assert!(text.contains(&line), "{text}");
}

#[test]
fn a_guest_has_as_many_series_as_the_documentation_says() {
    let (_directory, _daemon, exporter) = lab();
    let text = exporter.metrics();
    let count = |label: &str| text.lines().filter(|line| line.contains(label)).count();
    let ethernet = count("port=\"vm1\"") + count("guest=\"vm1\",function=\"ethernet\"");
    let latency = count("guest=\"vm1\",service=");
    let rdma = count("guest=\"vm1\"") - count("guest=\"vm1\",function=\"ethernet\"") - latency;
    let page = include_str!("../../docs/metrics.md").replace('\n', " ");
    let said = format!("{rdma} series of its RDMA function, and {ethernet} of its Ethernet function");
    assert!(page.contains(&said), "docs/metrics.md does not say '{said}'");
    // The fake daemon has three buckets. How many there are, a test of the daemon compares.
    assert_eq!(latency, 3 + 2);
}

#[test]
fn the_daemon_may_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("observe");
    let exporter = Exporter::start(&socket, &[]);
    assert!(exporter.metrics().contains("\nvrdma_up 0\n"));
    exporter.says("there is no such socket");
    let daemon = FakeDaemon::start(&socket);
    exporter.metrics_with("vrdma_up 1");
    exporter.says("the daemon answers");
    drop(daemon);
    let text = exporter.metrics_with("vrdma_up 0");
    assert!(!text.contains("vrdma_guest"), "{text}");
}

#[test]
fn a_daemon_that_does_not_answer_well_is_not_up() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("observe");
    let daemon = FakeDaemon::start(&socket);
    let exporter = Exporter::start(&socket, &["--timeout", "1"]);
    for (manners, said) in [
        (Manners::Silent, "has not answered within"),
        (Manners::Refuses(Fault::Stopping {}), "is about to end"),
        (Manners::Nonsense, "makes no sense"),
    ] {
        daemon.behave(manners);
        exporter.says_after_scrapes(said);
    }
    daemon.behave(Manners::Answers);
    exporter.metrics_with("vrdma_up 1");
}

#[test]
fn a_daemon_that_is_slow_at_each_call_has_no_more_time_for_all() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("observe");
    let daemon = FakeDaemon::start(&socket);
    daemon.behave(Manners::Slow(Duration::from_millis(600)));
    let exporter = Exporter::start(&socket, &["--timeout", "1"]);
    assert!(exporter.metrics().contains("\nvrdma_up 0\n"));
    exporter.says("has not answered within");
}

/// Returns the numbers of the counters by their series.
fn counters(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| line.rsplit_once(' ').unwrap());
    let counters = series.filter(|(series, _)| series.split('{').next().unwrap().ends_with("_total"));
    counters.map(|(series, number)| (series.to_owned(), number.parse().unwrap())).collect()
}

#[test]
fn no_counter_goes_back_when_a_worker_is_stuck() {
    let (_directory, daemon, exporter) = lab();
    // The numbers of the first answer are small.
    exporter.metrics();
    let before = wait::until("an answer with larger numbers", || {
        let counters = counters(&exporter.metrics());
        (counters["vrdma_memory_faults_total"] >= 1000.0).then_some(counters)
    });
    daemon.behave(Manners::HasStuckWorker);
    let text = exporter.metrics_with("vrdma_worker_stuck{worker=\"1\"} 1");
    let stuck = counters(&text);
    for (series, number) in &stuck {
        assert!(before[series] <= *number, "{series}: {} before, {number} then", before[series]);
    }
    let is_missing = |start: &str| !stuck.keys().any(|series| series.starts_with(start));
    for sum in ["roce_packets", "roce_dropped", "malformed", "switch_dropped"] {
        assert!(is_missing(&format!("vrdma_{sum}")), "{sum}");
    }
    assert!(is_missing("vrdma_port_frames_total{port=\"uplink\""));
    assert!(is_missing("vrdma_worker_lost_messages_total{worker=\"1\""));
    // What is not a sum of workers stays, and so do other workers and their guests.
    for series in [
        "vrdma_memory_faults_total",
        "vrdma_worker_lost_messages_total{worker=\"0\",what=\"frame\"}",
        "vrdma_guest_retransmissions_total{guest=\"vm1\"}",
        "vrdma_port_frames_total{port=\"vm1\",kind=\"guest\",direction=\"tx\"}",
    ] {
        assert!(stuck[series] > before[series], "{series}");
    }
    assert!(text.contains("\nvrdma_port_up{port=\"uplink\",kind=\"uplink\"} 1\n"), "{text}");
    daemon.behave(Manners::Answers);
    let after = counters(&exporter.metrics_with("vrdma_worker_stuck{worker=\"1\"} 0"));
    for (series, number) in &before {
        assert!(after[series] > *number, "{series}: {number} before, {} after", after[series]);
    }
}

#[test]
fn what_the_daemon_lacks_is_left_out() {
    let (_directory, daemon, exporter) = lab();
    daemon.behave(Manners::Lacks(ListWorkers::NAME));
    let text = exporter.metrics();
    assert!(text.contains("\nvrdma_up 1\n") && text.contains("vrdma_guest_connected"), "{text}");
    assert!(!text.contains("vrdma_worker"), "{text}");
}

#[test]
fn bad_requests_get_a_clear_answer() {
    let (_directory, _daemon, exporter) = lab();
    let long = format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
    for (request, status, says) in [
        ("GET /metric HTTP/1.1\r\n\r\n", "404 Not Found", "there are / and /metrics"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nxxxx", "405 Method Not Allowed", "GET or HEAD"),
        ("DELETE / HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "Allow: GET, HEAD"),
        ("stats\n\n", "400 Bad Request", "no request of HTTP/1.1"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400 Bad Request", "no request of HTTP/1.1"),
        (&long, "431 Request Header Fields Too Large", "at most 8192 bytes"),
        (&many, "431 Request Header Fields Too Large", "at most 8192 bytes"),
    ] {
        let answer = exporter.ask(request.as_bytes());
        let start: String = request.chars().take(40).collect();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}\r\n")) && answer.contains(says),
            "{start}: {answer}"
        );
    }
    let call = Call::of(&ListWorkers {}).unwrap().emit();
    assert!(exporter.ask(&call).starts_with("HTTP/1.1 400 "));
    let home = exporter.ask(b"GET / HTTP/1.1\r\n\r\n");
    assert!(home.contains("<a href=\"/metrics\">"), "{home}");
    let head = exporter.ask(b"HEAD / HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn clients_that_are_silent_or_slow_keep_nobody_from_scraping() {
    let (_directory, _daemon, exporter) = lab();
    // More than may be connected. Some send a part of a request.
    let mut silent: Vec<_> = (0..200).map(|_| exporter.connect()).collect();
    for stream in silent.iter_mut().step_by(2) {
        let _ = stream.write_all(b"GET /met");
    }
    assert!(exporter.metrics().contains("\nvrdma_up 1\n"));
    // The first ones had to go, and were told why.
    let first = answer(&mut silent[1]);
    assert!(first.starts_with("HTTP/1.1 503 ") && first.contains("too many clients"), "{first}");
}

#[test]
fn many_scrapes_at_one_time_are_answered() {
    let (_directory, _daemon, exporter) = lab();
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| assert!(exporter.metrics().contains("\nvrdma_up 1\n")));
        }
    });
}

#[test]
fn sigterm_ends_it_well() {
    let (_directory, _daemon, mut exporter) = lab();
    let mut slow = exporter.connect();
    assert!(exporter.metrics().contains("\nvrdma_up 1\n"));
    // A machine without procps has no program `kill`.
    kill_process(Pid::from_child(&exporter.child), Signal::TERM).unwrap();
    exporter.says("the end");
    let status = wait::until("its end", || exporter.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    assert_eq!(answer(&mut slow), "");
}

#[test]
fn it_listens_at_addresses_of_both_kinds() {
    let directory = tempfile::tempdir().unwrap();
    let exporter = Exporter::start(&directory.path().join("observe"), &["--listen", "[::]:0"]);
    assert!(exporter.address.is_ipv6());
    assert!(exporter.metrics().contains("\nvrdma_up 0\n"));
    let only = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only").unwrap();
    if only.trim() == "0" {
        let answer = ask((Ipv4Addr::LOCALHOST, exporter.address.port()).into(), b"GET / HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    let exporter = Exporter::start(&directory.path().join("observe"), &["--listen", "0.0.0.0:0"]);
    assert!(exporter.address.is_ipv4());
    assert!(exporter.metrics().contains("\nvrdma_up 0\n"));
}

#[test]
fn the_service_manager_is_told_when_it_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let notify = directory.path().join("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    let (heard, said) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = manager.recv(&mut bytes) {
            let _ = heard.send(String::from_utf8(bytes[..count].to_vec()).unwrap());
        }
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-exporter"));
    command.env("NOTIFY_SOCKET", &notify);
    let exporter = Exporter::start_by(command, &directory.path().join("observe"), &[]);
    let said = wait::receive("READY=1", &said);
    assert!(said.lines().any(|line| line == "READY=1"), "{said}");
    assert!(exporter.metrics().contains("\nvrdma_up 0\n"));
}

fn fails(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vrdma-exporter")).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = fails(&["--listen", &address]);
    assert!(said.contains("another program listens there: give another port"), "{said}");
    let said = fails(&["--listen", "192.0.2.1:9471"]);
    assert!(said.contains("no interface of this host has the address"), "{said}");
    let said = fails(&["--listen", "localhost"]);
    assert!(said.contains("like 127.0.0.1:9471 or [::]:9471"), "{said}");
}

#[test]
fn the_help_teaches() {
    let output = Command::new(env!("CARGO_BIN_EXE_vrdma-exporter")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for part in ["127.0.0.1:9471", "/run/vrdma/observe", "vrdma_up 0", "scrape_configs", "docs/metrics.md"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md")).exists());
}
