//! Takes requests from channels. Guests take turns, and so do the channels of each guest.

use super::fetched_requests::TOGETHER;
use super::{BoundChannel, Worker};
use crate::cycles::{self, Stage};
use crate::device::broken::step;
use crate::memory::{MrMemory, fetch_ahead};
use crate::queue::channel::{ChannelError, RequestWords};
use crate::translate::wqe;
use std::ops::Range;
use vrdma_transport::{self as transport, DeviceId, Engine};

/// The most requests taken in one round from the channels of a guest of weight 1.
///
/// The engine limits the cost of the messages that they begin.
pub(super) const BATCH: usize = 64;

/// The number of polls of channels in a round in which nothing else was found so far.
///
/// It is divided by the number of channels. Polling everything else takes longer than polling a
/// channel, and a request would wait meanwhile.
const LOOKS: usize = 8;

impl Worker {
    /// Drains each guest's channels in turn. Returns true if there were any requests.
    ///
    /// If the round is not `busy` so far, it polls again a few times.
    pub(super) fn drain_channels(&mut self, now: transport::Instant, busy: bool) -> bool {
        let looks = if busy { 1 } else { LOOKS / self.channels.len().max(1) };
        (0..looks.max(1)).any(|_| self.drain_guests(now))
    }

    fn drain_guests(&mut self, now: transport::Instant) -> bool {
        let (mut busy, mut first) = (false, 0);
        while let Some(&BoundChannel { device, .. }) = self.channels.get(first) {
            let count = self.channels[first..].iter().take_while(|bound| bound.device == device).count();
            let channels = first..first + count;
            match self.step(step::REQUESTS, device, |worker| worker.drain_guest(device, channels, now)) {
                Some(any) => {
                    busy |= any;
                    first += count;
                }
                // The guest's channels are gone.
                None => busy = true,
            }
        }
        busy
    }

    /// Takes up to [`BATCH`] requests for each unit of a guest's weight from its channels. Returns
    /// true if there were any.
    ///
    /// The next round continues where this one ends.
    fn drain_guest(&mut self, device: DeviceId, channels: Range<usize>, now: transport::Instant) -> bool {
        // The guest may have fewer channels than before.
        let turns = self.channel_turns.of(device);
        let next = channels.start + turns.next.min(channels.len() - 1);
        let batch = BATCH * turns.weight as usize;
        let mut left = batch;
        for index in (next..channels.end).chain(channels.start..next) {
            left -= self.drain_channel(index, left, now);
            if left == 0 {
                let after = if index + 1 == channels.end { 0 } else { index + 1 - channels.start };
                self.channel_turns.of(device).next = after;
                break;
            }
        }
        left < batch
    }

    /// Takes up to `most` requests from a channel, and returns their number.
    ///
    /// A channel that turns out to be broken counts as one request.
    fn drain_channel(&mut self, index: usize, most: usize, now: transport::Instant) -> usize {
        let bound = &mut self.channels[index];
        match bound.channel.refresh() {
            Ok(true) => {}
            Ok(false) => return 0,
            Err(broken) => {
                self.channel_broken(index, broken);
                return 1;
            }
        }
        let (device, owner) = (bound.device, bound.owner);
        // Position of the next request to be measured.
        let mut measured = self.outputs.device(device).latencies.left();
        let (mut taken, mut since) = (0, now);
        self.outputs.gather();
        let result = loop {
            let result = cycles::within(Stage::Fetch, || self.fetch(index, most - taken));
            for at in 0..self.fetched.count {
                let is_measured = taken + at == measured;
                if is_measured {
                    since = self.before_measured();
                }
                self.post(device, owner, at, self.fetched.units[at], now);
                if is_measured {
                    measured += self.measure(device, owner, at, since);
                }
            }
            taken += self.fetched.count;
            if result.is_err() || self.fetched.count < TOGETHER || taken == most {
                break result;
            }
        };
        // A driver that sees its slots free again also sees the completions.
        {
            let _mark = cycles::enter(Stage::Complete);
            self.outputs.publish();
            self.channels[index].channel.publish_used();
        }
        let outstanding = self.engine.outstanding(device);
        let known = self.outputs.device(device);
        known.counters.requests += taken as u64;
        known.latencies.set_left(measured - taken);
        known.peaks.outstanding(outstanding);
        self.requests += taken as u64;
        if let Err(broken) = result {
            self.channel_broken(index, broken);
            return taken.max(1);
        }
        taken
    }

