//! Round-trip times in the record.

use super::{Estimate, Known, PEERS, Peers, RoundTrip, Timed, place};
use crate::base::time::NEVER;
use crate::objects::roce::selective::Ahead;
use crate::save::{Violation, deadline, record, to_deadline, to_psn};
use vrdma_wire::num::Gid;

impl Estimate {
    fn save(self) -> record::Estimate {
        let Estimate { srtt, variation } = self;
        record::Estimate { srtt, variation }
    }

    fn restore(record: &record::Estimate) -> Estimate {
        let record::Estimate { srtt, variation } = *record;
        Estimate { srtt, variation }
    }
}

impl RoundTrip {
    /// Returns the record of a QP's round-trip time.
    pub(crate) fn save(&self) -> record::RoundTrip {
        let RoundTrip { estimate, timed, last, samples, least } = *self;
        record::RoundTrip {
            estimate: estimate.map(Estimate::save),
            timed: timed.map(|timed| timed.psn.number()),
            timed_at: timed.and_then(|timed| deadline(timed.at)),
            timed_una: timed.and_then(|timed| timed.una).map(|una| una.number()),
            last,
            samples,
            least,
        }
    }

    /// Restores a QP's round-trip time.
    pub(crate) fn restore(record: &record::RoundTrip) -> Result<RoundTrip, Violation> {
        let at = to_deadline(record.timed_at)?;
        let timed = record.timed.map(to_psn).transpose()?;
        let una = record.timed_una.map(to_psn).transpose()?;
        if timed.is_some() != (at != NEVER) || timed.is_none() && una.is_some() {
            return Err(Violation::Time);
        }
        Ok(RoundTrip {
            estimate: record.estimate.as_ref().map(Estimate::restore),
            timed: timed.map(|psn| Timed { psn, at, una }),
            last: record.last,
            samples: record.samples,
            least: record.least,
        })
    }
}

impl Peers {
    /// Returns the record of a device's peers.
    pub(crate) fn save(&self) -> Vec<record::Peer> {
        let Peers(places) = self;
        let known = places.iter().flatten();
        let record = |(gid, Known { estimate, ahead }): &(Gid, Known)| record::Peer {
            gid: gid.0,
            estimate: estimate.map(Estimate::save),
            ahead: ahead.save(),
        };
        known.map(record).collect()
    }

    /// Restores a device's peers, which are in the order of their places.
    pub(crate) fn restore(record: &[record::Peer]) -> Result<Peers, Violation> {
        let mut peers = Peers::default();
        let mut next = 0;
        for peer in record {
            let gid = Gid(peer.gid);
            if !(next..PEERS).contains(&place(gid)) {
                return Err(Violation::Peers);
            }
            next = place(gid) + 1;
            *peers.change(gid) = Known {
                estimate: peer.estimate.as_ref().map(Estimate::restore),
                ahead: Ahead::restore(peer.ahead),
            };
        }
        Ok(peers)
    }
}
