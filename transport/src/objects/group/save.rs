//! Multicast groups in the record.

use super::Groups;
use crate::save::{Violation, record, to_qpn};
use crate::verbs::limits::Limits;
use vrdma_wire::num::Gid;

impl Groups {
    /// Returns the record of the groups, in order.
    pub(crate) fn save(&self) -> Vec<record::Group> {
        // The counts follow from the members.
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

    /// Restores groups, for a device with these limits.
    ///
    /// The caller then checks that the members are its QPs, and may be members.
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
        // Each group and each of its members occurs once, and all are in order.
        if groups.save() == records { Ok(groups) } else { Err(Violation::Group) }
    }
}