    /// Copies requests out of a channel, at most [`TOGETHER`] and at most `most`.
    ///
    /// It prefetches the QPs that they name, the peers of these QPs, and the keys at the peers. The
    /// copied requests are to be executed whatever is returned.
    ///
    /// # Errors
    /// The channel is broken behind these requests.
    #[inline]
    fn fetch(&mut self, index: usize, most: usize) -> Result<(), ChannelError> {
        let Worker { engine, channels, fetched, .. } = self;
        let BoundChannel { device, channel, .. } = &mut channels[index];
        let mut result = Ok(());
        if fetched.device.replace(*device) != Some(*device) {
            (fetched.qpn, fetched.rkey) = (None, None);
        }
        // One bit for each request that names another QP, or another key, than the previous
        // request.
        let (mut new_qpns, mut new_keys) = (0, 0);
        fetched.count = 0;
        while fetched.count < most.min(TOGETHER) {
            let words = &mut fetched.words[fetched.count];
            match channel.pop(words) {
                Ok(Some(units)) => fetched.units[fetched.count] = units,
                Ok(None) => break,
                Err(broken) => {
                    result = Err(broken);
                    break;
                }
            }
            let (qpn, rkey) = (wqe::qpn(words), wqe::rkey(words));
            if qpn != fetched.qpn {
                fetched.qpn = qpn;
                new_qpns |= 1 << fetched.count;
                if let Some(lines) = qpn.and_then(|qpn| engine.qp_lines(*device, qpn)) {
                    fetch_ahead(lines);
                }
            }
            if rkey.is_some() && rkey != fetched.rkey {
                fetched.rkey = rkey;
                new_keys |= 1 << fetched.count;
            }
            fetched.count += 1;
        }
        if new_qpns | new_keys != 0 {
            fetch_peers(engine, *device, &fetched.words, new_qpns, new_keys);
        }
        result
    }
}

