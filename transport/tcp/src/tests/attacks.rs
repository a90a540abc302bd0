//! Segments of attackers who are not the peer, and of a lying peer (RFC 5961; "Bad input").

use super::opening::{plain, with_sacks};
use super::script::{Cuts, PORTS, Script, check};
use crate::connection::Connection;
use crate::{Config, Instant};
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

fn open(config: Config) -> Script {
    let mut script = Script::connect(config);
    script.run("> S 0:0 \n < S. 0:0 ack 1 mss 1000 sackok \n > . 1:1 ack 1 \n event Established \n at 100");
    script
}

#[test]
fn only_the_very_reset_counts() {
    open(plain())
        .run(
            "< R 2:2
             > . 1:1 ack 1
             count challenges 1
             state Established
             at 200
             < R 10000:10000
             > . 1:1 ack 1
             # Outside of the window.
             < R 10002:10002
             < R 0:0
             state Established
             count challenges 2
             < R 1:1
             event Reset",
        )
        .end();
}

#[test]
fn challenges_are_few() {
    let mut script = open(plain());
    script.run("< R 2:2 \n > . 1:1 ack 1");
    for n in 3..100 {
        script.run(&format!("< R {n}:{n}"));
    }
    script.run("count challenges 98 \n at 150 \n < R 2:2 \n > . 1:1 ack 1").end();
}

#[test]
fn syns_do_not_disturb() {
    open(plain())
        .run(
            "< S 1:1
             > . 1:1 ack 1
             at 200
             < S. 1:1 ack 1
             > . 1:1 ack 1
             at 300
             < S 77777:77777
             > . 1:1 ack 1
             state Established",
        )
        .end();
}

#[test]
fn acknowledges_of_what_was_never_sent_are_dropped() {
    open(plain())
        .run(
            "send 1000
             > P. 1:1001
             < . 1:101 ack 1002
             > . 1001:1001 ack 1
             count bad_ack 1
             taken
             acknowledged 0
             # Too long ago, for a window of 65535.
             at 200
             < . 1:101 ack 4294901000
             > . 1001:1001 ack 1
             taken
             # Old, but not too old: its data is taken.
             < . 1:101 ack 0
             taken 0-100
             at 240
             > . 1001:1001 ack 101",
        )
        .end();
}

/// An attacker who guesses a number in the window, but no acknowledgment number, makes no genuine
/// segment look old.
#[test]
fn a_timestamp_counts_only_with_an_acknowledge_of_what_was_sent() {
    let mut script = Script::connect(Config { timestamps: true, ..plain() });
    script.run("> S 0:0 ts 0,0 \n < S. 0:0 ack 1 mss 1000 ts 100,0 \n > . 1:1 ack 1 ts 0,100");
    script
        .run(
            "< . 1:101 ack 99999 ts 1000000,0
             > . 1:1 ack 1
             count bad_ack 1
             at 300
             < . 1:101 ack 1 ts 101,0
             taken 0-100
             count bad_timestamp 0
             at 340
             > . 1:1 ack 101",
        )
        .end();
}

#[test]
fn sacks_of_what_was_never_sent_are_dropped() {
    open(with_sacks())
        .run(
            "send 1000*3
             > . 1:1001
             > . 1001:2001
             > P. 2001:3001
             < . 1:1 ack 1 sack 1001-9001
             < . 1:1 ack 1 sack 3001-4001,5-3
             < . 1:1 ack 1 sack 100-200,1500-1600
             count bad_sack 3
             count retransmits 0
             acknowledged 0
             < . 1:1 ack 3001
             acknowledged 3000",
        )
        .end();
}

#[test]
fn data_outside_of_the_window_is_dropped() {
    open(plain())
        .run(
            "< . 10001:10101 ack 1
             > . 1:1 ack 1
             at 200
             < . 1000000:1000100 ack 1
             > . 1:1 ack 1
             < . 9901:10101 ack 1
             > . 1:1 ack 1
             taken 9900-10000
             count outside_window 2",
        )
        .end();
}

