//! Data, its acknowledgment, and SACKs (RFC 9293, 3.8; RFC 2018; RFC 2883).

use super::opening::{plain, with_sacks};
use super::script::Script;
use crate::Config;

fn open(config: Config) -> Script {
    let mut script = Script::connect(config);
    script.run("> S 0:0 \n < S. 0:0 ack 1 mss 1000 sackok \n > . 1:1 ack 1 \n event Established");
    script
}

#[test]
fn acknowledges_wait_for_a_second_segment_or_a_while() {
    open(plain())
        .run(
            "< P. 1:101 ack 1
             taken 0-100
             at 39.9
             at 40
             > . 1:1 ack 101
             < . 101:201 ack 1
             < . 201:301 ack 1
             > . 1:1 ack 301
             # Data of ours takes it along.
             < . 301:401 ack 1
             send 10
             > P. 1:11 ack 401
             at 80",
        )
        .end();
}

#[test]
fn acknowledges_may_go_at_once() {
    let config = Config { ack_delay: core::time::Duration::ZERO, ..plain() };
    open(config).run("< P. 1:101 ack 1 \n > . 1:1 ack 101").end();
    let config = Config { ack_every: 1, ..plain() };
    open(config).run("< P. 1:101 ack 1 \n > . 1:1 ack 101").end();
}

#[test]
fn no_acknowledge_is_delayed_for_half_a_second() {
    let config = Config { ack_delay: core::time::Duration::from_secs(5), ..plain() };
    open(config).run("< P. 1:101 ack 1 \n at 499 \n > . 1:1 ack 101").end();
}

#[test]
fn what_follows_a_hole_is_acknowledged_at_once_for_a_while() {
    let mut script = open(with_sacks());
    script.run(
        "< . 101:201 ack 1
         > . 1:1 ack 1 sack 101-201
         < . 1:101 ack 1
         > . 1:1 ack 201",
    );
    for n in 2..17 {
        script.run(&format!("< . {}:{} ack 1\n > . 1:1 ack {}", n * 100 + 1, n * 100 + 101, n * 100 + 101));
    }
    // Afterwards every second segment is acknowledged, as usual.
    script.run("< . 1701:1801 ack 1\n < . 1801:1901 ack 1\n > . 1:1 ack 1901\n < . 1901:2001 ack 1\n at 39\n at 40\n > . 1:1 ack 2001").end();
}

#[test]
fn segments_are_cut_by_the_user() {
    open(plain())
        .run(
            "send 1000
             > P. 1:1001
             send 300*2
             > . 1001:1301
             > P. 1301:1601
             send 1
             > P. 1601:1602
             < . 1:1 ack 1301
             acknowledged 1300
             < . 1:1 ack 1602
             acknowledged 1601",
        )
        .end();
}

#[test]
fn gaps_are_told_at_once() {
    open(with_sacks())
        .run(
            "< . 1001:2001 ack 1
             > . 1:1 ack 1 sack 1001-2001
             < . 3001:4001 ack 1
             > . 1:1 ack 1 sack 3001-4001,1001-2001
             < . 2001:3001 ack 1
             > . 1:1 ack 1 sack 1001-4001
             taken 1000-2000,3000-4000,2000-3000
             complete 0
             < . 1:1001 ack 1
             > . 1:1 ack 4001
             complete 4000",
        )
        .end();
}

#[test]
fn a_peer_without_sacks_gets_none() {
    let mut script = Script::connect(with_sacks());
    script.run("> S 0:0 sackok \n < S. 0:0 ack 1 mss 1000 \n > . 1:1 ack 1");
    script
        .run(
            "< . 1001:2001 ack 1
             > . 1:1 ack 1
             < . 1:1001 ack 1
             > . 1:1 ack 2001",
        )
        .end();
}

#[test]
fn sacks_go_before_data_and_not_beside_it() {
    open(with_sacks())
        .run(
            "send 1000
             > P. 1:1001
             send 1000
             > P. 1001:2001
             < . 1001:2001 ack 1001
             > . 2001:2001 ack 1 sack 1001-2001
             send 1000
             > P. 2001:3001 ack 1",
        )
        .end();
}

