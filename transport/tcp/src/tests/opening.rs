//! How connections begin (RFC 9293, 3.5), and what SYNs negotiate.

use super::script::Script;
use crate::Config;
use core::time::Duration;

/// Returns a configuration with minimal options: no window scale, no timestamps.
pub fn plain() -> Config {
    let (min_rto, probe_slack) = (Duration::from_secs(1), Duration::ZERO);
    Config {
        mss: 1000,
        window: 10_000,
        timestamps: false,
        sack: false,
        min_rto,
        probe_slack,
        ..Config::default()
    }
}

pub fn with_sacks() -> Config {
    Config { sack: true, ..plain() }
}

#[test]
fn the_handshake_of_figure_6() {
    Script::connect(plain())
        .run(
            "> S 0:0 win 10000 mss 1000
             state SynSent
             < S. 0:0 ack 1 win 5000 mss 900
             > . 1:1 ack 1 win 10000
             state Established
             event Established
             event -
             mss 900",
        )
        .end();
    Script::listen(plain(), "S 0:0 win 5000 mss 900")
        .run(
            "> S. 0:0 ack 1 win 10000 mss 1000
             event -
             < . 1:1 ack 1
             state Established
             event Established
             mss 900",
        )
        .end();
}

#[test]
fn options_count_if_both_have_them() {
    let config = Config { mss: 1000, window: 1 << 20, ..Config::default() };
    Script::connect(config)
        .run(
            "> S 0:0 win 65535 mss 1000 ws 5 sackok ts 0,0
             at 7
             < S. 0:0 ack 1 mss 1460 ws 3 sackok ts 500,0 win 100
             > . 1:1 ack 1 win 32768 ts 7,500
             # Timestamps take 12 bytes of each segment. The window of a SYN is not scaled.
             mss 988
             send 50
             > P. 1:51
             send 60
             at 8
             < . 1:1 ack 51 ts 501,7 win 20 # 160 bytes
             > . 51:111",
        )
        .end();
    Script::connect(config)
        .run(
            "> S 0:0 win 65535 ws 5 sackok ts 0,0
             < S. 0:0 ack 1 mss 1460
             > . 1:1 ack 1 win 65535
             mss 1000",
        )
        .end();
    // A SYN-ACK has only options that the SYN had.
    Script::listen(config, "S 0:0 mss 1460 ws 0").run("> S. 0:0 ack 1 win 65535 mss 1000 ws 5").end();
    Script::listen(config, "S 0:0 mss 1460 sackok").run("> S. 0:0 ack 1 win 65535 mss 1000 sackok").end();
}

#[test]
fn segments_carry_no_options_of_syns() {
    let config = Config { mss: 1000, window: 1 << 20, ..Config::default() };
    let mut script = Script::connect(config);
    script.run("> S 0:0 \n < S. 0:0 ack 1 mss 1460 ws 3 sackok ts 500,0 \n event Established \n > . 1:1 \n send 10*2");
    for segment in script.sent() {
        let options = segment.header.options;
        assert_eq!((options.mss, options.window_scale, options.sack_permitted), (None, None, false));
    }
}

#[test]
fn defaults_are_those_of_the_rfc() {
    let config = Config::default();
    assert!(config.timeout >= Duration::from_secs(100) && config.connect_timeout >= Duration::from_secs(180));
    assert!(config.ack_delay < Duration::from_millis(500) && config.keep_alive.is_none());
    assert_eq!((config.ack_every, config.initial_rto, config.min_mss), (2, Duration::from_secs(1), 536));
}

#[test]
fn a_peer_without_mss_takes_536() {
    Script::connect(plain()).run("> S 0:0 \n < S. 0:0 ack 1 \n > . 1:1 ack 1 \n mss 536").end();
    Script::connect(plain()).run("> S 0:0 \n < S. 0:0 ack 1 mss 400 \n > . 1:1 ack 1 \n mss 400").end();
    // A smaller MSS counts as 216. Links with an MTU that small exist.
    let answered = |mss: &str| format!("> S 0:0 \n < S. 0:0 ack 1 mss {mss} \n > . 1:1 ack 1 \n mss 216");
    Script::connect(plain()).run(&answered("1")).run("count small_mss 1").end();
    Script::connect(plain()).run(&answered("216")).run("count small_mss 0").end();
    let config = Config { min_mss: 1220, mss: 1440, ..plain() };
    Script::connect(config).run("> S 0:0 \n < S. 0:0 ack 1 \n > . 1:1 ack 1 \n mss 1220").end();
}

