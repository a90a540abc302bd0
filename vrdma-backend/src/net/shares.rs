//! Shares of the uplink's room.
//!
//! They keep a guest from taking the room that other guests and the engine need for their packets.

use vrdma_transport::Instant;

/// Credit of a frame. A unit is much less than a frame: among thousands of guests of high weights,
/// one of weight 1 has a part of each frame.
const FRAME: i64 = 1 << 20;
/// Nanoseconds after which an uplink without room counts as stuck.
///
/// Frames to it are lost then, so that frames between guests go on.
const STUCK: u64 = 1_000_000;

/// The weights of the guests that have frames to send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitingWeights {
    sum: u32,
    highest: u32,
}

impl WaitingWeights {
    /// Adds a guest of this weight.
    pub fn add(&mut self, weight: u32) {
        self.sum += weight;
        self.highest = self.highest.max(weight);
    }

    /// Whether no guest has frames to send.
    pub fn is_empty(self) -> bool {
        self.sum == 0
    }
}

/// How many frames each guest may send to the uplink.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Credit of each guest. If negative, it is a debt.
    credit: Vec<i64>,
    /// Weight of each guest.
    weights: Vec<u32>,
    /// Since when the uplink has no room.
    full_since: Option<Instant>,
    /// Whether guests may send without limit.
    unlimited: bool,
}

impl Shares {
    /// Adds a guest under its number, which may be that of a removed guest.
    pub fn add(&mut self, guest: usize) {
        let count = self.credit.len().max(guest + 1);
        self.credit.resize(count, 0);
        self.weights.resize(count, 1);
        (self.credit[guest], self.weights[guest]) = (0, 1);
    }

    /// Sets the weight of a guest.
    pub fn set_weight(&mut self, guest: usize, weight: u32) {
        self.weights[guest] = weight;
    }

    /// Returns the weight of a guest.
    pub fn weight(&self, guest: usize) -> u32 {
        self.weights[guest]
    }

    /// Begins a round.
    ///
    /// The uplink has room for `room` frames; `None` if it drops frames. `waiting` has the weights
    /// of the guests that have frames to send. The engine counts as one more guest, which has the
    /// highest weight of all.
    pub fn begin(&mut self, now: Instant, room: Option<usize>, waiting: WaitingWeights) {
        let full = room == Some(0);
        let since = full.then(|| self.full_since.unwrap_or(now));
        self.full_since = since;
        self.unlimited = room.is_none() || since.is_some_and(|since| now.0.saturating_sub(since.0) >= STUCK);
        let room = room.unwrap_or(0) as i64 * FRAME;
        let part = room / i64::from(waiting.sum + waiting.highest).max(1);
        for (credit, weight) in self.credit.iter_mut().zip(&self.weights) {
            // Unused credit of whole frames expires.
            *credit = (*credit).min(FRAME - 1) + part * i64::from(*weight);
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
        (0..guests).for_each(|guest| shares.add(guest));
        shares
    }

    /// Returns what this number of guests of weight 1 have.
    fn waiting(guests: usize) -> WaitingWeights {
        let mut waiting = WaitingWeights::default();
        (0..guests).for_each(|_| waiting.add(1));
        waiting
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
        shares.begin(Instant(0), Some(40), waiting(3));
        assert_eq!([0, 1, 2].map(|guest| send(&mut shares, guest, 1000)), [10, 10, 10]);
        // Unused room does not accumulate.
        for _ in 0..5 {
            shares.begin(Instant(0), Some(20), waiting(1));
        }
        assert_eq!(send(&mut shares, 1, 1000), 10);
    }

    #[test]
    fn weights_divide_the_room_and_the_engine_has_as_much_as_the_heaviest() {
        let mut shares = shares(2);
        shares.set_weight(1, 3);
        let mut waiting = WaitingWeights::default();
        (0..2).for_each(|guest| waiting.add(shares.weight(guest)));
        let mut sent = [0; 2];
        for _ in 0..1000 {
            shares.begin(Instant(0), Some(20), waiting);
            (0..2).for_each(|guest| sent[guest] += send(&mut shares, guest, 1000));
        }
        // 20 frames in 7 parts, of which the engine has 3.
        assert!(sent[0].abs_diff(1000 * 20 / 7) < 20 && sent[1].abs_diff(1000 * 60 / 7) < 20, "{sent:?}");
    }

    #[test]
    fn shares_of_less_than_a_frame_add_up() {
        let mut shares = shares(2);
        let mut sent = [0; 2];
        for _ in 0..300 {
            shares.begin(Instant(0), Some(1), waiting(2));
            (0..2).for_each(|guest| sent[guest] += send(&mut shares, guest, 1000));
        }
        assert!(sent.iter().all(|sent| (98..=100).contains(sent)), "{sent:?}");
    }

    #[test]
    fn a_guest_of_weight_1_among_many_of_weight_100_has_its_part_of_little_room() {
        let mut shares = shares(101);
        let mut waiting = WaitingWeights::default();
        for guest in 0..101 {
            shares.set_weight(guest, if guest == 0 { 1 } else { 100 });
            waiting.add(shares.weight(guest));
        }
        let mut sent = 0;
        for _ in 0..101_010 {
            shares.begin(Instant(0), Some(1), waiting);
            sent += send(&mut shares, 0, 1000);
        }
        // One part of 10,101, of which the engine has 100.
        assert!((9..=10).contains(&sent), "{sent}");
    }

    #[test]
    fn what_a_long_frame_took_too_much_is_missing_later() {
        let mut shares = shares(1);
        shares.begin(Instant(0), Some(10), waiting(1));
        shares.sent(0, 44);
        let turns = (0..100).take_while(|_| {
            shares.begin(Instant(0), Some(10), waiting(1));
            !shares.may_send(0)
        });
        assert_eq!(turns.count(), 7);
    }

    #[test]
    fn who_finds_no_room_waits_for_a_while() {
        let mut shares = shares(1);
        shares.begin(Instant(0), Some(0), waiting(1));
        assert!(!shares.may_send(0));
        shares.begin(Instant(STUCK - 1), Some(0), waiting(1));
        assert!(!shares.may_send(0));
        shares.begin(Instant(STUCK), Some(0), waiting(1));
        assert!(shares.may_send(0), "it takes nothing");
        shares.begin(Instant(STUCK), Some(2), waiting(1));
        assert_eq!(send(&mut shares, 0, 10), 1);
        shares.begin(Instant(STUCK), None, waiting(1));
        assert_eq!(send(&mut shares, 0, 10), 10, "without a link all are lost at once");
    }
}
