//! The windows of the peer, of this end, and of congestion control (RFC 9293, 3.8.6; RFC 5681; RFC
//! 9438).

use super::opening::plain;
use super::script::Script;
use crate::{Config, KeepAlive};
use core::time::Duration;

fn open(config: Config, options: &str) -> Script {
    let mut script = Script::connect(config);
    script.run(&format!(
        "> S 0:0 \n < S. 0:0 ack 1 mss 1000 sackok {options} \n > . 1:1 ack 1 \n event Established"
    ));
    script
}

#[test]
fn no_segment_is_cut_for_a_window_while_others_are_on_their_way() {
    open(plain(), "win 2500")
        .run(
            "send 1000*4
             > . 1:1001
             > . 1001:2001
             at 100
             < . 1:1 ack 1001 win 2500
             > . 2001:3001
             < . 1:1 ack 3001 win 2500
             > P. 3001:4001",
        )
        .end();
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    open(plain(), "win 1000")
        .run(
            "send 1000*2
             > . 1:1001
             at 100
             < . 1:1 ack 1001 win 0
             # At first after an RTO, then less and less often (RFC 9293, SHLD-29, SHLD-30).
             at 1099
             at 1100
             > . 1000:1000 ack 1
             < . 1:1 ack 1001 win 0
             at 3100
             > . 1000:1000 ack 1
             at 7100
             > . 1000:1000 ack 1
             count window_probes 3
             at 7200
             < . 1:1 ack 1001 win 5000
             > P. 1001:2001
             < . 1:1 ack 2001 win 5000",
        )
        .end();
}

#[test]
fn a_window_may_stay_closed_as_long_as_the_peer_answers() {
    let config = Config { timeout: Duration::from_secs(5), max_rto: Duration::from_secs(1), ..plain() };
    let mut script = open(config, "win 0");
    script.run("send 1000");
    for second in 1..20 {
        script.run(&format!("at {second}000 \n > . 0:0 ack 1 \n < . 1:1 ack 1 win 0"));
    }
    // The connection ends if the peer does not answer any more.
    for second in 20..24 {
        script.run(&format!("at {second}000 \n > . 0:0 ack 1"));
    }
    script.run("at 24000 \n > R. 1:1 \n event TimedOut").end();
}

#[test]
fn a_window_that_stays_closed_holds_nobody_s_connection_for_half_a_minute_at_most() {
    let config = Config { max_rto: Duration::from_secs(1), ..plain() };
    let mut script = open(config, "win 0");
    script.run("send 100 \n close \n < F. 1:1 ack 1 win 0 \n > . 1:1 ack 2 \n event EndOfStream \n leave");
    for second in 1..30 {
        script.run(&format!("at {second}000 \n > . 0:0 ack 2 \n < . 2:2 ack 1 win 0"));
        script.run("state CloseWait");
        // The time counts from the peer's FIN.
    }
    script.run("at 30000 \n > R. 1:1 \n event TimedOut").end();
}

#[test]
fn a_peer_that_answers_probes_of_its_closed_window_is_not_taken_for_silent() {
    let keep_alive = KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), probes: 3 };
    let config = Config { max_rto: Duration::from_secs(20), keep_alive: Some(keep_alive), ..plain() };
    let mut script = open(config, "win 0");
    script.run("send 100");
    for second in [1, 3, 7, 15, 31, 51, 71, 91, 111] {
        script.run(&format!("at {second}000 \n > . 0:0 ack 1 \n < . 1:1 ack 1 win 0 \n state Established"));
    }
    script.run("at 112000 \n < . 1:1 ack 1 win 1000 \n > P. 1:101 \n < . 1:1 ack 101 win 1000").end();
}

