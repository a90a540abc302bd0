//! The screen, on a terminal in memory.

use super::state::{Look, Page, State, Wish};
use super::{Meaning, meaning, screen};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;
use std::time::{Duration, Instant};

/// Returns a look that was taken some seconds after the first, after so many requests.
fn look(start: Instant, seconds: u64, requests: u64) -> Look {
    let guest = |name: &str, worker: u64| {
        json!({
            "name": name, "mac": "52:54:00:00:00:01", "worker": worker, "objects": {"qps": worker + 3},
            "functions": [{"kind": "roce", "meets": "socket", "socket": "/s", "connected": true, "pid": 77, "uid": 0}],
        })
    };
    let stats = |name: &str, requests: u64| json!({"name": name, "device": {"requests": requests}});
    let worker = |number: u64| {
        json!({
            "number": number, "guests": ["vm1"], "stuck": false, "processor": 3,
            "processor_time": seconds * 700_000, "busy": seconds * 500_000, "idle": seconds * 200_000,
            "asleep": seconds * 250_000, "longest_turn": 1250, "sleeps": 0,
            "busy_turns": seconds * 30, "idle_turns": seconds * 10, "requests": requests,
        })
    };
    let port = json!({
        "name": "vm1", "kind": "guest", "up": true, "mtu": null,
        "counters": {"tx_frames": seconds * 5, "rx_frames": 0, "tx_bytes": 0, "rx_bytes": 0},
    });
    let qp = json!({
        "guest": "vm1", "qpn": 17, "service": "rc", "state": "rts", "context": 1, "transport": "copy",
        "peer_qpn": 18, "peer_gid": "::1", "sends": 0, "receives": 4,
    });
    let daemon = json!({
        "version": "1.2.3", "pid": 5, "uptime": seconds, "uplink": "net_packet0",
        "link": {"up": false, "mtu": 1500}, "workers": 2, "guests": 2, "queues": 64, "config": null, "draining": false,
    });
    let stats = json!({"guests": [stats("vm1", requests), stats("vm2", 0)]});
    Look {
        at: start + Duration::from_secs(seconds),
        daemon: serde_json::from_value(daemon).unwrap(),
        guests: serde_json::from_value(json!([guest("vm1", 1), guest("vm2", 0)])).unwrap(),
        stats: stats.as_object().unwrap().clone(),
        workers: serde_json::from_value(json!([worker(0), worker(1)])).unwrap(),
        ports: serde_json::from_value(json!([port])).unwrap(),
        qps: serde_json::from_value(json!([qp])).unwrap(),
    }
}

/// Returns the lines of the screen.
fn drawn(state: &State) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(120, 10)).unwrap();
    terminal.draw(|frame| screen::draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..120).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..10).map(line).collect()
}

/// Returns the words of a line.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn seen_twice() -> State {
    let (mut state, start) = (State::new(), Instant::now());
    state.saw(look(start, 0, 100));
    state.saw(look(start, 2, 4100));
    state
}

#[test]
fn guests_are_shown_with_their_rates() {
    let lines = drawn(&seen_twice());
    assert!(
        lines[0].starts_with("vrdma-backend 1.2.3, process 5, for 2 s, 2 guests, uplink net_packet0 DOWN")
    );
    assert_eq!(words(&lines[1])[..3], ["1", "Guests", "│"]);
    assert_eq!(words(&lines[2])[..3], ["GUEST^", "WORKER", "RDMA"]);
    assert_eq!(words(&lines[3]), ["vm1", "1", "pid", "77", "-", "4", "-", "2000", "-", "-", "-"]);
    assert_eq!(words(&lines[4])[..2], ["vm2", "0"]);
    assert!(lines[9].contains("q: quit"));
}

#[test]
fn the_first_look_has_no_rates() {
    let mut state = State::new();
    assert_eq!(drawn(&state)[0], "asking the daemon");
    state.saw(look(Instant::now(), 0, 100));
    assert_eq!(words(&drawn(&state)[3])[7], "-");
    // Neither has the first look at a daemon that was started again.
    let mut again = look(Instant::now(), 5, 7);
    again.daemon.pid = 6;
    state.saw(again);
    assert_eq!(words(&drawn(&state)[3])[7], "-");
}

