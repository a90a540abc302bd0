//! Flow rules of a NIC, which steer frames for a guest to the queue of its worker.

use super::table::WorkerOf;
use crate::port::Queues;

/// The numbers of flow rules that were made and refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub made: u64,
    pub refused: u64,
}

impl Rules {
    /// Requests a rule for each MAC address of each guest.
    ///
    /// Refusals are logged once, with the driver's words for the first.
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
