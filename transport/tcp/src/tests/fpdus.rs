//! Segments that claim to be whole FPDUs: who sends the claim, and when it is accepted.
//!
//! Shows: placed.

use super::opening::plain;
use super::script::Script;
use crate::Config;

fn config() -> Config {
    Config { fpdus: true, sack: true, mss: 1008, min_mss: 400, ..plain() }
}

/// Returns a connection whose ends both know the option.
fn open() -> Script {
    let mut script = Script::connect(config());
    script.run(
        "> S 0:0 fpdus 0
         < S. 0:0 ack 1 mss 1008 win 20000 sackok fpdus 0
         > . 1:1 ack 1
         event Established
         mss 1000",
    );
    script
}

#[test]
fn segments_say_that_they_are_whole_fpdus_also_when_they_are_sent_again() {
    open()
        .run(
            "send 1000*2
             > . 1:1001 fpdus 1000
             > P. 1001:2001 fpdus 1000
             send 36
             > P. 2001:2037 fpdus 36
             at 10
             # The tail is probed.
             > P. 2001:2037 fpdus 36
             < . 1:1 ack 1001 win 20000 sack 2001-2037
             > . 1001:2001 fpdus 1000
             < . 1:1 ack 2037 win 20000",
        )
        .end();
}

#[test]
fn parts_of_fpdus_do_not_say_so() {
    open()
        .run(
            "send 1000
             > P. 1:1001 fpdus 1000
             toolong 1 608
             > . 1:601
             > . 601:1001
             < . 1:1 ack 1001 win 20000
             # What was cut for the longer path goes in parts too, and what fits is whole.
             send 1000
             > . 1001:1601
             > P. 1601:2001
             send 500
             > P. 2001:2501 fpdus 500
             < . 1:1 ack 2501 win 20000",
        )
        .end();
}

#[test]
fn who_does_not_know_of_it_is_not_told_and_not_believed() {
    for (own, theirs) in [(true, ""), (false, "fpdus 0")] {
        let mut script = Script::connect(Config { fpdus: own, ..config() });
        script
            .run(if own { "> S 0:0 fpdus 0" } else { "> S 0:0" })
            .run(&format!("< S. 0:0 ack 1 mss 1008 win 20000 sackok {theirs}"))
            .run(
                "> . 1:1 ack 1
                 event Established
                 mss 1008
                 send 1000
                 > P. 1:1001
                 < . 1:1 ack 1001 win 20000
                 < . 101:201 ack 1001 win 20000 fpdus 100
                 > . 1001:1001 ack 1 sack 101-201
                 taken 100-200",
            )
            .end();
    }
}

#[test]
fn a_listener_answers_who_knows_of_it() {
    for (syn, answer) in [("fpdus 0", "fpdus 0"), ("", "")] {
        Script::listen(config(), &format!("S 0:0 mss 1008 sackok {syn}"))
            .run(&format!("> S. 0:0 ack 1 {answer}"))
            .end();
    }
}

#[test]
fn a_syn_that_is_sent_again_has_no_option_that_a_network_may_not_like() {
    Script::connect(config())
        .run(
            "> S 0:0 fpdus 0
             at 1000
             > S 0:0
             # It was the answer that was lost.
             < S. 0:0 ack 1 mss 1008 win 20000 sackok fpdus 0
             > . 1:1 ack 1
             event Established
             mss 1000",
        )
        .end();
}

#[test]
fn a_segment_is_believed_that_came_as_it_was_sent() {
    open()
        .run(
            "< . 101:201 ack 1 win 20000 fpdus 100
             > . 1:1 ack 1 sack 101-201
             taken 100-200!
             # It was cut on the way, and the parts have the options of the whole.
             < . 301:351 ack 1 win 20000 fpdus 100
             > . 1:1 ack 1 sack 301-351,101-201
             < . 351:401 ack 1 win 20000 fpdus 100
             > . 1:1 ack 1 sack 301-401,101-201
             taken 300-350,350-400
             # Two were joined.
             < . 501:701 ack 1 win 20000 fpdus 100
             > . 1:1 ack 1 sack 501-701,301-401,101-201
             taken 500-700
             # A part of it is there.
             < . 451:551 ack 1 win 20000 fpdus 100
             > . 1:1 ack 1 sack 501-551,451-701,301-401,101-201
             taken 450-500
             # It says nothing.
             < . 801:901 ack 1 win 20000
             > . 1:1 ack 1 sack 801-901,451-701,301-401,101-201
             taken 800-900
             # In order it is no secret either.
             < . 1:101 ack 1 win 20000 fpdus 100
             > . 1:1 ack 201 sack 801-901,451-701,301-401
             taken 0-100!",
        )
        .end();
}
