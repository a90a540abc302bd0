//! The requirements of RFC 9293, appendix B, each with the tests that show it, or a reason for
//! none.

use How::{Reason, Tests};

enum How {
    /// The names of tests of this crate, or of `vrdma-wire`.
    Tests(&'static [&'static str]),
    /// Why it does not apply, or how the design ensures it.
    Reason(&'static str),
}

const NO_BUFFER: How = Reason("the stream is the user's: nothing is buffered or aggregated here");
const NO_URGENT: How = Reason("urgent data is data: MPA has no use for it (lib.rs says so)");
const IP: How = Reason("who writes and reads the IP header does that: it is not this crate's");

const TABLE: &[(&str, &str, How)] = &[
    // PUSH flag
    ("MAY-16", "aggregate data that is not pushed", NO_BUFFER),
    ("SHLD-27", "collapse successive PSH bits", NO_BUFFER),
    ("MAY-15", "SEND can specify PUSH", Reason("it cannot: what there is goes at once")),
    ("MUST-60", "without it, data is not buffered for ever", Tests(&["segments_are_cut_by_the_user"])),
    ("MUST-61", "without it, the last segment has PSH", Tests(&["segments_are_cut_by_the_user"])),
    ("MAY-17", "tell the receiver's user of PSH", Reason("an FPDU says by itself where it ends")),
    ("SHLD-28", "segments as large as possible", Reason("the user cuts them: FPDUs of at most one MSS")),
    // Window
    ("MUST-1", "windows are unsigned", Tests(&["options_count_if_both_have_them"])),
    ("REC-1", "windows have 32 bits", Reason("they have 64")),
    ("SHLD-14", "our window never shrinks from the right", Tests(&["our_window_never_goes_back"])),
    ("SHLD-15", "no new data when the peer's shrinks", Tests(&["a_window_that_shrinks_is_survived"])),
    ("SHLD-16", "old data within it is sent again", Tests(&["a_window_that_shrinks_is_survived"])),
    (
        "SHLD-17",
        "data beyond it does not time out the connection",
        Tests(&["a_window_that_shrinks_is_survived"]),
    ),
    ("MUST-34", "a shrinking window is survived", Tests(&["a_window_that_shrinks_is_survived"])),
    (
        "MAY-8",
        "our window may stay closed",
        Tests(&["a_closed_window_of_ours_takes_acknowledges_and_resets"]),
    ),
    ("MUST-35", "the usual logic of probes", Tests(&["a_closed_window_is_probed_until_it_opens"])),
    ("MUST-36", "a closed window is probed", Tests(&["a_closed_window_is_probed_until_it_opens"])),
    ("SHLD-29", "first after an RTO", Tests(&["a_closed_window_is_probed_until_it_opens"])),
    ("SHLD-30", "then less and less often", Tests(&["a_closed_window_is_probed_until_it_opens"])),
    (
        "MUST-37",
        "it may stay closed for ever",
        Tests(&["a_window_may_stay_closed_as_long_as_the_peer_answers"]),
    ),
    ("MAY-7", "old data beyond it is sent again", Tests(&["a_window_that_shrinks_is_survived"])),
    (
        "MUST-66",
        "RSTs count though ours is closed",
        Tests(&["a_closed_window_of_ours_takes_acknowledges_and_resets"]),
    ),
    // Urgent data
    ("MUST-30", "support the urgent pointer", NO_URGENT),
    ("MUST-62", "it points behind urgent data", NO_URGENT),
    ("MUST-31", "urgent data of any length", NO_URGENT),
    ("MUST-32", "tell the user of it", NO_URGENT),
    ("MUST-33", "tell the user how much", NO_URGENT),
    ("SHLD-13", "users should not send any", Reason("they cannot")),
    // Options
    (
        "MUST-4",
        "END, NOP and MSS are supported",
        Tests(&["options_that_nobody_knows_are_passed_over", "the_handshake_of_figure_6"]),
    ),
    ("MUST-5", "options may be in any segment", Tests(&["segments_come_back"])),
    ("MUST-6", "unknown options are passed over", Tests(&["options_that_nobody_knows_are_passed_over"])),
    ("MUST-68", "options have a length", Tests(&["segments_of_others_are_written_and_read_alike"])),
    (
        "MUST-7",
        "wrong lengths do no harm",
        Tests(&["lengths_that_cannot_be_are_refused", "any_bytes_are_read_or_refused"]),
    ),
    ("MUST-64", "options may begin anywhere", Tests(&["options_that_nobody_knows_are_passed_over"])),
    ("MUST-14", "the MSS is told and heard", Tests(&["the_handshake_of_figure_6"])),
    ("SHLD-5", "it is told unless it is the default", Tests(&["the_handshake_of_figure_6"])),
    ("MAY-3", "it is told always", Tests(&["the_handshake_of_figure_6"])),
    ("MUST-15", "without it 536, or 1220", Tests(&["a_peer_without_mss_takes_536"])),
    ("MUST-16", "segments are no longer than both say", Tests(&["options_count_if_both_have_them"])),
    ("SHLD-6", "it follows the path's MTU", Tests(&["a_path_that_takes_less_gets_less"])),
    ("MUST-65", "it is in SYNs only", Tests(&["segments_carry_no_options_of_syns"])),
    (
        "MUST-67",
        "it is what can be received",
        Reason("the configuration says it: the MTU less headers (Config::mss)"),
    ),
    ("MUST-69", "padding is zero", Reason("nothing is padded: NOPs fill options up")),
    // Checksum
    (
        "MUST-2",
        "checksums are sent",
        Tests(&["segments_come_back", "segments_of_others_are_written_and_read_alike"]),
    ),
    ("MUST-3", "checksums are checked", Reason("by the caller, with vrdma_wire::tcp::is_sound, or its NIC")),
    // Initial numbers
    ("MUST-8", "they follow a clock", Tests(&["numbers_go_on_with_time_and_differ_else"])),
    ("SHLD-1", "they are hard to guess", Tests(&["numbers_go_on_with_time_and_differ_else"])),
    ("MUST-9", "nobody else can compute them", Reason("SipHash with a secret of the stack")),
    // Opening
    (
        "MUST-10",
        "both may begin at a time",
        Tests(&["both_may_begin_at_a_time", "both_ends_may_begin_at_a_time"]),
    ),
    ("MUST-11", "SYN-RECEIVED knows where it came from", Tests(&["resets_before_it_is_set_up"])),
    (
        "MUST-41",
        "a listener does not disturb connections",
        Tests(&["a_flood_of_syns_is_bounded_and_others_come_through"]),
    ),
    (
        "MUST-42",
        "one port listens and has connections",
        Tests(&["a_flood_of_syns_is_bounded_and_others_come_through"]),
    ),
    ("MUST-43", "the local address may be said", Reason("it has to be said: Tuple::local")),
    ("MUST-44", "else IP is asked for it", Reason("it has to be said")),
    (
        "MUST-45",
        "segments of a connection have its address",
        Tests(&["connections_come_and_go_and_leave_nothing"]),
    ),
    ("MUST-46", "nobody connects to many", Tests(&["segments_for_nobody_are_reset"])),
    (
        "MUST-57",
        "segments to many are dropped",
        Reason("the switch hands on what is for a guest's address alone"),
    ),
    ("MUST-63", "SYNs from many are dropped", Tests(&["segments_for_nobody_are_reset"])),
    // Closing
    ("SHLD-2", "a RST may have data", Reason("data of a RST is never looked at")),
    (
        "MUST-12",
        "users learn of aborts",
        Tests(&["resets_in_each_state", "data_that_nobody_acknowledges_ends_it"]),
    ),
    ("MAY-1", "half-duplex close", Reason("not done: what arrives after a close is handed up")),
    ("SHLD-3", "a RST tells that data was lost by it", Reason("not done, so nothing is")),
    ("MUST-13", "TIME-WAIT takes 2 MSL", Tests(&["we_close_first"])),
    ("MAY-2", "TIME-WAIT accepts a SYN", Tests(&["time_wait_gives_way_to_newer_numbers"])),
    ("SHLD-4", "by timestamps", Tests(&["time_wait_gives_way_to_newer_numbers"])),
    // Retransmission
    (
        "MUST-19",
        "backoff, slow start, congestion avoidance",
        Tests(&["silence_ends_in_a_timeout", "slow_start_doubles", "reno_is_never_faster"]),
    ),
    ("MAY-4", "the same IP identification", IP),
    ("MUST-18", "Karn's algorithm", Tests(&["round_trips_are_not_measured_by_what_was_sent_twice"])),
    // Acknowledgments
    ("MUST-58", "they are aggregated", Tests(&["acknowledges_wait_for_a_second_segment_or_a_while"])),
    ("SHLD-31", "what is out of order is kept", Tests(&["gaps_are_told_at_once"])),
    ("MUST-59", "all that is kept counts before one is sent", Tests(&["gaps_are_told_at_once"])),
    ("MAY-13", "what is out of order is acknowledged", Tests(&["gaps_are_told_at_once"])),
    ("SHLD-18", "they are delayed", Tests(&["acknowledges_wait_for_a_second_segment_or_a_while"])),
    ("MUST-40", "by less than half a second", Tests(&["no_acknowledge_is_delayed_for_half_a_second"])),
    (
        "SHLD-19",
        "every second segment is acknowledged",
        Tests(&["acknowledges_wait_for_a_second_segment_or_a_while"]),
    ),
    (
        "MUST-39",
        "no silly windows by the receiver",
        Reason("the window has no buffer that is emptied bit by bit: it goes on by what arrives"),
    ),
    // Sending
    ("MUST-49", "TTL can be configured", IP),
    (
        "MUST-38",
        "no silly segments by the sender",
        Tests(&[
            "no_segment_is_cut_for_a_window_while_others_are_on_their_way",
            "a_window_that_stays_small_is_used_after_a_while",
        ]),
    ),
    ("SHLD-7", "Nagle's algorithm", Reason("small messages must not wait for others: users cut segments")),
    ("MUST-17", "users can turn it off", Reason("there is none")),
    // Failures
    ("MUST-20", "R1 and R2", Tests(&["data_that_nobody_acknowledges_ends_it"])),
    ("MUST-21", "users set R2", Tests(&["data_that_nobody_acknowledges_ends_it"])),
    ("SHLD-9", "users learn of R1", Reason("the counter of timeouts tells")),
    ("SHLD-10", "R1 is 3 retransmissions", Reason("after 3 the path MTU is suspected: timeout.rs")),
    ("SHLD-11", "R2 is 100 s", Tests(&["defaults_are_those_of_the_rfc"])),
    ("MUST-22", "SYNs are given up likewise", Tests(&["syns_are_sent_again_and_given_up"])),
    ("MUST-23", "after 3 minutes at least", Tests(&["defaults_are_those_of_the_rfc"])),
    // Keep-alive
    ("MAY-5", "silent peers are asked", Tests(&["a_silent_peer_is_asked"])),
    ("MUST-24", "if users want", Tests(&["a_silent_peer_is_asked"])),
    ("MUST-25", "not else", Tests(&["a_silent_peer_is_asked"])),
    ("MUST-26", "only those that are silent", Tests(&["a_silent_peer_is_asked"])),
    ("MUST-27", "how long can be configured", Tests(&["a_silent_peer_is_asked"])),
    ("MUST-28", "two hours unless configured", Reason("there is no default: who wants it says how long")),
    ("MUST-29", "one probe without an answer is no end", Tests(&["a_silent_peer_is_asked"])),
    ("SHLD-12", "probes have no data", Tests(&["a_silent_peer_is_asked"])),
    ("MAY-6", "or one byte", Reason("no peer needs that any more")),
    // IP options
    ("MUST-50", "unknown ones are ignored", IP),
    ("MAY-10", "time stamps", IP),
    ("MAY-11", "record route", IP),
    ("MUST-51", "source routes by users", IP),
    ("MUST-52", "they go before those of datagrams", IP),
    ("MUST-53", "they are turned round", IP),
    ("SHLD-24", "later ones go before earlier ones", IP),
    // ICMP
    ("MUST-54", "ICMP messages are heard", Tests(&["a_path_that_takes_less_gets_less"])),
    ("SHLD-25", "soft errors are told to users", Reason("the caller has them: lib.rs")),
    ("MUST-56", "they end nothing", Reason("nothing but Connection::handle_too_long comes in")),
    (
        "SHLD-26",
        "hard errors end connections",
        Reason("anybody can send them: RFC 5927, 5.2, lets connections live on"),
    ),
    ("MUST-55", "source quench is ignored", Reason("nothing but Connection::handle_too_long comes in")),
    // Users
    ("MUST-47", "errors are reported", Tests(&["resets_in_each_state"])),
    ("SHLD-20", "they can be turned off", Reason("they need not be polled")),
    ("MUST-48", "users set the DiffServ field", IP),
    ("SHLD-22", "it goes to IP unchanged", IP),
    ("SHLD-21", "it can be changed", IP),
    ("SHLD-23", "but should not", IP),
    ("MAY-9", "it is handed up", IP),
    ("MAY-14", "FLUSH", Reason("nothing is buffered")),
    // Others
    (
        "MAY-12",
        "RFC 5961",
        Tests(&[
            "only_the_very_reset_counts",
            "challenges_are_few",
            "acknowledges_of_what_was_never_sent_are_dropped",
        ]),
    ),
    ("SHLD-8", "ECN", Reason("not yet: lib.rs says so")),
    (
        "MAY-18",
        "other congestion control",
        Tests(&["a_loss_takes_three_tenths_and_growth_slows_where_it_was"]),
    ),
];

