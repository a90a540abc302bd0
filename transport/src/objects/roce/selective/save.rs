//! Selective repeat in the record.

use super::{Ahead, Alone, LOSSES, MISSES, ReadAgain, SelectiveRepeat};
use crate::save::{Violation, record, to_psn};
use vrdma_wire::num::Psn;

impl Ahead {
    /// Returns the record of what a peer does.
    pub(crate) fn save(self) -> record::Ahead {
        match self {
            Ahead::Unknown => record::Ahead::Unknown,
            Ahead::Held => record::Ahead::Held,
            Ahead::Dropped => record::Ahead::Dropped,
        }
    }

    /// Restores what a peer does.
    pub(crate) fn restore(record: record::Ahead) -> Ahead {
        match record {
            record::Ahead::Unknown => Ahead::Unknown,
            record::Ahead::Held => Ahead::Held,
            record::Ahead::Dropped => Ahead::Dropped,
        }
    }
}

impl ReadAgain {
    /// Returns the record of what was sent again.
    pub(crate) fn save(self) -> record::ReadAgain {
        match self {
            ReadAgain::No => record::ReadAgain::No,
            ReadAgain::Alone => record::ReadAgain::Alone,
            ReadAgain::Dropped => record::ReadAgain::Dropped,
            ReadAgain::All => record::ReadAgain::All,
            ReadAgain::Due => record::ReadAgain::Due,
        }
    }

    /// Restores what was sent again.
    pub(crate) fn restore(record: record::ReadAgain) -> ReadAgain {
        match record {
            record::ReadAgain::No => ReadAgain::No,
            record::ReadAgain::Alone => ReadAgain::Alone,
            record::ReadAgain::Dropped => ReadAgain::Dropped,
            record::ReadAgain::All => ReadAgain::All,
            record::ReadAgain::Due => ReadAgain::Due,
        }
    }
}

impl SelectiveRepeat {
    /// Returns the record of what a QP knows.
    pub(crate) fn save(&self) -> record::SelectiveRepeat {
        let SelectiveRepeat { ahead, alone, misses, losses, unclear } = *self;
        let alone = alone.map(|Alone { first, end, next, has_response }| record::Alone {
            first: first.number(),
            end: end.number(),
            next: next.number(),
            has_response,
        });
        let unclear = unclear.map(Psn::number);
        record::SelectiveRepeat { ahead: ahead.save(), alone, misses, losses, unclear }
    }

    /// Restores what a QP knows.
    pub(crate) fn restore(record: &record::SelectiveRepeat) -> Result<SelectiveRepeat, Violation> {
        let record::SelectiveRepeat { ahead, alone, misses, losses, unclear } = *record;
        let alone = alone.map(|record::Alone { first, end, next, has_response }| {
            Ok(Alone { first: to_psn(first)?, end: to_psn(end)?, next: to_psn(next)?, has_response })
        });
        if losses >= LOSSES || misses >= MISSES {
            return Err(Violation::Probe);
        }
        let (ahead, unclear) = (Ahead::restore(ahead), unclear.map(to_psn).transpose()?);
        Ok(SelectiveRepeat { ahead, alone: alone.transpose()?, misses, losses, unclear })
    }
}