#[test]
fn what_comes_twice_is_told() {
    // RFC 2883, 4.1: a duplicate of acknowledged data.
    open(with_sacks())
        .run(
            "< . 1:1001 ack 1
             < . 1001:2001 ack 1
             > . 1:1 ack 2001
             < . 1001:2001 ack 1
             > . 1:1 ack 2001 sack 1001-2001
             count duplicates 1
             # 4.2: beyond a gap.
             < . 3001:4001 ack 1
             > . 1:1 ack 2001 sack 3001-4001
             < . 3001:4001 ack 1
             > . 1:1 ack 2001 sack 3001-4001,3001-4001
             # Half of it.
             < . 1501:2501 ack 1
             > . 1:1 ack 2501 sack 1501-2001,3001-4001
             taken 0-1000,1000-2000,3000-4000,2000-2500",
        )
        .end();
}

#[test]
fn what_is_refused_is_not_acknowledged() {
    open(with_sacks())
        .run(
            "refuse
             < . 1001:2001 ack 1
             > . 1:1 ack 1
             count not_taken 1
             accept
             < . 1:1001 ack 1
             taken 1000-1000,0-1000
             > . 1:1 ack 1001
             # Only a part of it has a place.
             take 300
             < . 1001:2001 ack 1
             > . 1:1 ack 1301
             < . 1001:2001 ack 1
             > . 1:1 ack 1601 sack 1001-1301",
        )
        .end();
}

#[test]
fn stretches_beyond_gaps_are_bounded() {
    let config = Config { max_kept: 2, ..with_sacks() };
    open(config)
        .run(
            "< . 1001:1101 ack 1
             > . 1:1 ack 1 sack 1001-1101
             < . 2001:2101 ack 1
             > . 1:1 ack 1 sack 2001-2101,1001-1101
             < . 3001:3101 ack 1
             > . 1:1 ack 1 sack 2001-2101,1001-1101
             taken 1000-1100,2000-2100",
        )
        .end();
}

#[test]
fn timestamps_are_those_of_the_segment_that_an_acknowledge_begins_with() {
    let config = Config { timestamps: true, ..with_sacks() };
    let mut script = Script::connect(config);
    script.run("> S 0:0 ts 0,0 \n < S. 0:0 ack 1 mss 1000 sackok ts 100,0 \n > . 1:1 ack 1 ts 0,100");
    script
        .run(
            "at 5
             # RFC 7323, 4.3: of two segments the first one's.
             < . 1:101 ack 1 ts 110,0
             < . 101:201 ack 1 ts 111,0
             > . 1:1 ack 201 ts 5,110
             # Beyond a gap that of the last one in order.
             < . 301:401 ack 1 ts 112,5
             > . 1:1 ack 201 ts 5,110 sack 301-401
             # What fills the gap.
             < . 201:301 ack 1 ts 113,5
             > . 1:1 ack 401 ts 5,113",
        )
        .end();
}

#[test]
fn old_timestamps_are_refused() {
    let config = Config { timestamps: true, ..with_sacks() };
    let mut script = Script::connect(config);
    script.run("> S 0:0 ts 0,0 \n < S. 0:0 ack 1 mss 1000 sackok ts 100,0 \n > . 1:1 ack 1 ts 0,100");
    script
        .run(
            "at 100
             < . 1:101 ack 1 ts 99,0
             > . 1:1 ack 1
             taken
             # Without one, once both said that they have them.
             < . 1:101 ack 1
             taken
             count bad_timestamp 2
             # A RST may be without.
             < R 1:1
             event Established
             event Reset",
        )
        .end();
    // After 24 days timestamps mean nothing.
    let mut script = Script::connect(config);
    script.run("> S 0:0 ts 0,0 \n < S. 0:0 ack 1 mss 1000 sackok ts 100,0 \n > . 1:1 ack 1 ts 0,100");
    script.run("at 2073600001 \n < . 1:101 ack 1 ts 99,0 \n taken 0-100 \n at 2073600041 \n > . 1:1 ack 101 ts 2073600041,99").end();
}

#[test]
fn urgent_data_is_data() {
    open(plain()).run("< . 1:101 ack 1 \n < . 101:201 ack 1 \n > . 1:1 ack 201 \n complete 200").end();
}
