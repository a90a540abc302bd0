//! Search for the receives of messages that arrive out of order, beyond a gap. Pure state, without
//! I/O.

use crate::collections::pool::{At, List};
use vrdma_wire::iwarp::num::Msn;

/// Most receives that one search passes.
pub(crate) const MOST: u32 = 1024;
/// Steps from one receive to the next that each message earns.
const EARNED: u32 = 16;
/// Bytes of a message that earn another step. To copy them takes about as long as a step.
const BYTES: u32 = 8;

/// Finds the receives of messages that arrive out of order.
///
/// Messages mostly arrive one behind the other, so a search goes on from the last receive that was
/// found. If the messages of a peer jump about, their bytes earn the steps. A few bytes therefore
/// never cost a walk through a long queue.
pub(crate) struct Search {
    /// The last message that was found and is still beyond the gap, and its receive.
    last: Option<(Msn, At)>,
    /// Steps that may still be taken.
    steps: u32,
}

impl Search {
    pub(crate) fn new() -> Search {
        Search { last: None, steps: MOST }
    }

    /// Returns the receive of a message `msn` with `length` bytes of payload.
    ///
    /// The first receive of `queue` is that of the message `next`. `after` returns the receive
    /// behind another one. Returns `None` if the receive does not exist, or would take too many
    /// steps.
    pub(crate) fn find(
        &mut self,
        (next, msn): (Msn, Msn),
        length: u32,
        queue: &List,
        mut after: impl FnMut(At) -> Option<At>,
    ) -> Option<At> {
        self.steps = MOST.min(self.steps + EARNED + length / BYTES);
        let before = |msn: Msn| msn.0.wrapping_sub(next.0);
        let last = self.last.filter(|(last, _)| before(*last) <= before(msn));
        let (start, at) = last.map_or((0, queue.head()?), |(last, at)| (before(last), at));
        let distance = before(msn) - start;
        self.steps = self.steps.checked_sub(distance)?;
        let at = (0..distance).try_fold(at, |at, _| after(at))?;
        self.last = Some((msn, at));
        Some(at)
    }

    /// Forgets the receive of a message that is no longer beyond the gap. The receive has ended.
    pub(crate) fn passed(&mut self, msn: Msn) {
        self.last = self.last.filter(|(last, _)| *last != msn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::pool::Pool;

    /// Makes a queue whose values are their positions.
    fn queue(length: u32) -> (Pool<u32>, List) {
        let (mut pool, mut list) = (Pool::new(), List::EMPTY);
        (0..length).for_each(|number| pool.push(&mut list, number));
        (pool, list)
    }

    #[test]
    fn messages_one_behind_the_other_are_found_however_many() {
        // Numbers wrap.
        let next = Msn(u32::MAX - 10);
        let (pool, list) = queue(3 * MOST);
        let mut search = Search::new();
        for number in 0..3 * MOST {
            let mut steps = 0;
            let after = |at| {
                steps += 1;
                pool.after(at)
            };
            let at = search.find((next, next.add(number)), 0, &list, after).unwrap();
            assert_eq!((*pool.get(at), steps), (number, number.min(1)));
        }
        assert_eq!(search.find((next, next.add(3 * MOST)), 0, &list, |at| pool.after(at)), None);
    }

    #[test]
    fn a_peer_that_jumps_about_has_steps_by_what_it_sends() {
        let next = Msn::FIRST;
        let (pool, list) = queue(MOST);
        let mut search = Search::new();
        let (mut steps, mut found) = (0, 0);
        for number in 0..1000 {
            let after = |at| {
                steps += 1;
                pool.after(at)
            };
            let msn = next.add(if number % 2 == 0 { 900 } else { 899 });
            if let Some(at) = search.find((next, msn), 80, &list, after) {
                assert_eq!(*pool.get(at), msn.0 - next.0);
                found += 1;
            }
        }
        assert!(found > 0 && steps <= MOST + 1000 * (EARNED + 80 / BYTES), "{steps} steps for {found}");
    }

    #[test]
    fn the_receive_of_a_message_whose_turn_has_passed_is_not_used_again() {
        let (mut pool, mut list) = queue(4);
        let mut search = Search::new();
        let mut next = Msn::FIRST;
        let find = |search: &mut Search, next: Msn, msn, pool: &Pool<u32>, list: &List| {
            search.find((next, msn), 0, list, |at| pool.after(at)).map(|at| *pool.get(at))
        };
        assert_eq!(find(&mut search, next, next, &pool, &list), Some(0));
        // The node of the receive now belongs to another one.
        pool.pop(&mut list).unwrap();
        search.passed(next);
        pool.push(&mut list, 9);
        // So far on, numbers have wrapped. The number of the first message may then come again.
        next = next.add(u32::MAX - 1);
        assert_eq!(find(&mut search, next, Msn::FIRST, &pool, &list), Some(3));
    }
}
