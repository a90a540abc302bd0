//! Losses: how they are detected, and how a connection recovers (RFC 5681, 6298, 6582, 6675, 6937,
//! 8985; undone by RFC 2883, 3522).

use super::opening::{plain, with_sacks};
use super::script::Script;
use crate::Config;

/// Returns a connection with round trips of 100 ms and a timeout of 1 s.
fn open(config: Config) -> Script {
    let mut script = Script::connect(config);
    script.run("> S 0:0 \n at 100 \n < S. 0:0 ack 1 mss 1000 sackok \n > . 1:1 ack 1 \n event Established \n at 1000");
    script
}

/// Returns a connection that sends this many segments at once.
fn send(config: Config, segments: u64) -> Script {
    let mut script = open(config);
    script.run(&format!("send 1000*{segments}"));
    for n in 0..segments.min(10) {
        script.run(&format!("> . {}:{}", 1 + 1000 * n, 1001 + 1000 * n));
    }
    script
}

#[test]
fn three_sacks_show_a_loss() {
    send(with_sacks(), 10)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-2001
             < . 1:1 ack 1 sack 1001-3001
             < . 1:1 ack 1 sack 1001-4001
             > . 1:1001
             count recoveries 1
             < . 1:1 ack 1 sack 1001-10001
             at 1200
             < . 1:1 ack 10001
             cwnd 7000
             count retransmits 1
             count timeouts 0",
        )
        .end();
}

#[test]
fn each_sack_lets_something_new_go_before_that() {
    // RFC 3042, by the number of bytes in flight.
    send(with_sacks(), 13)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-2001
             > . 10001:11001
             < . 1:1 ack 1 sack 1001-3001
             > . 11001:12001
             < . 1:1 ack 1 sack 1001-4001
             > . 1:1001",
        )
        .end();
}

#[test]
fn what_is_only_late_is_waited_for() {
    // The reordering window is a quarter of a round trip.
    send(with_sacks(), 2)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-2001
             at 1120
             < . 1:1 ack 2001
             at 3000
             count retransmits 0",
        )
        .end();
    send(with_sacks(), 2)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-2001
             at 1124
             at 1125
             > . 1:1001
             count recoveries 1
             count timeouts 0",
        )
        .end();
}

#[test]
fn reordering_that_was_seen_makes_patient() {
    send(with_sacks(), 6)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-2001
             at 1110
             # The first was late: from now on three SACKs do not mean a loss.
             < . 1:1 ack 2001
             < . 1:1 ack 2001 sack 3001-4001
             < . 1:1 ack 2001 sack 3001-5001
             < . 1:1 ack 2001 sack 3001-6001
             at 1130
             < . 1:1 ack 6001
             count retransmits 0",
        )
        .end();
}

#[test]
fn the_tail_is_probed_after_two_round_trips() {
    send(with_sacks(), 3)
        .run(
            "at 1100
             < . 1:1 ack 1001
             < . 1:1 ack 2001
             # One segment is left: its acknowledge may be delayed.
             at 1499
             at 1500
             > . 2001:3001
             count tail_probes 1
             at 1600
             < . 1:1 ack 3001
             count timeouts 0
             cwnd 10000",
        )
        .end();
}

#[test]
fn a_probe_leaves_a_sleepy_peer_some_time() {
    let config = Config { probe_slack: core::time::Duration::from_millis(30), ..with_sacks() };
    send(config, 2).run("at 1229 \n at 1230 \n > . 1001:2001 \n count tail_probes 1").end();
}

#[test]
fn a_probe_of_the_tail_shows_what_is_before_it() {
    send(with_sacks(), 10)
        .run(
            "at 1100
             < . 1:1 ack 5001
             at 1300
             > . 9001:10001
             at 1400
             < . 1:1 ack 5001 sack 9001-10001
             # All that was sent before is lost. One segment left the network, one goes.
             > . 5001:6001
             at 1500
             < . 1:1 ack 6001 sack 9001-10001
             > . 6001:7001
             > . 7001:8001
             at 1600
             < . 1:1 ack 8001 sack 9001-10001
             > . 8001:9001
             at 1700
             < . 1:1 ack 10001
             count timeouts 0",
        )
        .end();
}

