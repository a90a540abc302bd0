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

#[test]
fn there_is_one_nak_for_a_gap_and_one_more_for_each_repetition() {
    let mut buffer = buffer(0);
    assert!(come(&mut buffer, 1));
    assert!(!come(&mut buffer, 2) && !come(&mut buffer, 3));
    // The peer went back, and the gap got lost again.
    assert!(come(&mut buffer, 1));
    assert!(!come(&mut buffer, 2) && !come(&mut buffer, 3) && !come(&mut buffer, 4));
    assert!(come(&mut buffer, 1) && !come(&mut buffer, 3));
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
        buffer.repeated(psn(number));
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
    // The first late packets cost a NAK. That they were late is known when both have come again.
    for (late, tolerance) in [(0, 0), (3, 4)] {
        assert!(come(&mut buffer, late + 1) && !come(&mut buffer, late + 2));
        buffer.advance(NOW, psn(late + 3));
        buffer.repeated(psn(late));
        assert_eq!(buffer.tolerance.packets(), tolerance);
    }
    assert!(!come(&mut buffer, 7) && !come(&mut buffer, 8));
    assert_eq!(buffer.nak_at(), NOW + buffer.tolerance.wait(), "the NAK for a gap without more packets");
    assert!(!buffer.take_delayed_nak(NOW, psn(6)));
    let later = NOW + buffer.tolerance.wait();
    assert!(buffer.take_delayed_nak(later, psn(6)) && buffer.nak_at() == NEVER);
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
        buffer.repeated(psn(number));
    }
    assert_eq!(buffer.tolerance.packets(), 0);
}

#[test]
fn a_probe_that_fills_a_gap_does_not_make_it_tolerant() {
    let mut buffer = buffer(0);
    for gap in (0..80).step_by(4) {
        assert!(come(&mut buffer, gap + 1) && !come(&mut buffer, gap + 2));
        buffer.advance(NOW, psn(gap + 3));
        // Each second gap is filled by a probe before the peer goes back because of the NAK.
        let first = if gap % 8 == 0 { gap } else { gap + 1 };
        (first..gap + 3).for_each(|number| buffer.repeated(psn(number)));
        buffer.advance(NOW, psn(gap + 4));
        assert_eq!(buffer.tolerance, Tolerance::new(NOW));
    }
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
        buffer.repeated(psn(0));
        assert_eq!(buffer.tolerance, Tolerance::new(NOW));
    }
    // The round trip is short, and the peer goes back twice.
    let mut buffer = buffer(0);
    assert!(come(&mut buffer, 1) && !come(&mut buffer, 2));
    buffer.advance(NOW, psn(3));
    for number in [1, 2, 0, 1, 2] {
        buffer.repeated(psn(number));
    }
    assert_eq!(buffer.tolerance.packets(), 0);
}
