//! Shares of the uplink's room.
//!
//! They keep a guest from taking the room that other guests and the engine need for their packets.

use vrdma_transport::Instant;

/// Credit of a frame. A unit is less than a frame, because a share may be.
const FRAME: i64 = 256;
/// Nanoseconds after which an uplink without room counts as stuck.
///
/// Frames to it are lost then, so that frames between guests go on.
const STUCK: u64 = 1_000_000;

/// How many frames each guest may send to the uplink.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Credit of each guest. If negative, it is a debt.
    credit: Vec<i64>,
    /// Since when the uplink has no room.
    full_since: Option<Instant>,
    /// Whether guests may send without limit.
    unlimited: bool,
}

impl Shares {
    /// Adds a guest.
    pub fn add(&mut self) {
        self.credit.push(0);
    }

    /// Begins a round.
    ///
    /// The uplink has room for `room` frames; `None` if it drops frames. `guests` guests have
    /// frames to send. The engine counts as one more.
    pub fn begin(&mut self, now: Instant, room: Option<usize>, guests: usize) {
        let full = room == Some(0);
        let since = full.then(|| self.full_since.unwrap_or(now));
        self.full_since = since;
        self.unlimited = room.is_none() || since.is_some_and(|since| now.0.saturating_sub(since.0) >= STUCK);
        let share = room.unwrap_or(0) as i64 * FRAME / (guests as i64 + 1);
        for credit in &mut self.credit {
            // Unused credit of whole frames expires.
            *credit = (*credit).min(FRAME - 1) + share;
        }
    }

    /// Whether a guest may send a frame to the uplink.
    pub fn may_send(&self, guest: usize) -> bool {
        self.unlimited || self.credit[guest] >= FRAME
    }

    /// Charges a guest for frames sent to the uplink.
    pub fn sent(&mut self, guest: usize, frames: u64) {
        if !self.unlimited {
            self.credit[guest] -= frames as i64 * FRAME;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(guests: usize) -> Shares {
        let mut shares = Shares::default();
        (0..guests).for_each(|_| shares.add());
        shares
    }

    /// Sends as many frames as a guest may, at most `most`.
    fn send(shares: &mut Shares, guest: usize, most: u64) -> u64 {
        let mut sent = 0;
        while sent < most && shares.may_send(guest) {
            shares.sent(guest, 1);
            sent += 1;
        }
        sent
    }

    #[test]
    fn guests_and_the_engine_have_equal_parts_of_the_room() {
        let mut shares = shares(3);
        shares.begin(Instant(0), Some(40), 3);
        assert_eq!([0, 1, 2].map(|guest| send(&mut shares, guest, 1000)), [10, 10, 10]);
        // Unused room does not accumulate.
        for _ in 0..5 {
            shares.begin(Instant(0), Some(20), 1);
        }
        assert_eq!(send(&mut shares, 1, 1000), 10);
    }

    #[test]
    fn shares_of_less_than_a_frame_add_up() {
        let mut shares = shares(2);
        let mut sent = [0; 2];
        for _ in 0..300 {
            shares.begin(Instant(0), Some(1), 2);
            (0..2).for_each(|guest| sent[guest] += send(&mut shares, guest, 1000));
        }
        assert!(sent.iter().all(|sent| (98..=100).contains(sent)), "{sent:?}");
    }

    #[test]
    fn what_a_long_frame_took_too_much_is_missing_later() {
        let mut shares = shares(1);
        shares.begin(Instant(0), Some(10), 1);
        shares.sent(0, 44);
        let turns = (0..100).take_while(|_| {
            shares.begin(Instant(0), Some(10), 1);
            !shares.may_send(0)
        });
        assert_eq!(turns.count(), 7);
    }

    #[test]
    fn who_finds_no_room_waits_for_a_while() {
        let mut shares = shares(1);
        shares.begin(Instant(0), Some(0), 1);
        assert!(!shares.may_send(0));
        shares.begin(Instant(STUCK - 1), Some(0), 1);
        assert!(!shares.may_send(0));
        shares.begin(Instant(STUCK), Some(0), 1);
        assert!(shares.may_send(0), "it takes nothing");
        shares.begin(Instant(STUCK), Some(2), 1);
        assert_eq!(send(&mut shares, 0, 10), 1);
        shares.begin(Instant(STUCK), None, 1);
        assert_eq!(send(&mut shares, 0, 10), 10, "without a link all are lost at once");
    }
}