#[test]
fn a_window_that_was_closed_long_ago_is_no_reason_to_give_up() {
    let config = Config { timeout: Duration::from_secs(5), ..plain() };
    open(config, "win 0")
        .run(
            "send 1000
             at 1000
             > . 0:0 ack 1
             < . 1:1 ack 1 win 1000
             > P. 1:1001
             < . 1:1 ack 1001 win 5000
             at 100000
             send 1000
             > P. 1001:2001
             at 101000
             > P. 1001:2001
             event -",
        )
        .end();
}

#[test]
fn a_window_that_stays_small_is_used_after_a_while() {
    open(plain(), "win 400")
        .run(
            "send 1000
             at 999
             at 1000
             > . 1:401
             < . 1:1 ack 401 win 400
             at 2000
             > . 401:801
             < . 1:1 ack 801 win 400
             > P. 801:1001",
        )
        .end();
}

#[test]
fn old_segments_do_not_change_the_window() {
    open(plain(), "win 3000")
        .run(
            "send 1000*5
             > . 1:1001
             > . 1001:2001
             > . 2001:3001
             < . 1:1 ack 2001 win 1000
             # Overtaken by it.
             < . 1:1 ack 1001 win 9000
             < . 1:1 ack 2001 win 2000
             > . 3001:4001",
        )
        .end();
}

#[test]
fn a_window_that_shrinks_is_survived() {
    open(plain(), "win 3000")
        .run(
            "send 1000*3
             > . 1:1001
             > . 1001:2001
             > P. 2001:3001
             < . 1:1 ack 1001 win 500
             # What is outstanding beyond it is sent again still (SHLD-17).
             at 1000
             > . 1001:2001
             < . 1:1 ack 3001 win 500",
        )
        .end();
}

#[test]
fn our_window_never_goes_back() {
    open(plain(), "")
        .run(
            "window 4000
             < . 1:1001 ack 1
             at 40
             > . 1:1 ack 1001 win 9000
             < . 1001:7001 ack 1
             at 80
             > . 1:1 ack 7001 win 4000
             window 9000
             > . 1:1 ack 7001 win 9000
             # What is beyond is not taken.
             < . 16001:16002 ack 1
             > . 1:1 ack 7001
             taken 0-1000,1000-7000
             count outside_window 1",
        )
        .end();
}

#[test]
fn a_closed_window_of_ours_takes_acknowledges_and_resets() {
    open(plain(), "")
        .run(
            "window 0
             < . 1:10001 ack 1
             at 40
             > . 1:1 ack 10001 win 0
             send 100
             > P. 1:101
             # A probe, with a byte.
             < . 10001:10002 ack 101
             > . 101:101 ack 10001 win 0
             acknowledged 100
             taken 0-10000
             < R 10001:10001
             event Reset",
        )
        .end();
}

#[test]
fn slow_start_doubles() {
    let config = Config { initial_window: 2, ..plain() };
    open(config, "")
        .run(
            "at 100
             send 1000*20
             > . 1:1001
             > . 1001:2001
             at 200
             < . 1:1 ack 1001
             > . 2001:3001
             > . 3001:4001
             < . 1:1 ack 2001
             > . 4001:5001
             > . 5001:6001
             cwnd 4000",
        )
        .end();
}

#[test]
fn acknowledges_in_crumbs_open_the_window_by_crumbs() {
    // ACK division: bytes count, not ACKs (RFC 3465).
    let config = Config { initial_window: 2, ..plain() };
    let mut script = open(config, "");
    script.run("at 100 \n send 1000*9 \n > . 1:1001 \n > . 1001:2001 \n at 200");
    for crumb in 1..10 {
        script.run(&format!("< . 1:1 ack {}", 1 + 10 * crumb));
    }
    script.run("cwnd 2090").end();
}

#[test]
fn what_is_not_used_does_not_grow() {
    open(plain(), "")
        .run("at 100 \n send 1000 \n > P. 1:1001 \n at 200 \n < . 1:1 ack 1001 \n cwnd 10000")
        .end();
}

