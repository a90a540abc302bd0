//! Runs the program for a daemon that the test plays, with good clients and bad ones.

use common::{Exporter, FakeDaemon, Manners, ODD_NAME, answer, wait};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use vrdma_admin::Fault;
use vrdma_admin::worker::ListWorkers;
use vrdma_admin::{Call, Method};
use vrdma_exporter::families;
use vrdma_exporter::family::Kind;

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
    assert_eq!(names(body), families::all().map(|family| family.full_name()).collect());
    let accept = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let open = exporter.ask(accept.as_bytes());
    let (head, body) = open.split_once("\r\n\r\n").unwrap();
    let kind = "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(head.contains(kind), "{head}");
    assert!(body.ends_with("\n# EOF\n"));
    assert_eq!(names(body), families::all().map(|family| family.full_name()).collect());
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
    let rdma = count("guest=\"vm1\"") - count("guest=\"vm1\",function=\"ethernet\"");
    let page = include_str!("../../docs/metrics.md").replace('\n', " ");
    let said = format!("{rdma} series of its RDMA function, and {ethernet} of its Ethernet function");
    assert!(page.contains(&said), "docs/metrics.md does not say '{said}'");
}

#[test]
fn the_daemon_may_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("observe");
    let exporter = Exporter::start(&socket, &[]);
    assert!(exporter.metrics().contains("\nvrdma_up 0\n"));
    exporter.says("there is no such socket");
    let daemon = FakeDaemon::start(&socket);
    assert!(exporter.metrics().contains("\nvrdma_up 1\n"));
    exporter.says("the daemon answers");
    drop(daemon);
    let text = exporter.metrics();
    assert!(text.contains("\nvrdma_up 0\n") && !text.contains("vrdma_guest"), "{text}");
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
        assert!(exporter.metrics().contains("\nvrdma_up 0\n"));
        exporter.says(said);
    }
    daemon.behave(Manners::Answers);
    wait::until("the daemon's answer", || exporter.metrics().contains("\nvrdma_up 1\n").then_some(()));
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
    // These take no answer.
    let _greedy: Vec<_> = (0..30)
        .map(|_| {
            let mut stream = exporter.connect();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream
        })
        .collect();
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
    let kill = Command::new("kill").args(["-TERM", &exporter.child.id().to_string()]).status().unwrap();
    assert!(kill.success());
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
