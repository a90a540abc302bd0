//! Flow rules of a NIC: frames to a guest come to the queue of its worker.

use super::table::WorkerOf;
use crate::port::Queues;

/// How many there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub made: u64,
    pub refused: u64,
}

impl Rules {
    /// Asks for a rule for each guest's addresses. What is refused is said once, in the driver's
    /// words.
    pub fn make(queues: &mut dyn Queues, table: &WorkerOf) -> Rules {
        let (mut rules, mut why) = (Rules::default(), None);
        for (mac, worker) in table.addresses() {
            match queues.steer(mac, worker) {
                Ok(()) => rules.made += 1,
                Err(error) => {
                    rules.refused += 1;
                    why.get_or_insert(error);
                }
            }
        }
        if let Some(error) = why {
            log::warn!(
                "uplink: {} of {} flow rules are refused ({error:#}): frames to those addresses that come to the queue of another worker are handed over",
                rules.refused,
                rules.made + rules.refused
            );
        }
        rules
    }
}