#[test]
fn a_probe_may_be_new_data() {
    let mut script = open(with_sacks());
    script.run(
        "send 1000
         > P. 1:1001
         at 1100
         send 500*2
         > . 1001:1501
         > P. 1501:2001
         at 1200
         count tail_probes 0",
    );
    script.end();
    // New data beyond the congestion window.
    send(with_sacks(), 12)
        .run("at 1200 \n > . 10001:11001 \n count tail_probes 1 \n count retransmits 0")
        .end();
}

#[test]
fn a_probe_that_mended_a_loss_counts_as_one() {
    send(with_sacks(), 10)
        .run(
            "at 1100
             < . 1:1 ack 9001
             at 1500
             > . 9001:10001
             send 100
             > P. 10001:10101
             at 1600
             # Beyond the probe, and nothing came twice: it was lost, and this was the probe.
             < . 1:1 ack 10101
             cwnd 7000",
        )
        .end();
    send(with_sacks(), 10)
        .run(
            "at 1100
             < . 1:1 ack 9001
             at 1500
             > . 9001:10001
             send 100
             > P. 10001:10101
             at 1600
             < . 1:1 ack 10101 sack 9001-10001
             cwnd 10000",
        )
        .end();
}

#[test]
fn silence_ends_in_a_timeout() {
    let mut script = send(plain(), 10);
    script.run(
        "at 1999
         at 2000
         > . 1:1001
         cwnd 1000
         count timeouts 1
         # Doubled.
         at 3999
         at 4000
         > . 1:1001
         at 4100
         # The rest is sent as in slow start.
         < . 1:1 ack 1001
         > . 1001:2001
         > . 2001:3001
         cwnd 2000
         at 4200
         < . 1:1 ack 3001
         > . 3001:4001
         > . 4001:5001
         > . 5001:6001
         > . 6001:7001
         cwnd 4000
         at 4300
         < . 1:1 ack 10001
         cwnd 7000",
    );
    script.end();
}

#[test]
fn what_the_peer_has_is_not_sent_again() {
    send(with_sacks(), 10)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 4001-10001
             > . 1:1001
             > . 1001:2001
             > . 2001:3001
             > . 3001:4001
             at 2100
             > . 1:1001
             count timeouts 1
             at 2200
             < . 1:1 ack 3001 sack 4001-10001
             > . 3001:4001
             at 2300
             < . 1:1 ack 10001",
        )
        .end();
}

#[test]
fn a_peer_that_throws_away_gets_it_again() {
    send(with_sacks(), 4)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-4001
             > . 1:1001
             # It has thrown away the second: the first alone is acknowledged.
             at 1200
             < . 1:1 ack 1001
             at 2199
             at 2200
             > . 1001:2001
             at 2300
             < . 1:1 ack 2001
             > . 2001:3001
             > . 3001:4001",
        )
        .end();
}

#[test]
fn a_retransmission_that_is_lost_is_found() {
    // Segments that were sent after the retransmission arrive (RFC 8985, 3.4).
    send(with_sacks(), 14).run(
        "at 1100
             < . 1:1 ack 1 sack 1001-4001
             > . 1:1001
             < . 1:1 ack 1 sack 1001-8001
             > . 10001:11001
             > . 11001:12001
             > . 12001:13001
             > P. 13001:14001
             at 1200
             < . 1:1 ack 1 sack 1001-12001
             > . 1:1001
             count timeouts 0
             count retransmits 2",
    );
}

#[test]
fn duplicates_show_a_loss_where_there_are_no_sacks() {
    // RFC 6582.
    send(plain(), 14).run(
        "at 1100
             < . 1:1 ack 1
             > . 10001:11001
             < . 1:1 ack 1
             > . 11001:12001
             < . 1:1 ack 1
             > . 1:1001
             count recoveries 1
             at 1200
             # The third is missing too.
             < . 1:1 ack 2001
             > . 2001:3001
             count retransmits 2
             at 1300
             < . 1:1 ack 12001
             cwnd 7000",
    );
}

