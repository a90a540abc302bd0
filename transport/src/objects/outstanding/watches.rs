//! Sends that are watched: somebody measures the time until they end.
//!
//! The time of a watched send is noted beside the queues, because a node of a queue has no room for
//! it. The send itself has a mark in its flags, which are read anyway when it ends.

use super::Requests;
use crate::base::time::Instant;
use crate::collections::pool::List;

impl Requests {
    /// Watches the last send of a queue from this time on, and returns whether there is one.
    ///
    /// Nothing changes if it is watched already, or if there is no room for a note.
    #[cold]
    pub(crate) fn watch_last(&mut self, queue: &List, since: Instant) -> bool {
        let Some(at) = queue.tail() else { return false };
        let flags = &mut self.sends.get_mut(at).send.flags;
        if !flags.is_watched() && self.watches.begin(at, since) {
            flags.watch();
        }
        true
    }

    /// Returns how many sends are watched.
    #[cfg(test)]
    pub(crate) fn num_watched(&self) -> usize {
        self.watches.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::watches::MOST;
    use crate::verbs::request::Payload;
    use crate::verbs::work::Work;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Post(usize),
        Watch(usize),
        Take(usize),
        Append,
        Drop(usize),
        EndDropped(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let queue = 0..2usize;
        prop_oneof![
            6 => queue.clone().prop_map(Step::Post),
            5 => queue.clone().prop_map(Step::Watch),
            4 => queue.clone().prop_map(Step::Take),
            1 => Just(Step::Append),
            1 => queue.prop_map(Step::Drop),
            1 => (0..5usize).prop_map(Step::EndDropped),
        ]
    }

    /// A send as the model knows it: its id, and since when it is watched.
    type Sent = (u32, Option<Instant>);

    proptest! {
        #[test]
        fn each_watched_send_ends_with_its_time(steps in proptest::collection::vec(step(), 0..600)) {
            let mut requests = Requests::new();
            let mut queues = [List::EMPTY; 2];
            let mut model: [VecDeque<Sent>; 2] = Default::default();
            let mut dropped: VecDeque<Sent> = VecDeque::new();
            for (now, step) in (0u32..).zip(steps) {
                match step {
                    Step::Post(at) => {
                        let work = Work::invalid(now);
                        requests.push_send(&mut queues[at], &work, Payload::Sges(&[]));
                        model[at].push_back((now, None));
                    }
                    Step::Watch(at) => {
                        let since = Instant(now.into());
                        let watched = model.iter().flatten().chain(&dropped).filter(|(_, since)| since.is_some());
                        let has_room = watched.count() < MOST;
                        prop_assert_eq!(requests.watch_last(&queues[at], since), !model[at].is_empty());
                        if let Some((_, of_last)) = model[at].back_mut().filter(|(_, of_last)| of_last.is_none() && has_room) {
                            *of_last = Some(since);
                        }
                    }
                    Step::Take(at) => {
                        let taken = requests.take_send(&mut queues[at], |send| send.id);
                        let taken = taken.map(|taken| (taken.watched_since(), taken.end()));
                        prop_assert_eq!(taken.map(|(since, id)| (id, since)), model[at].pop_front());
                    }
                    Step::Append => {
                        let [first, second] = &mut queues;
                        requests.append_sends(first, second);
                        let moved = std::mem::take(&mut model[1]);
                        model[0].extend(moved);
                    }
                    Step::Drop(at) => {
                        requests.drop_queues(&mut queues[at], &mut { List::EMPTY });
                        dropped.append(&mut model[at]);
                    }
                    Step::EndDropped(most) => {
                        requests.end_dropped(&mut { most });
                        dropped.drain(..most.min(dropped.len()));
                    }
                }
                let all = model.iter().flatten().chain(&dropped);
                prop_assert_eq!(requests.num_watched(), all.filter(|(_, since)| since.is_some()).count());
            }
        }
    }

    #[test]
    fn so_many_and_no_more_are_watched() {
        let mut requests = Requests::new();
        let mut queue = List::EMPTY;
        let (watched, more) = (MOST as u32, 10);
        for id in 0..watched + more {
            requests.push_send(&mut queue, &Work::invalid(id), Payload::Sges(&[]));
            assert!(requests.watch_last(&queue, Instant(id.into())));
        }
        for id in 0..watched + more {
            let taken = requests.take_send(&mut queue, |send| send.id).unwrap();
            assert_eq!(taken.watched_since(), (id < watched).then_some(Instant(id.into())));
            assert_eq!(taken.end(), id);
        }
        // There is room again.
        requests.push_send(&mut queue, &Work::invalid(0), Payload::Sges(&[]));
        assert!(requests.watch_last(&queue, Instant(1)) && requests.num_watched() == 1);
        // What is watched stays so from its first time on.
        assert!(requests.watch_last(&queue, Instant(2)));
        let taken = requests.take_send(&mut queue, |_| ()).unwrap();
        assert_eq!(taken.watched_since(), Some(Instant(1)));
        taken.end();
        assert!(!requests.watch_last(&queue, Instant(3)) && requests.num_watched() == 0);
    }
}
