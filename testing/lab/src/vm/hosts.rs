//! The hosts that VMs run on: their backends, and the wires between them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Net;
use super::addresses::{IP, IP6, NAMES, THIRD, VLAN_IP, extra_mac, mac, rail, rail_index};
use super::backend::{Backend, BackendConfig, GuestSockets};
use super::pair_config::{PairConfig, Tcp, Topology};
use super::router::Router;
use super::wire::{Namespace, Wire};
use crate::device::Device;

/// The VLANs of each VM. The third VM's VLAN is not that of the first one.
const VLANS: [&[u16]; 3] = [&[10], &[10, 20], &[20]];
/// A host's interface to the wire.
const UPLINK: &str = "uplink";
/// A host's interface to the wire of its kernel's TCP.
const TCP: &str = "tcp";

/// Backends, wires and namespaces of the hosts. An entry is `None` if the host has no namespace.
pub struct Hosts {
    pub(super) backends: Vec<Backend>,
    /// The wire of RDMA between hosts.
    pub(super) wire: Option<Wire>,
    /// The wire of the VMs' Ethernet devices, if it is another one.
    ///
    /// Hosts that have their VM's addresses must not share a wire with the VMs.
    pub(super) ethernet: Option<Wire>,
    /// The router, if the hosts are on two wires.
    pub(super) router: Option<Router>,
    pub(super) topology: Topology,
    pub(super) namespaces: [Option<Namespace>; 2],
}

/// Returns the socket of the second function, if a guest has both functions.
pub(super) fn second(sockets: &Path, name: &str) -> PathBuf {
    sockets.join(format!("{name}.iwarp"))
}

/// The arguments that all backends of a pair share.
struct Start<'a> {
    program: Option<&'a Path>,
    sockets: &'a Path,
    directory: &'a Path,
    pair: &'a PairConfig,
}

impl Start<'_> {
    fn backend(
        &self,
        name: &str,
        guests: &[(&str, usize)],
        namespace: Option<&Namespace>,
        more: &[String],
    ) -> Result<Backend> {
        let Self { program, sockets, directory, pair } = self;
        let program = program.context("this wants the backend")?;
        let guest = |(name, index): &(&str, usize)| GuestSockets {
            name: (*name).to_owned(),
            mac: mac(*index),
            extra_mac: extra_mac(*index),
            rdma: sockets.join(format!("{name}.rdma")),
            net: (*name != THIRD || pair.third).then(|| sockets.join(format!("{name}.net"))),
            gids: if pair.any_gid { Vec::new() } else { gids(*index) },
            vlans: vlans(*index),
            iwarp: pair.iwarp.is_some() && *index < IP.len(),
            second: pair.both.then(|| second(sockets, name)),
            host_addresses: match pair.iwarp {
                Some(Tcp::Kernel) if *index < IP.len() => vec![IP[*index], IP6[*index]],
                _ => Vec::new(),
            },
        };
        let config = BackendConfig {
            name: name.to_owned(),
            guests: guests.iter().map(guest).collect(),
            channels: pair.channels,
            arguments: [pair.backend_arguments.as_slice(), more].concat(),
        };
        Backend::start(program, &config, sockets, directory, namespace)
    }
}

impl Hosts {
    /// Starts backends and wires for a pair's configuration.
    pub(super) fn start(
        program: Option<&Path>,
        sockets: &Path,
        directory: &Path,
        pair: &PairConfig,
    ) -> Result<Self> {
        let topology = pair.topology;
        let mut hosts = Self {
            backends: Vec::new(),
            wire: None,
            ethernet: None,
            router: None,
            topology,
            namespaces: [None, None],
        };
        let start = Start { program, sockets, directory, pair };
        match (topology, pair.iwarp) {
            (Topology::OneHost, Some(tcp)) => hosts.one_of_iwarp(&start, tcp)?,
            (Topology::OneHost, None) if program.is_none() => {}
            (Topology::OneHost, None) => {
                let rails: Vec<_> = [0, 1].map(|index| (rail(NAMES[index]), rail_index(index))).into();
                let mut guests = vec![("a", 0), ("b", 1), (THIRD, 2)];
                if pair.rails {
                    guests.extend(rails.iter().map(|(name, index)| (name.as_str(), *index)));
                }
                hosts.backends.push(start.backend("backend", &guests, None, &[])?);
            }
            (Topology::Wire(devices), tcp) => {
                let wire = Wire::new()?;
                if pair.routed {
                    hosts.router = Some(Router::new(&wire, directory, &[IP, IP6])?);
                }
                hosts.wire = Some(wire);
                // The host answers for the VM's addresses, so the netdevs need a wire of their own.
                let kernels = tcp.filter(|tcp| *tcp == Tcp::Kernel);
                hosts.ethernet = kernels.map(|_| Wire::new()).transpose()?;
                for (index, device) in devices.into_iter().enumerate() {
                    hosts.plug(&start, index, device)?;
                }
            }
        }
        Ok(hosts)
    }