/// An attacker who guesses numbers makes us answer the peer for few of them.
#[test]
fn data_far_from_the_window_is_answered_seldom() {
    let mut script = open(plain());
    script.run("< . 10001:10101 ack 1 \n > . 1:1 ack 1");
    for n in 0..100_u32 {
        // Numbers beyond the window, before the data that may come again, and with a FIN.
        let (beyond, before) = (20_000 + n, 4_294_000_000 + n);
        script.run(&format!("< . {beyond}:{beyond}0 ack 1 \n < . {before}:{} ack 1", before + 100));
        script.run("< F. 30000:30000 ack 1 \n < F. 4294900000:4294900100 ack 1");
    }
    script.run("taken \n count outside_window 401 \n at 150 \n < . 10001:10101 ack 1 \n > . 1:1 ack 1").end();
}

/// A duplicate of acknowledged data is answered each time, because the ACK may have been lost.
#[test]
fn what_comes_again_is_answered_each_time() {
    open(plain())
        .run(
            "< . 1:101 ack 1
             < . 101:201 ack 1
             > . 1:1 ack 201
             < . 1:101 ack 1
             > . 1:1 ack 201
             < . 101:201 ack 1
             > . 1:1 ack 201
             count duplicates 2",
        )
        .end();
}

#[test]
fn segments_without_ack_are_dropped() {
    open(plain()).run("< - 1:101 \n taken \n < F 1:1 \n state Established").end();
}

#[test]
fn a_fin_beyond_the_window_is_dropped() {
    open(plain()).run("< F. 10001:10001 ack 1 \n > . 1:1 ack 1 \n < F. 9001:10001 ack 1 \n > . 1:1 ack 1 \n taken 9000-10000 \n event -").end();
}

#[test]
fn two_fins_are_one() {
    // The second FIN would cut data off, or add some.
    open(plain())
        .run(
            "< F. 101:201 ack 1
             > . 1:1 ack 1
             < F. 1:51 ack 1
             > . 1:1 ack 51
             < F. 201:301 ack 1
             > . 1:1 ack 51
             < . 51:101 ack 1
             > . 1:1 ack 202
             taken 100-200,0-50,50-100
             event EndOfStream
             complete 200",
        )
        .end();
}

#[test]
fn acknowledges_ping_no_pong() {
    // Two ends that disagree do not answer each other for ever.
    let mut script = open(plain());
    script.run("< . 50000:50000 ack 1 \n > . 1:1 ack 1");
    for _ in 0..50 {
        script.run("< . 50000:50000 ack 1");
    }
    script.end();
}

/// A peer announces the smallest MSS and an unlimited window, and lets our window open. The number
/// of outstanding segments is bounded, and sending goes on after an ACK.
#[test]
fn a_small_mss_has_few_segments_outstanding() {
    let mut cuts = Cuts::default();
    (0..100).for_each(|_| cuts.push(20_000));
    let header = |ack, options| TcpHeader {
        src_port: PORTS.remote,
        dst_port: PORTS.local,
        seq: 1,
        ack,
        flags: Flags::ACK,
        window: u16::MAX,
        urgent: 0,
        options,
    };
    let mut connection = Connection::connect(plain(), PORTS, 0, 0, Instant(0));
    while connection.poll_transmit(Instant(0), &mut cuts).is_some() {}
    let options = Options { mss: Some(64), window_scale: Some(14), ..Options::default() };
    let syn = TcpHeader { seq: 0, flags: Flags::SYN | Flags::ACK, ..header(1, options) };
    connection.handle_segment(Instant(0), &syn, 0, &mut |_| 0);
    let mut most = 0;
    for round in 0..20 {
        let now = Instant(round * 1_000_000);
        while connection.poll_transmit(now, &mut cuts).is_some() {}
        check(&connection);
        most = most.max(connection.board.segments());
        let mut una = connection.acknowledged();
        while una < connection.sent() {
            una += u64::from(connection.mss());
            let ack = header(1 + una.min(connection.sent()) as u32, Options::default());
            connection.handle_segment(now, &ack, 0, &mut |_| 0);
        }
    }
    assert_eq!(most, 768);
    assert!(connection.congestion_window() > most * 216, "the congestion window is not what limits");
    assert!(connection.acknowledged() > 1_000_000);
}
