//! Finds out whether a frame to a guest is for its own TCP in this process.
//!
//! Listeners, and programs that admit peers by address, trust the source of a connection. So the
//! source has to be an address of the sender, as with RoCE. A guest's netdev may only use addresses
//! of the guest. Another host may not use an address of a local guest. All other TCP is for the
//! netdev, whatever its source.

use super::inside::Inside;
use super::switch::Switch;
use super::verdict::{SwitchPort, Verdict};
use crate::allowed::FrameVlan;
use vrdma_wire::eth::Eth;
use vrdma_wire::head::{Endpoints, FrameKind, Head};
use vrdma_wire::num::{Mac, VlanId};

/// A MAC address that no guest has.
const NOBODY: Mac = Mac([0; 6]);

/// Decides whether a frame goes to a guest's own TCP.
///
/// `verdict` is the switch's decision. It changes only for a frame to a guest. A fragmented frame,
/// or one with IP options or extension headers, never goes to a TCP. Neither does a frame to
/// another guest's address.
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
    let Some(headers @ Head { eth, kind: FrameKind::Tcp(ends) }) = headers else { return verdict };
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

/// Whether the source of a segment is an address of its sender.
///
/// The configuration and the guests' GIDs tell whose address it is.
fn is_its_senders(
    switch: &Switch,
    from: SwitchPort,
    (eth, ends): (&Eth, &Endpoints),
    inside: &mut dyn Inside,
) -> bool {
    let (vlan, outer) = (FrameVlan::of(eth), VlanId::of(eth.vlan));
    let sender = switch.sender(from, eth.src);
    let mac = sender.map_or(NOBODY, |sender| sender.mac);
    // The destination belongs to a guest of this worker, so a segment from it is spoofed.
    ends.src != ends.dst
        && sender.is_none_or(|sender| sender.may_speak_as(ends.src, outer))
        && !switch.listed().is_anothers(mac, vlan, ends.src)
        && inside.holder(outer, ends.src).is_none_or(|holder| holder == mac)
}
