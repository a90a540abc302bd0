//! Tests of the reorder buffer by itself.

use super::tolerance::MAX_TOLERANCE;
use super::*;

const NOW: Instant = Instant(1_000_000);

fn psn(number: u32) -> Psn {
    Psn::truncate(number)
}

fn buffer(expected: u32) -> ReorderBuffer {
    ReorderBuffer::new(psn(expected), NOW, false)
}

/// Holds a frame of one byte, and reports it. Returns whether a NAK is due.
fn come(buffer: &mut ReorderBuffer, number: u32) -> bool {
    let what = if buffer.is_held(psn(number)) { Early::Known } else { Early::New };
    if what == Early::New {
        buffer.hold(psn(number), &[number as u8]);
    }
    buffer.came_ahead(NOW, psn(number), what)
}

#[test]
fn frames_come_out_in_order_around_the_last_psn() {
    let first = 0xff_fff0;
    let mut buffer = buffer(first);
    for n in (1..REORDER_WINDOW).rev() {
        come(&mut buffer, first + n);
    }
    assert_eq!(buffer.held().packets, REORDER_WINDOW - 1);
    assert_eq!(buffer.next(NOW, psn(first)), None);
    for n in 1..REORDER_WINDOW {
        let frame = buffer.next(NOW, psn(first + n)).unwrap();
        assert_eq!(*frame, [(first + n) as u8]);
    }
    assert_eq!(buffer.held(), Held::default());
    assert!(buffer.slots.is_empty(), "the ring is given back");
}

#[test]
fn what_is_behind_the_expected_psn_is_dropped() {
    let mut buffer = buffer(10);
    for number in [12, 13, 20, 300] {
        come(&mut buffer, number);
    }
    // A READ stands for many PSNs.
    buffer.advance(NOW, psn(20));
    assert!(buffer.is_held(psn(20)) && buffer.held().packets == 2);
    buffer.advance(NOW, psn(10 + 5 * REORDER_WINDOW));
    assert_eq!(buffer.held(), Held::default());
    assert!(!buffer.is_held(psn(300 + 5 * REORDER_WINDOW)));
}

#[test]
fn tiny_frames_count_with_all_that_they_cost() {
    let mut buffer = buffer(0);
    for number in 1..REORDER_WINDOW {
        come(&mut buffer, number);
    }
    let ring = buffer.slots.len() * size_of::<Slot>();
    let least = ring + 511 * (1 + 16);
    assert!(buffer.held().bytes >= least as u64, "{:?}", buffer.held());
    for number in 1..REORDER_WINDOW {
        buffer.next(NOW, psn(number)).unwrap();
    }
    assert_eq!(buffer.held().bytes, 0);
}

/// Lets packets come. Returns those with which a NAK is due.
fn naks(buffer: &mut ReorderBuffer, numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
    numbers.into_iter().filter(|&number| come(buffer, number)).collect()
}

#[test]
fn there_is_one_nak_for_a_gap_and_one_more_for_each_repetition() {
    let mut buffer = buffer(0);
    assert_eq!(naks(&mut buffer, 1..10), [1]);
    // The peer goes back again and again. Wherever that begins, the gap gets lost again.
    assert_eq!(naks(&mut buffer, 1..10), [2]);
    assert_eq!(naks(&mut buffer, 2..10), [3]);
    assert_eq!(naks(&mut buffer, 5..10), [6]);
    assert_eq!(naks(&mut buffer, [1, 4, 6, 8, 12]), [4]);
    // The network reorders a repetition.
    assert_eq!(naks(&mut buffer, [2, 1, 3, 5, 4, 6, 7, 8, 9]), [3]);
    assert_eq!(naks(&mut buffer, [3, 4, 7, 5, 8, 9]), [4]);
    assert_eq!(buffer.nak_at(), NEVER);
    // Of this one, a single packet comes.
    assert_eq!(naks(&mut buffer, [9]), []);
    let at = buffer.nak_at();
    assert_eq!(at, NOW + buffer.tolerance.wait());
    assert!(buffer.take_delayed_nak(at, psn(0)) && buffer.nak_at() == NEVER);
}