/// Prefetches the peers of the QPs that requests name, and the keys at these peers.
///
/// The lines of the QPs themselves have to be in the cache first.
#[inline(never)]
fn fetch_peers(
    engine: &Engine<MrMemory>,
    device: DeviceId,
    words: &[RequestWords],
    new_qpns: u8,
    new_keys: u8,
) {
    for (at, words) in words.iter().enumerate().filter(|(at, _)| (new_qpns | new_keys) & 1 << at != 0) {
        let Some(peer) = wqe::qpn(words).and_then(|qpn| engine.peer_hint(device, qpn)) else { continue };
        if new_qpns & 1 << at != 0
            && let Some(lines) = engine.peer_lines(peer)
        {
            fetch_ahead(lines);
        }
        if new_keys & 1 << at != 0
            && let Some(lines) = wqe::rkey(words).and_then(|key| engine.key_lines(peer, key))
        {
            fetch_ahead(lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Poll, Qos, Weight};
    use crate::device::DeviceLimits;
    use crate::device::latency::Latencies;
    use crate::memory::tests::memory;
    use crate::memory::{Extent, GuestMemory, Shared};
    use crate::queue::VirtqueueSetup;
    use crate::queue::channel::Channel;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use vrdma_transport::OwnerId;

    /// The number of entries of each channel.
    const SIZE: u16 = 256;
    /// The bytes of memory for each channel.
    const ROOM: u64 = 0x10000;

    /// Returns a channel at `at` with this number of requests, which name no QP.
    fn channel(at: u64, index: u16, requests: u16) -> Channel {
        channel_in(&memory(&[(0, at + ROOM)]), at, index, requests)
    }

    /// Returns a channel as [`channel`] does, in this memory.
    fn channel_in(memory: &Arc<GuestMemory>, at: u64, index: u16, requests: u16) -> Channel {
        let words = Shared::<8>::new(memory, Extent { gpa: at, len: ROOM }).unwrap();
        let slots = at + 0x8000;
        for slot in 0..usize::from(SIZE) {
            words.store64(16 * slot, slots + 64 * slot as u64, Ordering::Relaxed);
            words.store64(16 * slot + 8, 64, Ordering::Relaxed);
            words.store16(0x1004 + 2 * slot, slot as u16, Ordering::Relaxed);
            // A request of one 64-byte unit.
            words.store64(0x8000 + 64 * slot, 1 << 8, Ordering::Relaxed);
        }
        let setup = VirtqueueSetup {
            index,
            size: SIZE,
            desc: at,
            avail: at + 0x1000,
            used: at + 0x2000,
            event_idx: true,
            kick: None,
            call: None,
        };
        let window = Extent { gpa: slots, len: 64 * u64::from(SIZE) };
        let channel = Channel::bind(memory, setup, &[window]).unwrap();
        words.store16(0x1002, requests, Ordering::Release);
        channel
    }

    /// Creates a worker with guests whose channels have these numbers of requests.
    ///
    /// The channels are added in turns of the guests.
    fn worker(guests: &[&[u16]]) -> (Worker, Vec<DeviceId>) {
        let (mut worker, _) = Worker::new(Poll::Always, 1500).unwrap();
        let add = |index: usize| {
            let guest = format!("name=g{index},socket=/none,mac=52:54:00:00:00:{:02x}", index + 1);
            worker.add_guest(guest.parse().unwrap(), DeviceLimits::new(&Config::default())).0
        };
        let ids: Vec<_> = (0..guests.len()).map(add).collect();
        for at in 0..guests.iter().map(|channels| channels.len()).max().unwrap() {
            for (guest, channels) in guests.iter().enumerate() {
                if let Some(&requests) = channels.get(at) {
                    let channel = channel(0, 4 + at as u16, requests);
                    worker.add_channel(ids[guest], OwnerId(at as u32), channel);
                }
            }
        }
        (worker, ids)
    }

    fn taken(worker: &mut Worker, ids: &[DeviceId]) -> Vec<u64> {
        ids.iter().map(|&id| worker.outputs.device(id).counters.requests).collect()
    }

    #[test]
    fn requests_in_front_of_one_that_breaks_the_channel_are_carried_out() {
        for good in [0u16, 1, 7, 8, 9, 20] {
            let memory = memory(&[(0, ROOM)]);
            let slot =
                Shared::<8>::new(&memory, Extent { gpa: 0x8000 + 64 * u64::from(good), len: 64 }).unwrap();
            let channel = channel_in(&memory, 0, 4, 30);
            // A request of no units.
            slot.store64(0, 0, Ordering::Relaxed);
            let (mut worker, ids) = worker(&[&[]]);
            worker.add_channel(ids[0], OwnerId(1), channel);
            assert!(worker.drain_channels(transport::Instant(1), true));
            let counters = &worker.outputs.device(ids[0]).counters;
            // The requests name no QP.
            let seen = (counters.requests, counters.stray_requests, counters.broken_channels);
            assert_eq!(seen, (u64::from(good), u64::from(good), 1));
            assert!(!worker.drain_channels(transport::Instant(1), true));
        }
    }

    #[test]
    fn a_guest_with_many_channels_gets_no_more_than_one_with_one() {
        let (mut worker, ids) = worker(&[&[200; 20], &[200]]);
        for turn in 1..=3 {
            assert!(worker.drain_channels(transport::Instant(1), true));
            assert_eq!(taken(&mut worker, &ids), [turn * BATCH as u64; 2]);
        }
        // After that only the first guest has requests left.
        for turn in 4..10 {
            assert!(worker.drain_channels(transport::Instant(1), true));
            assert_eq!(taken(&mut worker, &ids), [turn * BATCH as u64, 200]);
        }
    }

    #[test]
    fn a_guest_of_weight_3_has_three_times_the_requests_of_one_of_weight_1() {
        let (mut worker, ids) = worker(&[&[250; 4], &[250; 4]]);
        let qos = Qos { weight: Weight::new(3).unwrap(), ..Qos::default() };
        worker.set_qos(ids[1], 1, qos);
        for turn in 1..=5 {
            assert!(worker.drain_channels(transport::Instant(1), true));
            assert_eq!(taken(&mut worker, &ids), [turn * BATCH as u64, 3 * turn * BATCH as u64]);
        }
    }

    #[test]
    fn channels_of_a_guest_take_turns_and_all_come_to_their_end() {
        let (mut worker, ids) = worker(&[&[250, 3, 0, 70, 250, 1], &[5]]);
        let mut turns = 0;
        while worker.drain_channels(transport::Instant(1), true) {
            turns += 1;
        }
        assert_eq!(taken(&mut worker, &ids), [250 + 3 + 70 + 250 + 1, 5]);
        assert_eq!(turns, (250 + 3 + 70 + 250 + 1usize).div_ceil(BATCH));
        assert!(worker.channels.is_sorted_by_key(|bound| bound.device));
    }

    #[test]
    fn requests_to_be_measured_are_counted_over_all_channels_and_rounds() {
        let (mut worker, ids) = worker(&[&[250, 3, 0, 250, 250, 1, 250, 250, 250, 250, 250, 250, 250, 250]]);
        while worker.drain_channels(transport::Instant(1), true) {}
        let taken = taken(&mut worker, &ids)[0] as usize;
        assert!(taken > 2500);
        let mut expected = Latencies::new(ids[0]);
        let mut next = expected.left();
        while next < taken {
            next += expected.step();
        }
        let latencies = &worker.outputs.device(ids[0]).latencies;
        assert_eq!(latencies.left(), next - taken);
        // They name no QP, so nothing is known of their ends.
        assert!(latencies.by_service().is_empty());
    }

    #[test]
    fn a_guest_whose_channels_go_goes_on_with_those_that_are_left() {
        let (mut worker, ids) = worker(&[&[64, 64, 200], &[200]]);
        for _ in 0..2 {
            worker.drain_channels(transport::Instant(1), true);
        }
        for queue in [4, 5] {
            worker.remove_channel(ids[0], queue).unwrap();
        }
        worker.drain_channels(transport::Instant(1), true);
        assert_eq!(taken(&mut worker, &ids), [3 * BATCH as u64; 2]);
        worker.reset_device(ids[1]);
        worker.drain_channels(transport::Instant(1), true);
        assert_eq!(taken(&mut worker, &ids)[0], 4 * BATCH as u64);
    }
}