#[test]
fn syns_are_sent_again_and_given_up() {
    let config = Config { connect_timeout: Duration::from_secs(10), ..plain() };
    Script::connect(config)
        .run(
            "> S 0:0
             at 999
             at 1000
             > S 0:0
             at 3000
             > S 0:0
             at 7000
             > S 0:0
             at 14999
             event -
             at 15000
             event TimedOut
             state Closed",
        )
        .end();
    Script::listen(config, "S 0:0 mss 1000")
        .run(
            "> S. 0:0 ack 1
             at 1000
             > S. 0:0 ack 1
             # The peer has not got it.
             at 1100
             < S 0:0 mss 1000
             > S. 0:0 ack 1
             < . 1:1 ack 1
             event Established",
        )
        .end();
}

#[test]
fn a_lost_syn_is_a_bad_beginning() {
    Script::connect(plain())
        .run(
            "> S 0:0
             at 1000
             > S 0:0
             < S. 0:0 ack 1 mss 1000
             > . 1:1 ack 1
             cwnd 1000
             send 1000*2
             > . 1:1001
             at 3999
             at 4000
             > . 1:1001",
        )
        .end();
}

#[test]
fn both_may_begin_at_a_time() {
    // Figure 7.
    Script::connect(plain())
        .run(
            "> S 0:0
             < S 0:0 mss 1000
             state SynReceived
             > S. 0:0 ack 1 mss 1000
             < S. 0:0 ack 1 mss 1000
             > . 1:1 ack 1
             state Established
             event Established",
        )
        .end();
}

#[test]
fn an_old_syn_is_found_out() {
    // Figure 8: the answer to an old SYN acknowledges a number that we have not sent.
    Script::connect(plain())
        .run(
            "> S 0:0
             < S. 500:500 ack 90
             > R 90:90
             state SynSent
             < . 500:500 ack 90
             > R 90:90
             < R. 0:0 ack 90
             state SynSent
             < R 0:0
             state SynSent
             < S. 0:0 ack 1
             > . 1:1 ack 1",
        )
        .end();
}

#[test]
fn nobody_listens() {
    Script::connect(plain()).run("> S 0:0 \n < R. 0:0 ack 1 \n event Refused \n state Closed").end();
}

#[test]
fn a_half_open_connection_is_found_out() {
    // Figure 10: the peer begins anew, is told which number we expect, and resets us.
    let mut script = Script::connect(plain());
    script.run(
        "> S 0:0
         < S. 0:0 ack 1
         > . 1:1 ack 1
         event Established
         at 100
         < S 400:400
         > . 1:1 ack 1
         < R 1:1
         state Closed
         event Reset",
    );
    script.end();
    // Figure 11: we send to a peer that has forgotten the connection.
    Script::connect(plain())
        .run(
            "> S 0:0 \n < S. 0:0 ack 1 \n > . 1:1 ack 1 \n event Established
             send 100
             > P. 1:101 ack 1
             < R 1:1
             event Reset",
        )
        .end();
}

#[test]
fn resets_before_it_is_set_up() {
    let syn = "S 0:0 mss 1000";
    Script::listen(plain(), syn).run("> S. 0:0 ack 1 \n < R 1:1 \n state Closed \n event Reset").end();
    // A RST with another number than the next one may be a guess.
    Script::listen(plain(), syn).run("> S. 0:0 ack 1 \n < R 2:2 \n > . 1:1 ack 1 \n state SynReceived").end();
    Script::listen(plain(), syn).run("> S. 0:0 ack 1 \n < . 1:1 ack 7 \n > R 7:7 \n state SynReceived").end();
    Script::listen(plain(), syn).run("> S. 0:0 ack 1 \n < S 5:5 \n event Reset \n state Closed").end();
    // After a simultaneous open, a RST means that the connection is refused.
    Script::connect(plain()).run("> S 0:0 \n < S 0:0 \n > S. 0:0 ack 1 \n < R 1:1 \n event Refused").end();
}

#[test]
fn data_with_the_first_acknowledge_counts() {
    Script::listen(plain(), "S 0:0 mss 1000")
        .run(
            "> S. 0:0 ack 1
             < P. 1:101 ack 1
             event Established
             taken 0-100
             at 40
             > . 1:1 ack 101",
        )
        .end();
    Script::connect(plain())
        .run(
            "> S 0:0
             < S. 0:50 ack 1
             taken 0-50
             > . 1:1 ack 51",
        )
        .end();
}

#[test]
fn close_and_abort_before_it_is_set_up() {
    Script::connect(plain()).run("> S 0:0 \n close \n state Closed \n event Aborted").end();
    Script::connect(plain()).run("> S 0:0 \n abort \n event Aborted").end();
    Script::listen(plain(), "S 0:0 mss 1000")
        .run("> S. 0:0 ack 1 \n close \n < . 1:1 ack 1 \n > F. 1:1 ack 1 \n state FinWait1")
        .end();
    Script::listen(plain(), "S 0:0 mss 1000").run("> S. 0:0 ack 1 \n abort \n > R. 1:1 ack 1").end();
}