#[test]
fn a_frame_that_the_network_doubled_has_no_nak() {
    let mut buffer = buffer(0);
    assert_eq!(naks(&mut buffer, [1, 2, 3, 4, 4, 5, 3, 6, 6, 1, 7, 7, 7, 8]), [1]);
    assert_eq!(buffer.nak_at(), NEVER, "the stream went on");
}

#[test]
fn a_repetition_of_packets_that_gave_way_has_its_nak() {
    let mut buffer = buffer(0);
    assert_eq!(naks(&mut buffer, 1..10), [1]);
    buffer.evict();
    assert_eq!(naks(&mut buffer, 10..20), [], "these were under way");
    assert_eq!(naks(&mut buffer, 2..20), [3]);
}

#[test]
fn a_nak_that_has_not_left_counts_for_nothing() {
    let mut buffer = buffer(0);
    assert_eq!(naks(&mut buffer, [1, 3, 4]), [1]);
    buffer.came(psn(0), true, false);
    assert!(buffer.next(NOW, psn(1)).is_some());
    buffer.advance(NOW, psn(2));
    assert!(!buffer.stopped(NOW) && buffer.nak_at() != NEVER, "the first one was late, and is learned");
    assert_eq!(naks(&mut buffer, [5, 6, 7, 8]), [8]);
    // Where nothing behind the gap is executed, it is still the same one.
    let mut buffer = self::buffer(0);
    assert_eq!(naks(&mut buffer, [2]), [2]);
    buffer.came(psn(0), true, false);
    buffer.advance(NOW, psn(1));
    assert_eq!(naks(&mut buffer, [3, 4, 5]), [4]);
}

#[test]
fn a_further_gap_has_its_nak_if_the_first_one_had_none() {
    let mut buffer = ReorderBuffer::new(psn(0), NOW, true);
    buffer.tolerance.limit.packets = 4;
    assert_eq!(naks(&mut buffer, [1, 3, 4]), []);
    assert!(buffer.next(NOW, psn(1)).is_some());
    buffer.advance(NOW, psn(2));
    assert!(!buffer.stopped(NOW));
    let at = buffer.nak_at();
    assert!(at != NEVER && buffer.take_delayed_nak(at, psn(2)));
}

#[test]
fn what_was_dropped_behind_held_packets_has_a_nak() {
    for tolerated in [0, 4] {
        let mut buffer = buffer(0);
        assert_eq!(naks(&mut buffer, [1]), [1]);
        buffer.advance(NOW, psn(1));
        assert!(!buffer.came_ahead(NOW, psn(2), Early::Dropped), "the expected one is here");
        assert!(buffer.next(NOW, psn(1)).is_some());
        buffer.advance(NOW, psn(2));
        buffer.tolerance.limit.packets = tolerated;
        assert_eq!(buffer.stopped(NOW), tolerated == 0);
        assert_eq!(buffer.nak_at() == NEVER, tolerated == 0);
        assert!(!buffer.stopped(NOW), "one is enough");
        // It comes again, and nothing is missing.
        buffer.advance(NOW, psn(3));
        assert!(!buffer.stopped(NOW) && buffer.nak_at() == NEVER);
    }
}

#[test]
fn a_probe_does_not_make_it_tolerant() {
    let mut buffer = buffer(0);
    // It fills the gap, and comes once more.
    assert_eq!(naks(&mut buffer, [1, 2]), [1]);
    buffer.came(psn(0), false, true);
    buffer.advance(NOW, psn(3));
    buffer.repeated(psn(0), false);
    assert_eq!(buffer.tolerance, Tolerance::new(NOW));
    // Another packet fills the gap, and the probe comes after it.
    assert_eq!(naks(&mut buffer, [4]), [4]);
    buffer.came(psn(3), false, false);
    buffer.advance(NOW, psn(5));
    buffer.repeated(psn(3), true);
    buffer.repeated(psn(3), false);
    assert_eq!(buffer.tolerance, Tolerance::new(NOW));
    // It fills a gap for which there was no NAK.
    buffer.tolerance.limit.packets = 1;
    let before = buffer.tolerance;
    assert_eq!(naks(&mut buffer, [6]), []);
    buffer.came(psn(5), false, true);
    buffer.advance(NOW, psn(7));
    assert_eq!(buffer.tolerance, before);
}

