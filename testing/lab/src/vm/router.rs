//! A router between the wires of two hosts. A cable behind it changes the packets' traffic class.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::wire::{Namespace, Wire};
use crate::proc::{self, Proc, indent};
use crate::{paths, wait};

/// The router's addresses, which are the same on both interfaces.
pub const GATEWAY: [&str; 2] = ["10.77.0.254", "fd77::fe"];

/// The router's interface to the wire of VM a's host.
const NEAR: &str = "near";
/// The router's interface to the cable, which leads to the wire of VM b's host.
const FAR: &str = "far";

/// A router that forwards between the hosts of a given wire and those of its own wire.
pub struct Router {
    namespace: Namespace,
    /// The namespace that the cable passes: it ends the far interface and the far wire.
    _cable: Namespace,
    /// The wire of VM b's host.
    wire: Wire,
    remarks: Proc,
    log: PathBuf,
    /// Hosts' addresses, and the interface behind which each is.
    hosts: Vec<(String, &'static str)>,
}

impl Router {
    /// Makes a router between the given wire and a new one.
    ///
    /// Each pair in `hosts` has a host of the first wire and one of the second wire.
    pub fn new(near: &Wire, directory: &Path, hosts: &[[&str; 2]]) -> Result<Self> {
        let (namespace, cable, wire) = (Namespace::new("router")?, Namespace::new("cable")?, Wire::new()?);
        near.plug("router", &namespace, NEAR)?;
        namespace.cable(FAR, &cable, NEAR)?;
        namespace.run(&format!("ip link set dev {FAR} up"))?;
        wire.plug("router", &cable, FAR)?;
        for interface in [NEAR, FAR] {
            cable.run(&format!("ip link set dev {interface} promisc on"))?;
            namespace.enable_ipv6(interface)?;
            for (gateway, length) in GATEWAY.iter().zip([32, 128]) {
                let nodad = if length == 128 { "nodad" } else { "" };
                namespace.run(&format!("ip address add {gateway}/{length} dev {interface} {nodad}"))?;
            }
        }
        let hosts = hosts.iter().flat_map(|pair| pair.iter().map(|host| (*host).to_owned()).zip([NEAR, FAR]));
        let hosts: Vec<_> = hosts.collect();
        for (host, interface) in &hosts {
            namespace.run(&format!("ip route add {host} dev {interface}"))?;
        }
        for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            namespace.set(switch, "1")?;
        }
        let log = directory.join("remark.log");
        let remarks = remarks(&cable, &log)?;
        Ok(Self { namespace, _cable: cable, wire, remarks, log, hosts })
    }

    /// Returns the wire of VM b's host.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Limits the length of IP packets on both interfaces.
    ///
    /// The sender of a longer packet is told (RFC 1191, RFC 8201).
    pub fn limit(&self, mtu: u32) -> Result<()> {
        for (host, interface) in &self.hosts {
            self.namespace.run(&format!("ip route replace {host} dev {interface} mtu lock {mtu}"))?;
        }
        Ok(())
    }

    /// Returns how many hundred packets got another class, in both directions together.
    pub fn remarked(&mut self) -> Result<usize> {
        let said = paths::read(&self.log)?;
        ensure!(self.remarks.try_wait()?.is_none(), "remark.py ended\n{}", indent(&said));
        Ok(said.lines().filter(|line| line.contains(": ")).count())
    }
}

/// Starts the program that forwards between both ends of the cable and changes the class.
fn remarks(cable: &Namespace, log: &Path) -> Result<Proc> {
    let checks = paths::workspace().join("testing/lab/checks");
    let script = format!("exec python3 -B /srv/remark.py {NEAR} {FAR}");
    let mut command = cable.enter(&proc::in_root(&paths::guest_root(), &[(&checks, "/srv")], &script));
    let file = File::create(log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut remarks = Proc::spawn("remark.py", command)?;
    wait::until("remark.py to be ready", wait::PATIENCE, || {
        let said = paths::read(log)?;
        ensure!(remarks.try_wait()?.is_none(), "remark.py ended\n{}", indent(&said));
        Ok(if said.contains("ready") { Ok(()) } else { Err(said) })
    })
    .context("the cable between the hosts")?;
    Ok(remarks)
}