#[test]
fn rows_are_sorted_and_chosen_by_keys() {
    let mut state = seen_twice();
    state.wish(Wish::Sort);
    let lines = drawn(&state);
    assert_eq!((words(&lines[2])[1], words(&lines[3])[0]), ("WORKER^", "vm2"));
    state.wish(Wish::Reverse);
    let lines = drawn(&state);
    assert_eq!((words(&lines[2])[1], words(&lines[3])[0]), ("WORKERv", "vm1"));
    state.wish(Wish::Down);
    assert_eq!((state.guest.as_deref(), state.chosen()), (Some("vm2"), 1));
    state.wish(Wish::Down);
    assert_eq!(state.chosen(), 1, "there is none below");
    state.wish(Wish::Show(Page::Qps));
    let lines = drawn(&state);
    assert!(lines[0].ends_with("queue pairs of vm2"), "{}", lines[0]);
    assert_eq!(words(&lines[3]), ["17", "rc", "rts", "1", "copy", "::1", "18", "0", "4"]);
}

#[test]
fn the_chosen_row_is_that_of_the_chosen_guest_wherever_it_goes() {
    let mut state = State::new();
    let mut first = look(Instant::now(), 1, 0);
    first.guests.reverse();
    state.saw(first);
    let chosen = |state: &State| {
        let row = state.table().rows[state.chosen()][0].shown().to_owned();
        assert_eq!(state.guest.as_ref(), Some(&row), "its queue pairs are shown");
        row
    };
    assert_eq!((chosen(&state).as_str(), state.chosen()), ("vm1", 0), "the first one that is shown");
    state.wish(Wish::Sort);
    assert_eq!((chosen(&state).as_str(), state.chosen()), ("vm1", 1));
    state.wish(Wish::Up);
    assert_eq!(chosen(&state), "vm2");
    state.wish(Wish::Reverse);
    assert_eq!((chosen(&state).as_str(), state.chosen()), ("vm2", 1));
}

#[test]
fn workers_and_ports_have_pages() {
    let mut state = seen_twice();
    state.wish(Wish::Previous);
    assert_eq!(words(&drawn(&state)[3])[..4], ["vm1", "guest", "up", "5"]);
    state.wish(Wish::Previous);
    assert_eq!(words(&drawn(&state)[3]), ["0", "3", "50%", "20%", "25%", "1.25", "40", "0", "2000", "vm1"]);
    state.wish(Wish::Next);
    state.wish(Wish::Next);
    assert_eq!(state.page, Page::Guests);
}

#[test]
fn trouble_is_told_above_what_was_seen_last() {
    let mut state = seen_twice();
    state.trouble = Some("no daemon listens there".into());
    let lines = drawn(&state);
    assert_eq!(lines[0], "no daemon listens there");
    assert_eq!(words(&lines[3])[0], "vm1");
    // A guest that is gone is not the chosen one.
    let mut less = look(Instant::now(), 9, 0);
    less.guests.remove(0);
    state.saw(less);
    assert_eq!((state.guest.as_deref(), state.trouble.is_none()), (Some("vm2"), true));
}

#[test]
fn a_small_terminal_is_no_fault() {
    for (width, height) in [(1, 1), (5, 2), (20, 4)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen::draw(frame, &seen_twice())).unwrap();
    }
}

#[test]
fn keys_have_meanings() {
    let key = |code| meaning(KeyEvent::new(code, KeyModifiers::NONE));
    assert_eq!(key(KeyCode::Char('q')), Meaning::Quit);
    assert_eq!(key(KeyCode::Char('3')), Meaning::Wish(Wish::Show(Page::Workers)));
    assert_eq!(key(KeyCode::Tab), Meaning::Wish(Wish::Next));
    assert_eq!(key(KeyCode::Char('c')), Meaning::Nothing);
    assert_eq!(meaning(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Meaning::Quit);
}