#[test]
fn a_further_gap_has_its_nak_at_once_unless_the_peer_sends_all_again() {
    let mut buffer = buffer(0);
    for number in [1, 3, 5] {
        come(&mut buffer, number);
    }
    assert_eq!(buffer.next(NOW, psn(1)).as_deref(), Some(&[1][..]));
    assert!(buffer.stopped(NOW), "a NAK for 2");
    assert!(!buffer.stopped(NOW), "one is enough");
    // The peer repeats much of what was executed.
    for number in [1, 1, 1] {
        buffer.repeated(psn(number), false);
    }
    assert!(buffer.next(NOW, psn(3)).is_some());
    assert!(buffer.stopped(NOW), "the next NAK shows that");
    come(&mut buffer, 7);
    assert!(buffer.next(NOW, psn(5)).is_some());
    assert!(!buffer.stopped(NOW), "6 comes anyway");
    assert!(come(&mut buffer, 7), "7 came again, and 6 did not");
}

#[test]
fn tolerance_grows_by_gaps_that_filled_themselves_and_delays_naks() {
    let mut buffer = buffer(0);
    // The first late packet costs a NAK. That it was late is known when it comes again.
    assert!(come(&mut buffer, 1) && !come(&mut buffer, 2));
    buffer.advance(NOW, psn(3));
    buffer.repeated(psn(0), false);
    assert_eq!(buffer.tolerance.packets(), 4);
    assert!(!come(&mut buffer, 4) && !come(&mut buffer, 5));
    assert_eq!(buffer.nak_at(), NOW + buffer.tolerance.wait(), "the NAK for a gap without more packets");
    assert!(!buffer.take_delayed_nak(NOW, psn(3)));
    let later = NOW + buffer.tolerance.wait();
    assert!(buffer.take_delayed_nak(later, psn(3)) && buffer.nak_at() == NEVER);
    // With more packets it comes before that.
    buffer.advance(NOW, psn(10));
    assert!((11..=14).all(|number| !come(&mut buffer, number)) && come(&mut buffer, 15));
    // A gap without a NAK shows at once that it was late.
    buffer.advance(NOW, psn(20));
    buffer.tolerance.learn(Lateness { packets: MAX_TOLERANCE, time: 0 });
    assert!((21..=50).all(|number| !come(&mut buffer, number)));
    buffer.advance(NOW, psn(51));
    assert_eq!(buffer.nak_at(), NEVER);
}

#[test]
fn a_lost_packet_does_not_make_it_tolerant() {
    let mut buffer = buffer(0);
    assert!(come(&mut buffer, 1) && !come(&mut buffer, 2));
    buffer.advance(NOW, psn(3));
    for number in [1, 2] {
        buffer.repeated(psn(number), false);
    }
    assert_eq!(buffer.tolerance.packets(), 0);
}

/// Fills the gap up to the held packet `last`, packet by packet. Returns how many NAKs are due.
fn fill(buffer: &mut ReorderBuffer, expected: u32, last: u32) -> usize {
    let steps = (expected + 1..=last).map(|number| {
        buffer.advance(NOW, psn(number));
        !buffer.is_held(psn(number)) && buffer.stopped(NOW)
    });
    let naks = steps.filter(|&is_due| is_due).count();
    assert!(buffer.next(NOW, psn(last)).is_some());
    naks
}

