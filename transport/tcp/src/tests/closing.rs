//! How connections end (RFC 9293, 3.6).

use super::opening::plain;
use super::script::Script;
use crate::{Config, KeepAlive};
use core::time::Duration;

const OPEN: &str = "> S 0:0 \n < S. 0:0 ack 1 mss 1000 \n > . 1:1 ack 1 \n event Established";

fn open(config: Config) -> Script {
    let mut script = Script::connect(config);
    script.run(OPEN);
    script
}

#[test]
fn we_close_first() {
    // Figure 12.
    open(plain())
        .run(
            "close
             > F. 1:1 ack 1
             state FinWait1
             < . 1:1 ack 2
             state FinWait2
             acknowledged 0
             # The peer may send still.
             < . 1:101 ack 2
             taken 0-100
             at 40
             > . 2:2 ack 101
             < F. 101:101 ack 2
             event EndOfStream
             state TimeWait
             complete 100
             > . 2:2 ack 102
             # Our acknowledge was lost.
             at 30000
             < F. 101:101 ack 2
             > . 2:2 ack 102
             at 89999
             state TimeWait
             at 90001
             state Closed
             event Finished",
        )
        .end();
}

#[test]
fn time_wait_begins_anew_with_each_fin() {
    open(plain())
        .run(
            "close
             > F. 1:1 ack 1
             < F. 1:101 ack 2
             > . 2:2 ack 102
             state TimeWait
             at 50000
             # With its data.
             < F. 1:101 ack 2
             > . 2:2 ack 102
             at 109999
             state TimeWait
             # Nothing else of the old connection disturbs.
             < . 50:101 ack 2
             > . 2:2 ack 102
             < S 500:500
             > . 2:2 ack 102
             at 110000
             state Closed
             taken 0-100",
        )
        .end();
}

#[test]
fn the_peer_closes_first() {
    open(plain())
        .run(
            "< F. 1:1 ack 1
             > . 1:1 ack 2
             state CloseWait
             event EndOfStream
             send 100
             > P. 1:101 ack 2
             close
             > F. 101:101 ack 2
             state LastAck
             < . 2:2 ack 101
             state LastAck
             acknowledged 100
             < . 2:2 ack 102
             acknowledged 100
             state Closed
             event Finished",
        )
        .end();
}

#[test]
fn both_close_at_a_time() {
    // Figure 13.
    open(plain())
        .run(
            "close
             > F. 1:1 ack 1
             < F. 1:1 ack 1
             > . 2:2 ack 2
             state Closing
             event EndOfStream
             < . 2:2 ack 2
             state TimeWait",
        )
        .end();
    // A FIN with the ACK of ours.
    open(plain()).run("close \n > F. 1:1 ack 1 \n < F. 1:1 ack 2 \n > . 2:2 ack 2 \n state TimeWait").end();
}

#[test]
fn what_is_to_be_sent_goes_before_the_fin() {
    open(plain())
        .run(
            "send 1000*12
             > . 1:1001
             > . 1001:2001
             > . 2001:3001
             > . 3001:4001
             > . 4001:5001
             > . 5001:6001
             > . 6001:7001
             > . 7001:8001
             > . 8001:9001
             > . 9001:10001
             close
             state Established
             < . 1:1 ack 10001
             > . 10001:11001
             > P. 11001:12001
             > F. 12001:12001
             state FinWait1",
        )
        .end();
}

#[test]
fn fins_are_sent_again() {
    open(plain())
        .run(
            "close
             > F. 1:1 ack 1
             at 1000
             > F. 1:1 ack 1
             < . 1:1 ack 2
             state FinWait2",
        )
        .end();
}

#[test]
fn a_fin_out_of_order_waits() {
    open(plain())
        .run(
            "< F. 101:201 ack 1
             > . 1:1 ack 1
             taken 100-200
             state Established
             event -
             < . 1:101 ack 1
             > . 1:1 ack 202
             taken 0-100
             event EndOfStream
             state CloseWait
             complete 200",
        )
        .end();
}

#[test]
fn nothing_counts_behind_a_fin() {
    open(plain())
        .run(
            "< F. 1:1 ack 1
             > . 1:1 ack 2
             < . 2:102 ack 1
             > . 1:1 ack 2
             < F. 102:102 ack 1
             > . 1:1 ack 2
             taken 
             complete 0",
        )
        .end();
}

#[test]
fn a_peer_that_never_closes_is_left() {
    open(plain())
        .run("close \n > F. 1:1 \n < . 1:1 ack 2 \n at 60001 \n state Closed \n event Finished")
        .end();
}

#[test]
fn abort_resets() {
    open(plain())
        .run("send 100 \n > P. 1:101 \n abort \n > R. 101:101 ack 1 \n event Aborted \n state Closed")
        .end();
}

#[test]
fn resets_in_each_state() {
    let reset = |before: &str, event: &str| {
        let mut script = open(plain());
        script.run(before).run("< R 1:1 ack 1").run(event).run("state Closed").end();
    };
    reset("", "event Reset");
    reset("close \n > F. 1:1", "event Reset");
    reset("close \n > F. 1:1 \n < . 1:1 ack 2", "event Reset");
    let reset = |before: &str| {
        let mut script = open(plain());
        script.run(before).run("event EndOfStream \n < R 2:2 \n state Closed").end();
    };
    reset("< F. 1:1 ack 1 \n > . 1:1 ack 2");
    reset("< F. 1:1 ack 1 \n > . 1:1 ack 2 \n close \n > F. 1:1");
    reset("close \n > F. 1:1 \n < F. 1:1 ack 1 \n > . 2:2 ack 2");
    reset("close \n > F. 1:1 \n < F. 1:1 ack 2 \n > . 2:2 ack 2");
}

#[test]
fn data_that_nobody_acknowledges_ends_it() {
    let config = Config { timeout: Duration::from_secs(10), ..plain() };
    open(config)
        .run(
            "send 100
             > P. 1:101
             at 1000
             > P. 1:101
             at 3000
             > P. 1:101
             at 7000
             > P. 1:101
             at 14999
             event -
             at 15000
             > R. 101:101
             event TimedOut",
        )
        .end();
}

#[test]
fn a_silent_peer_is_asked() {
    let keep_alive =
        KeepAlive { idle: Duration::from_secs(100), interval: Duration::from_secs(10), probes: 2 };
    let config = Config { keep_alive: Some(keep_alive), ..plain() };
    open(config)
        .run(
            "at 99999
             at 100000
             > . 0:0 ack 1
             at 105000
             < . 1:1 ack 1
             at 205000
             > . 0:0 ack 1
             at 215000
             > . 0:0 ack 1
             at 224999
             state Established
             at 225000
             > R. 1:1
             event TimedOut",
        )
        .end();
    // By default there is no keep-alive.
    open(plain()).run("at 100000000").end();
}

#[test]
fn a_probe_of_the_peer_is_answered() {
    open(plain()).run("at 1000 \n < . 0:0 ack 1 \n > . 1:1 ack 1").end();
}
