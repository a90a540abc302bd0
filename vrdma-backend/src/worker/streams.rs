//! Streams in the worker's turn, and commands about connections.

use super::Worker;
use crate::allowed::AllowedGid;
use crate::device::Result;
use crate::device::command::{Command, Reply};
use crate::panics;
use crate::streams::Host;
use crate::tcp::{Path, Way};
use std::net::IpAddr;
use vrdma_transport::{self as transport, DeviceId, Error, GidEntry};
use vrdma_wire::num::{Qpn, VlanId};

/// What epoll returns for the sockets of streams.
pub(super) const STREAMS: u64 = u64::MAX - 1;

impl Worker {
    /// Takes what came in streams; true if there was anything.
    pub(super) fn serve_streams(&mut self, now: transport::Instant) -> bool {
        let Worker { streams, engine, outputs, has_streams, .. } = self;
        *has_streams && streams.turn(&mut Host { engine, outputs, now })
    }

    /// A QP was modified or destroyed.
    pub(super) fn look_at_stream(&mut self, id: DeviceId, qpn: Qpn) {
        let now = self.now();
        let Worker { streams, engine, outputs, has_streams, .. } = self;
        if *has_streams {
            panics::shared(|| streams.qp_changed(id, qpn, &mut Host { engine, outputs, now }));
        }
    }

    /// The guest is paused, or goes on.
    pub(super) fn suspend_streams(&mut self, id: DeviceId, suspended: bool) {
        if self.has_streams {
            self.streams.set_suspended(id, suspended);
        }
    }

    /// Whether a guest may connect from an address with its own TCP: one that it may use, and that is no GID of another guest.
    fn check_address(&mut self, id: DeviceId, address: IpAddr, vlan: VlanId) -> Result<()> {
        let entry = GidEntry { gid: AllowedGid { address, vlan: None }.gid(), vlan };
        // Devices of one guest have its MAC address.
        let outputs = &mut self.outputs;
        let mut mac = |device| outputs.device(device).guest.mac;
        let (own, here) = (mac(id), self.engine.gid_owner(entry).map(mac));
        let elsewhere = self.gids.as_mut().and_then(|gids| gids.elsewhere((entry.gid, entry.vlan)));
        if self.may_use(id, entry) && here.or(elsewhere).is_none_or(|holder| holder == own) {
            return Ok(());
        }
        self.gid_refused(id, entry, "it is not among those that it may connect from: gids, vlans");
        Err(Error::Denied)
    }

    /// Carries out a command about connections.
    pub(super) fn manage_connections(&mut self, id: DeviceId, command: Command) -> Result<Reply> {
        if let Command::CmConnect { way: Way::Own(Path { hop, .. }), connect } = &command {
            self.check_address(id, connect.local.ip(), VlanId::of(hop.vlan))?;
        }
        let now = self.now();
        let Worker { streams, engine, outputs, .. } = self;
        let host = &mut Host { engine, outputs, now };
        let done = |()| Reply::Done;
        match command {
            Command::CmListen { doors, backlog } => {
                streams.listen(id, doors, backlog, host).map(Reply::Object)
            }
            Command::CmCloseListener { listener } => streams.close_listener(id, listener, host).map(done),
            Command::CmConnect { way, connect } => {
                streams.connect(id, way, &connect, host).map(Reply::Object)
            }
            Command::CmAccept { accept } => streams.accept(id, &accept, host).map(done),
            Command::CmReject { connection, private_data } => {
                streams.reject(id, connection, &private_data, host).map(done)
            }
            Command::CmDisconnect { qpn } => streams.disconnect(id, qpn, host).map(done),
            Command::CmRelease { connection } => streams.release(id, connection, host).map(done),
            Command::CmGetEvent => Ok(Reply::CmEvent(streams.next_event(id).map(Box::new))),
            other => unreachable!("it is about no connection: {other:?}"),
        }
    }
}
