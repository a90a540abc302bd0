//! Identifiers of iWARP.

/// A steering tag: peers name a memory region by it (RFC 5041).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stag(pub u32);

/// The sequence number of an untagged DDP message in its queue (RFC 5041).
///
/// It has 32 bits and wraps. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msn(pub u32);

impl Msn {
    /// MSN of a queue's first message.
    pub const FIRST: Msn = Msn(1);

    /// Returns the MSN that is `messages` later.
    #[must_use]
    pub const fn add(self, messages: u32) -> Msn {
        Msn(self.0.wrapping_add(messages))
    }

    /// Returns how far `self` is ahead of `other`, from -2^31 to 2^31 - 1.
    pub const fn distance(self, other: Msn) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

/// A queue of untagged buffers (RFC 5040, 5.1; RFC 7306). The discriminant is its number, the QN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// SENDs and immediate data.
    Send = 0,
    /// READ requests and atomic requests.
    Request = 1,
    /// TERMINATE.
    Terminate = 2,
    /// Responses of atomics.
    AtomicResponse = 3,
}

impl Queue {
    /// Returns the queue of this number, if RDMAP has one.
    pub const fn from_number(number: u32) -> Option<Queue> {
        Some(match number {
            0 => Queue::Send,
            1 => Queue::Request,
            2 => Queue::Terminate,
            3 => Queue::AtomicResponse,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn msn_wraps() {
        let last = Msn(u32::MAX);
        assert_eq!(last.add(2), Msn::FIRST);
        assert_eq!((last.add(1).distance(last), last.distance(last.add(1))), (1, -1));
    }

    #[test]
    fn queues_and_numbers_agree() {
        for number in 0..4 {
            assert_eq!(Queue::from_number(number).map(|queue| queue as u32), Some(number));
        }
        assert_eq!(Queue::from_number(4), None);
        assert_eq!(Queue::from_number(u32::MAX), None);
    }
}