const SOURCES: &[&str] = &[
    include_str!("attacks.rs"),
    include_str!("closing.rs"),
    include_str!("loss.rs"),
    include_str!("opening.rs"),
    include_str!("sim.rs"),
    include_str!("stack.rs"),
    include_str!("streams.rs"),
    include_str!("windows.rs"),
    include_str!("../config.rs"),
    include_str!("../congestion.rs"),
    include_str!("../initial.rs"),
    include_str!("../../../../wire/src/tcp/tests.rs"),
    include_str!("../../../../wire/tests/tcp.rs"),
];

#[test]
fn each_requirement_has_a_test_or_a_reason() {
    for (id, what, how) in TABLE {
        match how {
            Tests(names) => {
                for name in *names {
                    let head = format!("fn {name}(");
                    assert!(
                        SOURCES.iter().any(|text| text.contains(&head)),
                        "{id} ({what}): where is {name}?"
                    );
                }
            }
            Reason(reason) => assert!(reason.len() > 10, "{id}"),
        }
    }
}

#[test]
fn no_requirement_is_missing() {
    let ids: std::collections::BTreeSet<&str> = TABLE.iter().map(|(id, ..)| *id).collect();
    assert_eq!(ids.len(), TABLE.len(), "each is there once");
    // The table's numbers have no gaps.
    let kinds = [("MUST", 69), ("SHLD", 31), ("MAY", 18), ("REC", 1)];
    for (kind, last) in kinds {
        let missing: Vec<String> =
            (1..=last).map(|n| format!("{kind}-{n}")).filter(|id| !ids.contains(id.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
