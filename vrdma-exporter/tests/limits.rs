//! What clients may do, with limits that tests choose, and how often the daemon is asked.

use common::{FakeDaemon, Manners, answer, connect, wait};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vrdma_admin::Method;
use vrdma_admin::daemon::{GetDaemon, GetStats};
use vrdma_admin::guest::ListGuests;
use vrdma_admin::worker::ListWorkers;
use vrdma_exporter::collector::{Collector, Pace};
use vrdma_exporter::exposition::Format;
use vrdma_exporter::http::{Limits, Server};

mod common;

const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\n\r\n";

/// As long as a test lasts.
const EVER: Duration = Duration::from_secs(3600);

fn socket(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("observe")
}

/// Starts a server, and returns where it listens.
fn serve(socket: &Path, limits: Limits) -> SocketAddr {
    let collector = Collector::start(socket.to_owned(), Pace { patience: EVER, reuse: EVER }).unwrap();
    let server = Server::listen("127.0.0.1:0".parse().unwrap(), limits, collector).unwrap();
    let address = server.address().unwrap();
    std::thread::spawn(move || server.serve());
    address
}

fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn a_request_that_is_not_whole_in_time_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { connections: 2, patience: Duration::from_millis(200) };
    let address = serve(&socket(&directory), limits);
    let told = answer(&mut send(address, b"GET /met"));
    assert!(told.starts_with("HTTP/1.1 408 ") && told.contains("not whole in time"), "{told}");
}

#[test]
fn who_waits_for_the_daemon_keeps_its_place_and_others_are_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(&socket(&directory));
    daemon.behave(Manners::Silent);
    let address = serve(&socket(&directory), Limits { connections: 1, patience: EVER });
    let mut waits = send(address, SCRAPE);
    // The daemon is asked for it, so its request is whole.
    wait::until("a call", || (daemon.calls(ListWorkers::NAME) > 0).then_some(()));
    for _ in 0..3 {
        let told = answer(&mut connect(address).unwrap());
        assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("too many clients"), "{told}");
    }
    // The first one still waits. It is answered when the daemon ends.
    daemon.hang_up();
    let told = answer(&mut waits);
    assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("\nvrdma_up 0\n"), "{told}");
}

#[test]
fn who_takes_no_answer_makes_room() {
    let directory = tempfile::tempdir().unwrap();
    // The kernel keeps less than their series for a client that does not read.
    let daemon = FakeDaemon::with_more_guests(&socket(&directory), 3000);
    let address = serve(&socket(&directory), Limits { connections: 1, patience: EVER });
    let mut greedy = send(address, SCRAPE);
    // The daemon is asked for it, so its request is whole.
    wait::until("a call", || (daemon.calls(ListWorkers::NAME) > 0).then_some(()));
    let is_served = || {
        let mut stream = connect(address).unwrap();
        let mut bytes = Vec::new();
        // Who is refused may be reset before its answer has come.
        let _ = stream.write_all(SCRAPE).and_then(|()| stream.read_to_end(&mut bytes).map(drop));
        bytes.starts_with(b"HTTP/1.1 200 ").then_some(bytes)
    };
    let whole = wait::until("a place", is_served);
    assert!(whole.len() > 8 << 20, "too little to fill buffers: {}", whole.len());
    let mut cut = Vec::new();
    let _ = greedy.read_to_end(&mut cut);
    assert!(cut.is_empty() || cut.starts_with(b"HTTP/1.1 200 "), "it was to be served");
    assert!(cut.len() < whole.len(), "its write was not blocked");
}

#[test]
fn many_scrapes_ask_the_daemon_once() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(&socket(&directory));
    let collector = Collector::start(socket(&directory), Pace { patience: EVER, reuse: EVER }).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| (0..10).for_each(|_| drop(collector.scrape())));
        }
    });
    for method in [GetDaemon::NAME, GetStats::NAME, ListGuests::NAME, ListWorkers::NAME] {
        assert_eq!(daemon.calls(method), 1, "{method}");
    }
    // All of them share one text.
    let text = || collector.scrape().text(Format::Plain);
    assert!(Arc::ptr_eq(&text(), &text()));
}

#[test]
fn an_answer_that_is_too_old_is_not_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(&socket(&directory));
    let pace = Pace { patience: EVER, reuse: Duration::ZERO };
    let collector = Collector::start(socket(&directory), pace).unwrap();
    for count in 1..=5 {
        collector.scrape();
        assert_eq!(daemon.calls(ListGuests::NAME), count);
    }
}

#[test]
fn a_scrape_that_comes_while_the_daemon_is_asked_shares_the_answer() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(&socket(&directory));
    daemon.behave(Manners::Silent);
    let collector = Collector::start(socket(&directory), Pace { patience: EVER, reuse: EVER }).unwrap();
    let is_up = || collector.scrape().text(Format::Plain).contains("\nvrdma_up 1\n");
    std::thread::scope(|scope| {
        let first = scope.spawn(is_up);
        wait::until("a call", || (daemon.calls(ListWorkers::NAME) > 0).then_some(()));
        let second = scope.spawn(is_up);
        // The call that waits is never answered.
        daemon.behave(Manners::Answers);
        daemon.hang_up();
        assert!(!first.join().unwrap() && !second.join().unwrap());
    });
    assert_eq!(daemon.calls(ListWorkers::NAME), 1);
}