    /// Starts one host that has both VMs' addresses.
    fn one_of_iwarp(&mut self, start: &Start<'_>, tcp: Tcp) -> Result<()> {
        ensure!(tcp == Tcp::Kernel, "the backend's own TCP wants a wire between two hosts");
        let host = Namespace::new("host")?;
        host.enable_ipv6("lo")?;
        for (v4, v6) in IP.iter().zip(IP6) {
            host.run(&format!("ip address add {v4}/32 dev lo"))?;
            host.run(&format!("ip address add {v6}/128 dev lo"))?;
        }
        let more = ["--tcp=kernel".to_owned()];
        self.backends.push(start.backend("backend", &[("a", 0), ("b", 1)], Some(&host), &more)?);
        self.namespaces[0] = Some(host);
        Ok(())
    }

    /// Connects a VM's host to the wires: a host with a backend, or the VM's kernel itself.
    fn plug(&mut self, start: &Start<'_>, index: usize, device: Device) -> Result<()> {
        let near = self.wire.as_ref().context("hosts are joined by a wire")?;
        let wire = self.router.as_ref().filter(|_| index > 0).map_or(near, Router::wire);
        let name = NAMES[index];
        if device != Device::Vrdma {
            return wire.tap(name);
        }
        let host = Namespace::new(name)?;
        self.ethernet.as_ref().unwrap_or(wire).plug(name, &host, UPLINK)?;
        let mut more = vec!["--uplink".to_owned(), start.pair.uplink.over(UPLINK)];
        if let Some(Tcp::Kernel) = start.pair.iwarp {
            wire.plug(name, &host, TCP)?;
            host.enable_ipv6(TCP)?;
            host.run(&format!("ip address add {}/24 dev {TCP}", IP[index]))?;
            host.run(&format!("ip address add {}/64 dev {TCP} nodad", IP6[index]))?;
            more.push("--tcp=kernel".to_owned());
        } else if start.pair.iwarp.is_some() {
            more.push("--tcp=own".to_owned());
        }
        let guests = [(name, index), (THIRD, 2)];
        let guests = if index == 0 && start.pair.third { &guests[..] } else { &guests[..1] };
        self.backends.push(start.backend(&format!("backend-{name}"), guests, Some(&host), &more)?);
        self.namespaces[index] = Some(host);
        Ok(())
    }

    /// Whether the VM has the vrdma device.
    pub(super) fn serves(&self, index: usize) -> bool {
        match self.topology {
            Topology::OneHost => !self.backends.is_empty(),
            Topology::Wire(devices) => devices[host(index)] == Device::Vrdma,
        }
    }

    /// Returns how the VM's Ethernet device is attached.
    pub(super) fn net(&self, index: usize, sockets: &Path) -> Net {
        let name = NAMES[index];
        match (self.topology, &self.wire) {
            (Topology::Wire(devices), Some(wire)) if devices[host(index)] != Device::Vrdma => {
                Net::Tap { namespace: wire.namespace().path(), interface: name.to_owned() }
            }
            (Topology::Wire(_), _) => Net::VhostUser(sockets.join(format!("{name}.net"))),
            (Topology::OneHost, _) if !self.backends.is_empty() => {
                Net::VhostUser(sockets.join(format!("{name}.net")))
            }
            (Topology::OneHost, _) if index == 0 => Net::Listen(sockets.join("link")),
            (Topology::OneHost, _) => Net::Connect(sockets.join("link")),
        }
    }
}

/// Returns the host of a VM if there are two hosts. The third VM is on the first one's host.
fn host(index: usize) -> usize {
    index % 2
}

/// Returns the VLANs that a guest may use. A VM's second guest has none.
fn vlans(index: usize) -> &'static [u16] {
    VLANS.get(index).copied().unwrap_or_default()
}

/// Returns the addresses that a guest may use.
///
/// These are its own addresses, its addresses in VLANs, and those that a test gives VM b for a
/// while.
fn gids(index: usize) -> Vec<String> {
    let own = [format!("10.77.0.{}", index + 1), format!("fd77::{}", index + 1)];
    let more = (index == 1).then(|| ["10.77.1.9", "fd77::9"].map(str::to_owned)).into_iter().flatten();
    let vlans = vlans(index).iter().map(|vlan| format!("{}@{vlan}", VLAN_IP[host(index)]));
    own.into_iter().chain(more).chain(vlans).collect()
}
