//! Ports that need no NIC, with two ends each.

use crate::args::PortKind;
use crate::missing::missing;
use crate::network::{bring_up, make_veth, own_network};
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::{Duration, Instant};
use vrdma_backend::port::{self, Eal, Port, UplinkDevice};
use vrdma_wire::num::Mtu;

/// MTUs of the link that are tried, the best first. XDP sockets take no frame longer than a part of
/// a page.
const LINK_MTUS: [u16; 3] = [4500, 3000, 1500];
/// Largest overhead of a RoCE packet in bytes, beside its payload.
const OVERHEAD: u32 = 96;
/// Time limit for a link to come up.
const UP: Duration = Duration::from_secs(5);

/// Opens the two ends of a port, or one port that returns what it sends. The MTU is `mtu`, or one
/// that suits RoCE.
///
/// # Errors
/// They cannot be opened on this machine. The message says why.
pub fn open(kind: PortKind, mtu: Option<u16>, dir: &Path) -> Result<Vec<Port>> {
    if kind.is_memory() {
        // Memory ports need nothing from the machine.
        return all(kind, dir, mtu.unwrap_or(LINK_MTUS[0]));
    }
    veth(kind, mtu, dir).map_err(|error| missing(format!("this machine has no such port: {error:#}")))
}

/// Opens both ends of a veth, with the largest MTU that they accept.
fn veth(kind: PortKind, mtu: Option<u16>, dir: &Path) -> Result<Vec<Port>> {
    own_network()?;
    make_veth()?;
    let mut error = None;
    for mtu in mtu.map_or(LINK_MTUS.to_vec(), |mtu| vec![mtu]) {
        bring_up(mtu)?;
        match all(kind, dir, mtu) {
            Ok(ports) => return Ok(ports),
            Err(found) => _ = error.get_or_insert(found),
        }
    }
    Err(error.expect("there are MTUs"))
}

fn all(kind: PortKind, dir: &Path, mtu: u16) -> Result<Vec<Port>> {
    let ports = devices(kind, dir).into_iter().map(|device| one(&device, mtu));
    let mut ports = ports.collect::<Result<Vec<Port>>>()?;
    wait(&mut ports).map(|()| ports)
}

/// Returns the devices by their EAL names.
fn devices(kind: PortKind, dir: &Path) -> Vec<String> {
    let socket = dir.join("memif.sock");
    let memif = |number: u8, role: &str| {
        format!("net_memif{number},role={role},socket={},socket-abstract=no", socket.display())
    };
    match kind {
        PortKind::Memif => vec![memif(0, "server"), memif(1, "client")],
        PortKind::Ring => vec!["net_ring0".into()],
        PortKind::AfPacket => vec!["net_af_packet0,iface=va".into(), "net_af_packet1,iface=vb".into()],
        PortKind::Packet => vec!["net_packet0,iface=va".into(), "net_packet1,iface=vb".into()],
        PortKind::AfXdp => vec!["net_af_xdp0,iface=va".into(), "net_af_xdp1,iface=vb".into()],
    }
}

fn one(device: &str, mtu: u16) -> Result<Port> {
    let device: UplinkDevice = device.parse()?;
    let eal = Eal::start("", &device)?;
    let mut port = Port::new(port::open(eal, &device, Some(mtu), true, 1)?);
    port.adopt();
    Ok(port)
}

fn wait(ports: &mut [Port]) -> Result<()> {
    let start = Instant::now();
    while !ports.iter().all(Port::is_up) {
        ensure!(start.elapsed() < UP, "the link does not come up");
        ports.iter_mut().for_each(|port| _ = port.poll_link());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns the number of frames that all ports have sent.
pub fn frames(ports: &[Port]) -> u64 {
    ports.iter().map(|port| port.stats().get("frames_sent").copied().unwrap_or_default()).sum()
}

/// Returns the largest size of an IP packet.
pub fn link_mtu(ports: &[Port]) -> u16 {
    ports.iter().map(|port| port.capabilities().mtu).min().unwrap_or_default()
}

/// Returns the largest path MTU whose packets fit.
pub fn path_mtu(ports: &[Port]) -> Mtu {
    let link = link_mtu(ports);
    let fits = |code| Mtu::from_code(code).filter(|mtu| mtu.bytes() + OVERHEAD <= u32::from(link));
    (1..=5).rev().find_map(fits).unwrap_or(Mtu::M256)
}
