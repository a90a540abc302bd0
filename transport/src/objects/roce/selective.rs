//! What of a loss is sent again: one packet, or everything from it on. Pure state.
//!
//! A peer that holds what comes ahead of a gap needs only the packet of the gap. A peer that drops
//! it needs everything again (go-back-N). Peers do not say which they do, but their answer to the
//! packet of the gap shows it. It covers nothing more, or what came behind the gap, too.

mod save;

use crate::objects::roce::psn::{HALF, ahead};
use vrdma_wire::num::Psn;

/// What a peer does with packets that come ahead of a gap, as far as it has shown that.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Ahead {
    #[default]
    Unknown,
    /// The peer holds them.
    Held,
    /// The peer drops them.
    Dropped,
}

/// A packet that was sent again alone, and has no answer so far.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Alone {
    /// Its PSN.
    first: Psn,
    /// The PSN behind it.
    end: Psn,
    /// The PSN that was next when it was sent.
    next: Psn,
    /// Whether the answer is a response of its own. What the peer has of the packets behind it
    /// follows in others.
    has_response: bool,
}

/// What a QP knows of the way in which its peer handles losses.
#[derive(Debug, Default)]
pub(crate) struct SelectiveRepeat {
    pub(crate) ahead: Ahead,
    alone: Option<Alone>,
    /// How often in a row the answer to a packet covered nothing more.
    misses: u8,
    /// Losses since the peer was last tried, if it drops.
    losses: u8,
    /// Packets before this PSN were sent again. Until they are answered, answers do not tell to
    /// which copies they are.
    unclear: Option<Psn>,
}

/// Whether the first request was sent again, if it is a READ. It is executed again then, and READs
/// behind it have to be executed after it (IBTA 10.8.3.3).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReadAgain {
    #[default]
    No,
    /// It was sent again alone.
    Alone,
    /// It was sent again alone, and data of a later READ were dropped because of that.
    Dropped,
    /// All that is outstanding behind it is asked for again, too.
    All,
    /// It has ended. What is behind it is to be asked for again.
    Due,
}

/// What an answer shows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    Nothing,
    /// The peer has nothing behind the packet. The next one may be lost, too.
    NoMore,
    /// The peer seems to have dropped what came ahead of the gap.
    Drops,
}

/// After this many answers in a row that cover nothing more, everything is sent again.
///
/// If several packets in a row are lost, each of them has such an answer.
pub(crate) const MISSES: u8 = 3;

/// After this many losses, a peer that drops is tried again. It may be another program by now.
const LOSSES: u8 = 64;

impl SelectiveRepeat {
    /// Begins with what is known of the peer's host, if the peer has shown nothing so far.
    pub(crate) fn begin_with(&mut self, known: Ahead) {
        if self.ahead == Ahead::Unknown && self.misses == 0 {
            self.ahead = known;
        }
    }

    /// Whether a loss at `una` is to be answered by that packet alone. Otherwise everything is to
    /// be sent again.
    pub(crate) fn is_alone(&mut self, una: Psn) -> bool {
        if self.is_unclear(una) {
            return false;
        }
        match self.ahead {
            Ahead::Unknown | Ahead::Held => true,
            Ahead::Dropped => {
                self.losses += 1;
                if self.losses == LOSSES {
                    (self.ahead, self.misses, self.losses) = (Ahead::Unknown, 0, 0);
                }
                self.ahead == Ahead::Unknown
            }
        }
    }

    /// Whether packets from `una` on were sent again, so that answers do not tell to which copies
    /// they are.
    pub(crate) fn is_unclear(&self, una: Psn) -> bool {
        self.unclear.is_some_and(|end| (1..HALF).contains(&ahead(end, una)))
    }

    /// Records that the packet from `first` to `end` was sent again alone. `next` is the next PSN.
    pub(crate) fn sent(&mut self, first: Psn, end: Psn, next: Psn, has_response: bool) {
        self.alone = Some(Alone { first, end, next, has_response });
    }

    /// Records that everything before `next` is sent again.
    pub(crate) fn all_sent_again(&mut self, next: Psn) {
        (self.alone, self.unclear) = (None, Some(next));
    }

    /// Records an answer that covers all PSNs before `end`.
    #[inline]
    pub(crate) fn answered(&mut self, end: Psn) -> Shown {
        if self.unclear.is_some() && !self.is_unclear(end) {
            self.unclear = None;
        }
        match self.alone {
            None => Shown::Nothing,
            Some(alone) => self.judge(alone, end),
        }
    }

    #[cold]
    fn judge(&mut self, alone: Alone, end: Psn) -> Shown {
        let (covered, length) = (ahead(end, alone.first), ahead(alone.end, alone.first));
        if covered < length || covered >= HALF {
            // It is a part of the response to a READ.
            return Shown::Nothing;
        }
        if covered > length {
            self.alone = None;
            (self.ahead, self.misses, self.losses) = (Ahead::Held, 0, 0);
            return Shown::Nothing;
        }
        self.alone = self.alone.filter(|_| alone.has_response && alone.end != alone.next);
        if alone.end == alone.next {
            return Shown::Nothing;
        }
        if alone.has_response {
            return Shown::Nothing;
        }
        self.misses += 1;
        if self.misses < MISSES {
            return Shown::NoMore;
        }
        self.misses = 0;
        self.ahead = match self.ahead {
            Ahead::Held => Ahead::Unknown,
            Ahead::Unknown | Ahead::Dropped => Ahead::Dropped,
        };
        Shown::Drops
    }
}