#[test]
fn duplicates_that_are_none_do_not_count() {
    send(plain(), 10).run(
        "at 1100
             < . 1:1 ack 1 win 60000
             < . 1:1 ack 1 win 50000
             < . 1:101 ack 1 win 50000
             < . 101:201 ack 1 win 50000
             > . 10001:10001 ack 201
             < . 1:1 ack 1 win 40000
             count retransmits 0",
    );
}

#[test]
fn a_recovery_for_nothing_is_undone_by_what_came_twice() {
    send(with_sacks(), 10)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-4001
             > . 1:1001
             at 1110
             # The first was late.
             < . 1:1 ack 4001
             at 1190
             < . 1:1 ack 10001
             cwnd 7000
             count undone 0
             at 1200
             # And what was sent again comes too.
             < . 1:1 ack 10001 sack 1-1001
             count undone 1
             cwnd 10000
             < . 1:1 ack 10001 sack 1-1001
             count undone 1",
        )
        .end();
    send(with_sacks(), 10)
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-4001
             > . 1:1001
             at 1110
             < . 1:1 ack 4001 sack 1-1001
             count undone 1
             cwnd 10000
             count duplicates_reported 1",
        )
        .end();
}

#[test]
fn a_recovery_for_nothing_is_undone_by_the_echo() {
    let config = Config { timestamps: true, mss: 1012, ..with_sacks() };
    let mut script = Script::connect(config);
    script.run("> S 0:0 \n at 100 \n < S. 0:0 ack 1 mss 1012 sackok ts 1,0 \n > . 1:1 ack 1 \n event Established \n at 1000");
    script.run(
        "send 1000*5 \n > . 1:1001 \n > . 1001:2001 \n > . 2001:3001 \n > . 3001:4001 \n > P. 4001:5001",
    );
    script
        .run(
            "at 1100
             < . 1:1 ack 1 sack 1001-4001 ts 2,100
             > . 1:1001
             at 1110
             # This answers what was sent at 1000.
             < . 1:1 ack 4001 ts 2,1000
             count undone 1
             cwnd 10000",
        )
        .end();
}

#[test]
fn a_timeout_for_nothing_is_undone() {
    let config = Config { timestamps: true, mss: 1012, ..with_sacks() };
    let mut script = Script::connect(config);
    script.run("> S 0:0 \n at 100 \n < S. 0:0 ack 1 mss 1012 sackok ts 1,0 \n > . 1:1 ack 1 \n event Established \n at 1000");
    script.run("send 1000*2 \n > . 1:1001 \n > P. 1001:2001");
    script
        .run(
            "at 1200
             > . 1001:2001 # the probe
             at 2200
             > . 1:1001
             cwnd 1000
             at 2210
             < . 1:1 ack 1001 ts 2,1000
             count undone 1
             # As before, and what this acknowledges.
             cwnd 11000",
        )
        .end();
}

#[test]
fn round_trips_are_not_measured_by_what_was_sent_twice() {
    // Karn's algorithm: the round trip of the handshake still counts, and so does the back-off,
    // which is 4 s. RFC 6298, 5.7, and section 5's last paragraph keep a doubled timeout until a
    // segment that was sent once is acknowledged.
    send(plain(), 1).run(
        "at 2000
             > . 1:1001
             at 5900
             > . 1:1001
             at 5950
             < . 1:1 ack 1001
             send 1000
             > P. 1001:2001
             at 9949
             at 9950
             > P. 1001:2001
             at 9990
             < . 1:1 ack 2001
             # This one is sent once, and ends the back-off.
             send 1000
             > P. 2001:3001
             at 10090
             < . 1:1 ack 3001
             send 1000
             > P. 3001:4001
             at 11089
             at 11090
             > P. 3001:4001",
    );
}

