//! What captures see of frames.
//!
//! Each frame is captured once, where it comes into the switch. If it leaves by the uplink, and is
//! for no guest of this host, it is shown there.

use super::Net;
use super::finish::finish;
use super::frame::FrameView;
use super::switch::Switch;
use super::verdict::{SwitchPort, Verdict};
use crate::capture::{CapturePlace, FrameSource, Seen, Tap};
use vrdma_transport::PacketPayload;
use vrdma_wire::num::Mac;
use vrdma_wire::roce::Packet;

/// Shows a frame of a guest's network device to captures, with its offloads done.
///
/// If no capture wants it, nothing of it is copied.
#[cold]
pub(super) fn show_sent(tap: &Tap, switch: &Switch, name: &str, verdict: Verdict, frame: &FrameView<'_>) {
    let source = source_of(name, verdict);
    if !tap.wants_frame(source, frame.head()) {
        return;
    }
    let place = match frame.headers() {
        Some(headers) if leaves(switch, verdict, headers.eth.dst) => CapturePlace::ToWire,
        _ => CapturePlace::Guest(name),
    };
    let seen = Seen { place, comment: None };
    finish(frame, &mut |length, fill| tap.frame_made_by(seen, source, length, fill));
}

/// Returns the source of a frame of this guest.
fn source_of(name: &str, verdict: Verdict) -> FrameSource<'_> {
    match verdict {
        Verdict::Drop(_) => FrameSource::Dropped(Some(name)),
        _ => FrameSource::Guest(name),
    }
}

/// Whether a frame goes to other hosts, and to no guest that is known here.
fn leaves(switch: &Switch, verdict: Verdict, dst: Mac) -> bool {
    match verdict {
        Verdict::To(to) => to == SwitchPort::Uplink && !switch.is_peer(dst),
        Verdict::Unknown => true,
        Verdict::Group | Verdict::RoceGroup | Verdict::Drop(_) => false,
    }
}

impl Net {
    /// Shows a packet that the engine sends to captures. `verdict` is where it goes.
    #[cold]
    pub fn show_packet(&self, verdict: Verdict, packet: &Packet, payload: &dyn PacketPayload) {
        let seen = self.seen(verdict, &packet.path.src_mac, packet.path.dst_mac);
        match verdict {
            Verdict::Drop(_) => self.tap.dropped_packet(seen, packet, payload),
            _ => self.tap.packet(seen, packet, payload),
        }
    }

    /// Shows a packet that the engine passes to another worker to captures.
    #[cold]
    pub fn show_passed(&self, packet: &Packet, payload: &dyn PacketPayload) {
        let place = CapturePlace::Guest(self.name_of(&packet.path.src_mac));
        let seen = Seen { place, comment: Some("same host, passed between workers") };
        self.tap.packet(seen, packet, payload);
    }

    /// Shows a frame that a guest's own TCP sends to captures. `verdict` is where it goes.
    ///
    /// `finish` does what is left to be done of a copy of the frame, for captures alone.
    #[cold]
    pub fn show_segment(
        &self,
        verdict: Verdict,
        (src, dst): (Mac, Mac),
        frame: &[u8],
        finish: impl FnOnce(&mut [u8]),
    ) {
        let source = source_of(self.name_of(&src), verdict);
        if self.tap.wants_frame(source, frame) {
            self.tap.frame_made_by(self.seen(verdict, &src, dst), source, frame.len(), |copy| {
                copy.copy_from_slice(frame);
                finish(copy);
            });
        }
    }

    fn seen(&self, verdict: Verdict, src: &Mac, dst: Mac) -> Seen<'_> {
        let place = match leaves(&self.switch, verdict, dst) {
            true => CapturePlace::ToWire,
            false => CapturePlace::Guest(self.name_of(src)),
        };
        Seen { place, comment: None }
    }

    /// Returns the name of the guest of this worker that has a MAC address.
    fn name_of(&self, mac: &Mac) -> &str {
        self.switch.owner(*mac).map_or("", |guest| &self.names[guest])
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Reason;
    use super::*;
    use crate::allowed::Vlans;
    use crate::capture::{CaptureEnd, CapturedGuest, Filter, JoinedGroups, tap_of};

    #[test]
    fn a_frame_that_no_filter_wants_is_not_copied() {
        const VM1: Mac = Mac([2, 0, 0, 0, 0, 1]);
        const FAR: Mac = Mac([2, 0, 0, 0, 0, 9]);
        let guest = CapturedGuest {
            name: "vm1".into(),
            macs: vec![VM1],
            vlans: Vlans::any(),
            has_net: true,
            has_rdma: true,
            joined: JoinedGroups::default(),
        };
        let frame = |dst: Mac| [&dst.0[..], &FAR.0, &[8, 0], &[7; 60_000]].concat();
        let (to_others, to_guest) = (frame(FAR), frame(VM1));
        // A new capture each time, whose room for a copy is still empty.
        let show = |name, verdict, bytes: &[u8]| {
            let (tap, queue) = tap_of(Filter { guest: Some(guest.clone()), ..Filter::default() });
            show_sent(&tap, &Switch::default(), name, verdict, &FrameView::bytes(bytes));
            queue.end(CaptureEnd::Asked);
            (tap.copied(), queue.progress().0.missed)
        };
        let dropped = Verdict::Drop(Reason::Spoofed);
        assert_eq!(show("vm2", Verdict::Unknown, &to_others), (0, 0));
        assert_eq!(show("vm2", dropped, &to_guest), (0, 0), "it reaches nobody");
        assert_eq!(show("vm2", Verdict::Unknown, &to_guest), (to_guest.len(), 1));
        assert_eq!(show("vm1", Verdict::Unknown, &to_others), (to_others.len(), 1));
        assert_eq!(show("vm1", dropped, &to_others), (to_others.len(), 1));
    }
}
