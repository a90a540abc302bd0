//! Multicast groups of one device, and their members among its QPs (IBTA 10.5).

mod save;

use crate::base::error::Error;
use crate::verbs::limits::Limits;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use vrdma_wire::num::{Gid, Qpn};

/// Memberships of a device's QPs.
#[derive(Default)]
pub(crate) struct Groups {
    /// Memberships by group, then by QP.
    members: BTreeSet<(Gid, Qpn)>,
    /// Number of members of each group; never 0.
    sizes: BTreeMap<Gid, u32>,
    /// Number of groups of each QP; never 0.
    attached: BTreeMap<Qpn, u32>,
}

impl Groups {
    /// Adds a member, and returns whether it was none before. Returns `NoResources` beyond a limit.
    pub(crate) fn attach(&mut self, mgid: Gid, qpn: Qpn, limits: &Limits) -> Result<bool, Error> {
        if self.members.contains(&(mgid, qpn)) {
            return Ok(false);
        }
        let (groups, members) = (self.sizes.len(), self.members.len());
        let size = self.sizes.get(&mgid).copied().unwrap_or(0);
        if size == 0 && groups >= limits.max_mcast_grp as usize
            || size >= limits.max_mcast_qp_attach
            || members >= limits.max_total_mcast_qp_attach as usize
        {
            return Err(Error::NoResources);
        }
        self.members.insert((mgid, qpn));
        *self.sizes.entry(mgid).or_insert(0) += 1;
        *self.attached.entry(qpn).or_insert(0) += 1;
        Ok(true)
    }

    /// Removes a member. Returns `Invalid` if it was none.
    pub(crate) fn detach(&mut self, mgid: Gid, qpn: Qpn) -> Result<(), Error> {
        if !self.members.remove(&(mgid, qpn)) {
            return Err(Error::Invalid);
        }
        one_less(&mut self.sizes, mgid);
        one_less(&mut self.attached, qpn);
        Ok(())
    }

    /// Returns the groups of a QP.
    pub(crate) fn of(&self, qpn: Qpn) -> Vec<Gid> {
        let count = self.attached.get(&qpn).copied().unwrap_or(0);
        let groups = self.groups().filter(|&mgid| self.members.contains(&(mgid, qpn)));
        groups.take(count as usize).collect()
    }

    /// Whether a group has members.
    pub(crate) fn contains(&self, mgid: Gid) -> bool {
        self.sizes.contains_key(&mgid)
    }

    /// Returns the first member of a group with a number above `after`, or the first member.
    pub(crate) fn next(&self, mgid: Gid, after: Option<Qpn>) -> Option<Qpn> {
        let first = after.map_or(Included((mgid, Qpn::default())), |qpn| Excluded((mgid, qpn)));
        let (group, qpn) = *self.members.range((first, Unbounded)).next()?;
        (group == mgid).then_some(qpn)
    }

    /// Iterates over groups with members.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Gid> + Clone {
        self.sizes.keys().copied()
    }

    /// Returns the number of members of all groups together.
    pub(crate) fn len(&self) -> u32 {
        self.members.len() as u32
    }
}

/// Lowers the count of `key`, and removes it at 0.
fn one_less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    let count = counts.get_mut(&key).expect("what has a member is counted");
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(last: u8) -> Gid {
        Gid::from_ipv4([224, 0, 0, last])
    }

    fn qpn(number: u32) -> Qpn {
        Qpn::new(number).unwrap()
    }

    #[test]
    fn members_are_found_in_order_and_in_their_group_alone() {
        let (mut groups, limits) = (Groups::default(), Limits::default());
        for (last, number) in [(1, 9), (2, 5), (1, 3)] {
            assert_eq!(groups.attach(group(last), qpn(number), &limits), Ok(true));
        }
        assert_eq!(groups.attach(group(1), qpn(9), &limits), Ok(false), "it is one already");
        let next = |last, after: Option<u32>| groups.next(group(last), after.map(qpn)).map(Qpn::number);
        let ways = [None, Some(3), Some(4), Some(9)];
        assert_eq!(ways.map(|after| next(1, after)), [Some(3), Some(9), Some(9), None]);
        assert_eq!([None, Some(5)].map(|after| next(2, after)), [Some(5), None]);
        assert_eq!(groups.len(), 3);
        assert_eq!(groups.detach(group(1), qpn(5)), Err(Error::Invalid));
        assert_eq!(groups.detach(group(1), qpn(3)), Ok(()));
        assert_eq!((groups.of(qpn(3)), groups.of(qpn(9))), (vec![], vec![group(1)]));
        assert_eq!(groups.detach(group(1), qpn(9)), Ok(()));
        assert_eq!((groups.contains(group(1)), groups.contains(group(2))), (false, true));
    }

    #[test]
    fn each_limit_holds() {
        let (mut groups, full) = (Groups::default(), Err(Error::NoResources));
        let limits = Limits {
            max_mcast_grp: 3,
            max_mcast_qp_attach: 2,
            max_total_mcast_qp_attach: 4,
            ..Limits::default()
        };
        let mut attach = |last, number| groups.attach(group(last), qpn(number), &limits);
        assert_eq!([2, 3].map(|number| attach(1, number)), [Ok(true); 2]);
        assert_eq!(attach(1, 4), full, "the group is full");
        assert_eq!(attach(1, 3), Ok(false), "but who is in it may say so again");
        assert_eq!([2, 3].map(|last| attach(last, 2)), [Ok(true); 2]);
        assert_eq!(attach(2, 3), full, "all together");
        groups.detach(group(1), qpn(3)).unwrap();
        let mut attach = |last, number| groups.attach(group(last), qpn(number), &limits);
        assert_eq!(attach(4, 2), full, "a fourth group");
        assert_eq!(attach(2, 3), Ok(true));
    }
}
