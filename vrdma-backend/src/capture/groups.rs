//! Which multicast groups a guest has joined. Its worker tells that to all workers.

use std::sync::{Arc, RwLock};
use vrdma_wire::num::{Gid, VlanId};

/// The multicast groups of the queue pairs of a guest. Clones are for the same guest.
#[derive(Clone, Debug, Default)]
pub struct JoinedGroups(Arc<RwLock<Joined>>);

#[derive(Debug, Default)]
struct Joined {
    groups: Vec<Gid>,
    /// In which VLANs the guest gets packets to its groups.
    vlans: Vec<VlanId>,
}

impl JoinedGroups {
    /// Sets them. Mostly they are as they were, and then nobody waits.
    pub fn set(
        &self,
        groups: impl Iterator<Item = Gid> + Clone,
        vlans: impl Iterator<Item = VlanId> + Clone,
    ) {
        {
            let known = self.0.read().expect("no thread panics with it");
            if known.groups.iter().copied().eq(groups.clone())
                && known.vlans.iter().copied().eq(vlans.clone())
            {
                return;
            }
        }
        let mut known = self.0.write().expect("no thread panics with it");
        *known = Joined { groups: groups.collect(), vlans: vlans.collect() };
    }

    /// Whether the guest gets packets to a group in a VLAN.
    pub fn contain(&self, group: Gid, vlan: VlanId) -> bool {
        let known = self.0.read().expect("no thread panics with it");
        known.vlans.contains(&vlan) && known.groups.contains(&group)
    }
}
