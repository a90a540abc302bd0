//! Whether a frame to a guest is for its TCP in this process, and comes from whom it says.
//!
//! Whoever listens there, and programs that let peers in by address, believe the source of a
//! connection. So that has to be an address of its sender, as with RoCE: of a guest's netdev one
//! that the guest may use, and of other hosts none that a guest here has. All other TCP is the
//! netdev's, whatever its source.

use super::inside::Inside;
use super::switch::Switch;
use super::verdict::{SwitchPort, Verdict};
use crate::allowed::FrameVlan;
use vrdma_wire::eth::Eth;
use vrdma_wire::head::{Ends, Head, Kind};
use vrdma_wire::num::{Mac, VlanId};

/// A MAC address that no guest has.
const NOBODY: Mac = Mac([0; 6]);

/// Where a frame with these headers goes, which came from there. `verdict` is the switch's: it is
/// changed only for a frame to a guest. A frame that is fragmented, or has IP options or extension
/// headers, never goes to a TCP. Nor does one to an address that is another guest's.
pub fn steer(
    switch: &mut Switch,
    have_tcp: &[bool],
    verdict: Verdict,
    (headers, from): (Option<&Head>, SwitchPort),
    inside: &mut dyn Inside,
) -> Verdict {
    let Verdict::To(SwitchPort::Guest(guest)) = verdict else { return verdict };
    if !have_tcp[guest] {
        return verdict;
    }
    let Some(headers @ Head { eth, kind: Kind::Tcp(ends) }) = headers else { return verdict };
    let is_anothers = switch.listed().is_anothers(eth.dst, FrameVlan::of(eth), ends.dst);
    if is_anothers || !inside.takes(guest, headers) {
        return verdict;
    }
    if is_its_senders(switch, from, (eth, ends), inside) {
        Verdict::To(SwitchPort::Tcp(guest))
    } else {
        switch.refuse_spoofed_tcp()
    }
}

/// Whether the source of a segment is an address of who sent it, as far as the configuration and
/// guests' GIDs say whose it is.
fn is_its_senders(
    switch: &Switch,
    from: SwitchPort,
    (eth, ends): (&Eth, &Ends),
    inside: &mut dyn Inside,
) -> bool {
    let (vlan, outer) = (FrameVlan::of(eth), VlanId::of(eth.vlan));
    let sender = switch.sender(from, eth.src);
    let mac = sender.map_or(NOBODY, |sender| sender.mac);
    // The destination is a guest's of this worker: nobody else has it.
    ends.src != ends.dst
        && sender.is_none_or(|sender| sender.may_speak_as(ends.src, outer))
        && !switch.listed().is_anothers(mac, vlan, ends.src)
        && inside.holder(outer, ends.src).is_none_or(|holder| holder == mac)
}
