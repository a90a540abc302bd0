//! Multicast groups in the record.

use super::Groups;
use crate::save::{Violation, record, to_qpn};
use crate::verbs::limits::Limits;
use vrdma_wire::num::Gid;

impl Groups {
    /// The record of them, in order.
    pub(crate) fn save(&self) -> Vec<record::Group> {
        // The counts are of the members.
        let Groups { members, sizes: _, attached: _ } = self;
        let mut groups: Vec<record::Group> = Vec::new();
        for &(Gid(mgid), qpn) in members {
            match groups.last_mut().filter(|group| group.mgid == mgid) {
                Some(group) => group.members.push(qpn.number()),
                None => groups.push(record::Group { mgid, members: vec![qpn.number()] }),
            }
        }
        groups
    }

    /// From the record, of a device with these limits; whether the members are its QPs, and may be
    /// members, is to be checked still.
    pub(crate) fn restore(records: &[record::Group], limits: &Limits) -> Result<Groups, Violation> {
        let mut groups = Groups::default();
        for record in records {
            let mgid = Gid(record.mgid);
            if !mgid.is_multicast() {
                return Err(Violation::Group);
            }
            for &number in &record.members {
                groups.attach(mgid, to_qpn(number)?, limits).map_err(|_| Violation::Group)?;
            }
        }
        // Each group once, and each member of it; all in order.
        if groups.save() == records { Ok(groups) } else { Err(Violation::Group) }
    }
}