#[test]
fn a_gap_of_many_packets_has_one_nak() {
    // Ten packets were lost, or one came 20 packets early.
    for (first, tolerated) in [(10, 0), (10, 4), (20, 0), (20, 4)] {
        let mut buffer = buffer(0);
        buffer.tolerance.limit.packets = tolerated;
        let held = if first == 10 { 10..40 } else { 20..21 };
        let naks = held.filter(|&number| come(&mut buffer, number)).count();
        assert_eq!(naks, usize::from(first == 10 || tolerated == 0));
        assert_eq!(buffer.nak_at() == NEVER, naks == 1);
        assert_eq!(fill(&mut buffer, 0, first), 0);
        assert_eq!(buffer.gap, NO_GAP);
    }
}

#[test]
fn the_rest_of_a_gap_has_its_nak_in_time() {
    let mut buffer = buffer(0);
    buffer.tolerance.limit.packets = 4;
    assert!(!come(&mut buffer, 20));
    buffer.advance(NOW, psn(7));
    assert!(!buffer.stopped(NOW), "its time is set");
    let at = buffer.nak_at();
    assert!(!buffer.take_delayed_nak(Instant(at.0 - 1), psn(7)));
    assert!(buffer.take_delayed_nak(at, psn(7)) && buffer.nak_at() == NEVER);
    assert_eq!(fill(&mut buffer, 7, 20), 0);
}

#[test]
fn a_further_gap_has_its_nak_when_much_was_executed_before_it() {
    let mut buffer = buffer(0);
    for number in [1, 2, 3, 5] {
        come(&mut buffer, number);
    }
    assert!((1..4).all(|number| buffer.next(NOW, psn(number)).is_some()));
    buffer.advance(NOW, psn(4));
    assert!(buffer.stopped(NOW) && !buffer.stopped(NOW));
}

#[test]
fn a_gap_that_gets_lost_again_has_a_nak_in_time_when_naks_are_delayed() {
    let mut buffer = buffer(0);
    buffer.tolerance.limit.packets = 2;
    assert!(!come(&mut buffer, 1) && !come(&mut buffer, 2) && come(&mut buffer, 3));
    assert!(!come(&mut buffer, 1) && !come(&mut buffer, 2));
    assert_eq!(buffer.nak_at(), NOW + buffer.tolerance.wait());
    let at = buffer.nak_at();
    assert!(buffer.take_delayed_nak(at, psn(0)));
    assert!(!come(&mut buffer, 3) && buffer.nak_at() == NEVER, "one for each repetition");
    // The next repetition has more packets.
    assert!(!come(&mut buffer, 1) && !come(&mut buffer, 2) && come(&mut buffer, 3));
    assert_eq!(buffer.nak_at(), NEVER);
}

#[test]
fn a_gap_is_known_when_its_packets_gave_way() {
    let mut buffer = buffer(0);
    assert!(come(&mut buffer, 10) && !come(&mut buffer, 11));
    assert_eq!((buffer.evict(), buffer.held()), (2, Held::default()));
    assert!(!come(&mut buffer, 12), "it had its NAK");
    buffer.advance(NOW, psn(5));
    assert!(!buffer.stopped(NOW) && !come(&mut buffer, 13));
    // Without anything that is held, what is missing next is another gap.
    buffer.evict();
    buffer.advance(NOW, psn(6));
    assert!(come(&mut buffer, 8));
}

#[test]
fn a_lost_packet_that_comes_twice_does_not_make_it_tolerant() {
    // It comes after a round trip of many packets, or of much time.
    for (count, time) in [(40, 0), (2, 600_000)] {
        let mut buffer = buffer(0);
        for number in 1..=count {
            come(&mut buffer, number);
        }
        buffer.advance(Instant(NOW.0 + time), psn(count + 1));
        buffer.repeated(psn(0), false);
        assert_eq!(buffer.tolerance, Tolerance::new(NOW));
    }
    // The round trip is short, and the peer goes back twice.
    let mut buffer = buffer(0);
    assert!(come(&mut buffer, 1) && !come(&mut buffer, 2));
    buffer.advance(NOW, psn(3));
    for number in [1, 2, 0, 1, 2] {
        buffer.repeated(psn(number), false);
    }
    assert_eq!(buffer.tolerance.packets(), 0);
}