#[test]
fn a_window_goes_over_half_a_round_trip_after_slow_start() {
    let mut script = Script::connect(Config { initial_window: 2, ..plain() });
    script
        .run("> S 0:0 \n at 100 \n < S. 0:0 ack 1 mss 1000 \n > . 1:1 ack 1 \n event Established \n at 1000");
    let congestion = &mut script.connection.congestion;
    (congestion.window, congestion.threshold) = (10_000, 10_000);
    script
        .run(
            "send 1000*13
             # What goes into the first half is not waited for,
             > . 1:1001
             > . 1001:2001
             > . 2001:3001
             > . 3001:4001
             > . 4001:5001
             # but counts: each is a twentieth of a round trip, of 100 ms.
             at 1024
             at 1025
             > . 5001:6001
             at 1029
             at 1030
             > . 6001:7001
             at 1035
             > . 7001:8001
             at 1040
             > . 8001:9001
             at 1045
             > . 9001:10001
             at 1100
             < . 1:1 ack 1001
             > . 10001:11001
             # The window limits us, also while segments wait for their time.
             cwnd 10052
             < . 1:1 ack 3001
             at 1104
             at 1105
             > . 11001:12001
             at 1110
             > P. 12001:13001",
        )
        .end();
}

#[test]
fn an_initial_window_goes_at_once_also_after_slow_start() {
    let mut script = Script::connect(plain());
    script
        .run("> S 0:0 \n at 100 \n < S. 0:0 ack 1 mss 1000 \n > . 1:1 ack 1 \n event Established \n at 1000");
    let congestion = &mut script.connection.congestion;
    (congestion.window, congestion.threshold) = (12_000, 12_000);
    script.run("send 1000*12");
    for n in 0..10 {
        script.run(&format!("> . {}:{}", 1 + 1000 * n, 1001 + 1000 * n));
    }
    // Ten segments have used ten of the 24 parts of a round trip of 100 ms.
    script.run("at 1041 \n at 1042 \n > . 10001:11001 \n at 1046 \n > P. 11001:12001").end();
}

#[test]
fn a_window_that_was_idle_begins_again() {
    let config = Config { initial_window: 2, ..plain() };
    let mut script = open(config, "");
    script.run(
        "at 100
         send 1000*6
         > . 1:1001
         > . 1001:2001
         at 200
         < . 1:1 ack 2001
         > . 2001:3001
         > . 3001:4001
         > . 4001:5001
         > P. 5001:6001
         at 300
         < . 1:1 ack 6001
         cwnd 4000
         at 2000
         send 1000*3
         > . 6001:7001
         > . 7001:8001
         cwnd 2000",
    );
    script.end();
    // The restart can be disabled.
    let config = Config { restart_after_idle: false, ..config };
    open(config, "").run("at 5000 \n send 1000 \n > P. 1:1001 \n cwnd 2000").end();
}

#[test]
fn a_path_that_takes_less_gets_less() {
    open(plain(), "")
        .run(
            "at 100
             send 1000*2
             > . 1:1001
             > P. 1001:2001
             # Not of ours: somebody guesses.
             toolong 5000 600
             toolong 0 600
             mss 1000
             toolong 1001 600
             mss 600
             > P. 1:601
             > P. 601:1001
             > P. 1001:1601
             > P. 1601:2001
             # The window stays.
             cwnd 10000
             at 200
             < . 1:1 ack 2001
             # Not below what all paths take, nor up.
             send 500
             > P. 2001:2501
             toolong 2001 68
             mss 536
             toolong 2001 1000
             mss 536",
        )
        .end();
}

#[test]
fn a_path_that_drops_long_segments_in_silence_is_found_out() {
    open(plain(), "")
        .run(
            "send 1000
             > P. 1:1001
             at 1000
             > P. 1:1001
             at 3000
             > P. 1:1001
             at 7000
             > P. 1:537
             mss 536
             > P. 537:1001",
        )
        .end();
}