#[test]
fn a_timestamp_that_comes_back_ends_the_back_off() {
    let config = Config { timestamps: true, mss: 1012, ..plain() };
    let mut script = Script::connect(config);
    script.run("> S 0:0 \n at 100 \n < S. 0:0 ack 1 mss 1012 ts 1,0 \n > . 1:1 ack 1 \n event Established \n at 1000");
    script
        .run(
            "send 1000 \n > P. 1:1001
             at 2000 \n > . 1:1001
             at 4000 \n > . 1:1001
             at 4100
             # It answers what was sent at 4000.
             < . 1:1 ack 1001 ts 2,4000
             send 1000 \n > P. 1001:2001
             at 5099
             at 5100 \n > P. 1001:2001",
        )
        .end();
}

#[test]
fn a_probe_that_mended_a_loss_counts_when_the_next_acknowledge_shows_it() {
    let probed = || {
        let mut script = send(with_sacks(), 10);
        script.run(
            "at 1100
             < . 1:1 ack 9001
             at 1500
             > . 9001:10001
             at 1600
             # One answer: the last segment's, or the probe's.
             < . 1:1 ack 10001
             cwnd 10000",
        );
        script
    };
    // RFC 8985, 7.4.2: no second ACK came.
    probed().run("send 100 \n > P. 10001:10101 \n at 1700 \n < . 1:1 ack 10101 \n cwnd 7000").end();
    // A second ACK shows that nothing was lost.
    for second in ["ack 10001", "ack 10001 sack 9001-10001"] {
        probed()
            .run(&format!(
                "< . 1:1 {second} \n send 100 \n > P. 10001:10101 \n at 1700 \n < . 1:1 ack 10101 \n cwnd 10000"
            ))
            .end();
    }
}

#[test]
fn duplicates_that_are_made_up_let_no_more_be_sent_than_was_outstanding() {
    for has_timed_out in [false, true] {
        let mut script = send(plain(), 100);
        if has_timed_out {
            script.run("at 2000 \n > . 1:1001");
        }
        let mut sent = 0;
        for _ in 0..200 {
            script.connection.handle_segment(
                crate::Instant(2_000_000_000),
                &script.bare_acknowledge(1),
                0,
                &mut |_| 0,
            );
            sent += script.drop_sent();
        }
        assert!(sent <= 10, "{sent}");
    }
}

/// Returns a connection whose path silently drops segments of 1000 bytes from some time on; 536
/// pass.
fn black_hole() -> Script {
    let mut script = send(plain(), 1);
    script.run(
        "at 2000 \n > . 1:1001
         at 4000 \n > . 1:1001
         at 8000
         > . 1:537
         > . 537:1001
         mss 536
         count mtu_reduced 1
         at 8100 \n < . 1:1 ack 1001
         send 600
         > . 1001:1537
         > P. 1537:1601
         at 8200 \n < . 1:1 ack 1601
         at 606000
         # It is less than ten minutes ago that the path did not take them.
         send 1000
         > . 1601:2137
         > P. 2137:2601
         at 606100 \n < . 1:1 ack 2601
         at 620000",
    );
    script
}

#[test]
fn a_path_that_takes_long_segments_again_is_found_out() {
    let mut script = black_hole();
    script.run("send 1000*2 \n > . 2601:3601 \n mss 536");
    // Only one segment is longer, since it may be lost.
    assert_eq!(script.connection.longest(crate::Instant(620_000_000_000)), 536);
    script
        .run(
            "at 620100 \n < . 1:1 ack 3601
             mss 1000
             count mtu_raised 1
             > P. 3601:4601
             at 620200 \n < . 1:1 ack 4601
             send 1000*2
             > . 4601:5601
             > P. 5601:6601",
        )
        .end();
}

#[test]
fn a_path_that_takes_no_long_segments_still_is_left_alone_for_long() {
    black_hole()
        .run(
            "send 1000
             > P. 2601:3601
             at 621000
             > . 2601:3137
             at 621100 \n < . 1:1 ack 3137
             > . 3137:3601
             at 621200 \n < . 1:1 ack 3601
             mss 536
             count mtu_raised 0
             at 1220000
             send 1000
             > . 3601:4137
             > P. 4137:4601
             at 1220100 \n < . 1:1 ack 4601
             at 1222000
             send 1000
             > P. 4601:5601",
        )
        .end();
}
