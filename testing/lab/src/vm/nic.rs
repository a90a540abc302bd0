//! A VM that acts as a host, and a peer VM with `rdma_rxe` at the other end of its cable.
//!
//! The host has an emulated NIC on PCI behind an IOMMU.

mod machine;
mod relay;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::directories::{CAPTURE, Lane, run_directory, socket_directory};
use super::pair_config::workers;
use super::qmp::Qmp;
use super::{Job, Output, Vm, probe};
use crate::accel::Accel;
use crate::artefacts::{self, Build, Part};
use crate::device::Device;
use crate::image;
use crate::kernel::Kernel;
use crate::proc::{Ephemeral, indent};
use crate::ui;
pub use machine::Nic;
use machine::{ID, PORT, host_config, peer_config};
pub use relay::Relay;

/// The daemon's guest, with the addresses that the test programs expect.
const GUEST: &str = "10.0.0.1";
const GUEST_MAC: &str = "52:54:00:00:00:01";
/// Another guest of the daemon. It sends to itself.
const OTHER: &str = "10.0.0.3";
const OTHER_MAC: &str = "52:54:00:00:00:03";
/// MTU of the cable: path MTU 4096 with all headers fits.
const MTU: u32 = 4200;

/// The host VM and its peer VM. Fields drop in this order.
pub struct NicLab {
    /// The VM that acts as a host.
    pub host: Vm,
    /// The VM at the other end of the cable.
    pub peer: Vm,
    nic: Nic,
    accel: Accel,
    qmp: Qmp,
    directory: PathBuf,
    gid: u32,
    ports: u16,
    _sockets: Ephemeral,
}

impl NicLab {
    /// Builds what is needed, boots the VMs, and binds the NIC to vfio-pci.
    pub fn boot(nic: Nic) -> Result<Self> {
        let image = image::ensure()?;
        let accel = probe::choose(&image)?;
        let host_image = image::ensure_host()?;
        let programs = artefacts::build(&[Part::Module, Part::Provider], Kernel::Usual, Build::Release)?;
        let guest = artefacts::test_guest()?;
        let backend = programs.backend.clone().context("this wants the backend")?;
        let (directory, sockets) = (run_directory(Lane::default())?, socket_directory(Lane::default())?);
        let shares = ["host", "peer"].map(|name| directory.join(format!("share-{name}")));
        programs.lay_out(&shares[1])?;
        artefacts::lay_out_host(&shares[0], &programs.agent, &[&backend, &guest])?;
        let [monitor, cable] = ["monitor", "cable"].map(|name| sockets.path().join(name));
        let peer = peer_config(accel, &cable, &shares[1], &directory);
        let host = host_config(accel, nic, &cable, &monitor, &shares[0]);
        let what = format!("booting a host with {} and its peer", nic.name());
        let (host, peer) = ui::step(&what, || {
            let mut peer = Vm::start(peer, &image, accel, sockets.path(), &directory)?;
            let mut host = Vm::start(host, &host_image, accel, sockets.path(), &directory)?;
            peer.wait_booted()?;
            host.wait_booted()?;
            Ok((host, peer))
        })?;
        let qmp = Qmp::connect(&monitor)?;
        let mut lab =
            Self { host, peer, nic, accel, qmp, directory, gid: 0, ports: 18_600, _sockets: sockets };
        let prepared = lab.prepare_peer().and_then(|()| lab.bind());
        lab.explained(prepared)?;
        Ok(lab)
    }

    /// Returns a time limit for something that takes this many seconds under KVM.
    pub fn patience(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds) * 3 * self.accel.slowness()
    }

    /// Returns the result. Prints the ends of the VMs' kernel logs if it is an error.
    pub fn explained<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            for vm in [&self.host, &self.peer] {
                eprintln!("VM {}'s kernel:\n{}", vm.name(), indent(&vm.dmesg(15)));
            }
            eprintln!("all logs: {}", self.directory.display());
        }
        result
    }

    /// Returns the file that records what passes the cable.
    pub fn capture(&self) -> PathBuf {
        self.directory.join(CAPTURE)
    }

    fn prepare_peer(&mut self) -> Result<()> {
        let patience = self.patience(6);
        // The guest has no network stack, so nobody would answer for its address.
        let commands = format!(
            "ip link set eth0 mtu {MTU} && ip neighbour replace {GUEST} lladdr {GUEST_MAC} dev eth0 nud permanent"
        );
        self.peer.check(&commands, patience)?;
        Device::Rxe.prepare_in(&self.peer, patience)?;
        self.gid = Device::Rxe.gid_index(&self.peer)?;
        Ok(())
    }

    /// Binds the NIC to vfio-pci, and checks that it is behind an IOMMU.
    pub fn bind(&self) -> Result<()> {
        const BIND: &str = "set -e
            modprobe -a vfio-pci vfio_iommu_type1
            test $(cat /sys/module/vfio/parameters/enable_unsafe_noiommu_mode 2>/dev/null || echo N) = N
            for device in /sys/bus/pci/devices/*; do
                [ $(cat $device/class) = 0x020000 ] || continue
                [ -e $device/iommu_group ] || { echo \"$device is in no IOMMU group\" >&2; exit 1; }
                [ -e $device/driver ] && basename $device >$device/driver/unbind
                echo vfio-pci >$device/driver_override
                basename $device >/sys/bus/pci/drivers_probe
                [ -e $device/driver/module ]
                basename $device
            done";
        let bound = self.host.check(BIND, self.patience(3)).context("binding the NIC to vfio-pci")?;
        ensure!(bound.trim() == ADDRESS, "the NIC is {bound:?}, not {ADDRESS}");
        Ok(())
    }

    /// Starts the daemon on the NIC, with additional arguments, and waits until it is ready.
    ///
    /// If there are several workers, guest b has the first one, and guest a the second one.
    pub fn daemon(&self, arguments: &str) -> Result<Job> {
        let count = workers();
        let workers = if count > 1 { [",worker=1", ",worker=0"] } else { [""; 2] };
        let line = format!(
            "exec 2>/run/daemon.log; exec vrdma-backend -v --poll-us 0 --channels 13 --admin /run/admin --uplink {ADDRESS} --uplink-mtu {MTU} \
             --workers {count} --guest name=a,socket=/run/a,net=/run/a-net,mac={GUEST_MAC},gid={GUEST}{} \
             --guest name=b,socket=/run/b,mac={OTHER_MAC},gid={OTHER}{} {arguments}",
            workers[0], workers[1]
        );
        let mut job = self.host.spawn(&line)?;
        let mut ready = self.host.spawn("until grep -q 'ready: ' /run/daemon.log; do sleep 0.1; done")?;
        let deadline = Instant::now() + self.patience(10);
        while !ready.has_ended()? {
            let ended = job.has_ended()?;
            if ended || Instant::now() > deadline {
                bail!("the daemon does not start\n{}", indent(&self.daemon_log()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(job)
    }

    /// Returns the last lines of the daemon's log.
    pub fn daemon_log(&self) -> String {
        self.host.check("tail -n 25 /run/daemon.log", self.patience(2)).unwrap_or_default()
    }

    /// Returns the peer's counters, to be shown after a failure.
    pub fn peer_counters(&self) -> String {
        const SHOW: &str =
            "ip -s link show eth0; cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep -v '^0$' *";
        self.peer.exec(SHOW, self.patience(2)).map(|output| output.text()).unwrap_or_default()
    }

    /// Returns the daemon's counters.
    pub fn stats(&self) -> Result<Value> {
        let text = self.host.check("vrdma-test-guest stats /run/admin", self.patience(2))?;
        serde_json::from_str(&text).context("the admin socket gave no JSON")
    }

    /// Waits until the uplink's link is up, or down.
    pub fn wait_link(&self, up: bool) -> Result<()> {
        let deadline = Instant::now() + self.patience(5);
        loop {
            let stats = self.stats()?;
            if stats["link"]["up"].as_bool() == Some(up) {
                return Ok(());
            }
            let word = if up { "up" } else { "down" };
            ensure!(Instant::now() < deadline, "the uplink does not go {word}: {}", stats["link"]);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Pulls the cable, or plugs it in again.
    pub fn set_link(&mut self, up: bool) -> Result<()> {
        self.qmp.execute("set_link", json!({ "name": ID, "up": up })).map(|_| ())
    }

    /// Removes the NIC, and waits until it is gone.
    ///
    /// The request goes to the host's kernel, which asks the NIC's user to release it.
    pub fn unplug(&mut self) -> Result<()> {
        self.qmp.execute("device_del", json!({ "id": ID }))?;
        let gone = format!("while [ -e /sys/bus/pci/devices/{ADDRESS} ]; do sleep 0.1; done");
        // The host waits 5 s for a second press of the attention button, which would cancel the
        // removal.
        self.host.check(&gone, self.patience(15)).context("the host does not let the NIC go").map(|_| ())
    }

    /// Plugs a NIC in again, and waits until the host has it.
    pub fn plug(&mut self) -> Result<()> {
        let mut properties = json!({ "id": ID, "bus": PORT, "netdev": ID });
        for property in self.nic.device().split(',').skip(1) {
            let (name, value) = property.split_once('=').context("a property has a value")?;
            properties[name] = match value {
                // `disable-legacy` is a string, because it may also be `auto`.
                "on" if name != "disable-legacy" => true.into(),
                value => value.into(),
            };
        }
        properties["driver"] = self.nic.name().into();
        self.qmp.execute("device_add", properties)?;
        let there = format!("until [ -e /sys/bus/pci/devices/{ADDRESS}/iommu_group ]; do sleep 0.1; done");
        self.host.check(&there, self.patience(15)).context("the host does not find the NIC").map(|_| ())
    }

    /// Fails if the IOMMU blocked an access of the NIC, i.e. the NIC used memory that it no longer
    /// owned.
    ///
    /// Faults at address 0 are ignored, because no process maps it. There QEMU's vmxnet3 looks for
    /// the area that it shares with its driver, as long as the driver has not announced one.
    pub fn expect_no_faults(&self) -> Result<()> {
        const FAULTS: &str = "dmesg | grep 'DMAR: .*fault addr' | grep -v 'fault addr 0x0 ' || true";
        let faults = self.host.check(FAULTS, self.patience(2))?;
        ensure!(faults.is_empty(), "the IOMMU refused:\n{}", indent(&faults));
        Ok(())
    }

    /// Starts guest b, which sends to itself.
    pub fn alone(&self) -> Result<Job> {
        let mut job = self.host.spawn("exec vrdma-test-guest alone /run/b")?;
        job.wait_for("ready", self.patience(4)).context("guest b does not start")?;
        Ok(job)
    }

    /// Returns an unused port for a program to listen on.
    fn port(&mut self) -> u16 {
        self.ports += 1;
        self.ports
    }

    /// Runs the checked ping-pong of all RC operations for some seconds.
    pub fn turns(&self, seconds: u32) -> Result<()> {
        let (guest, peer) = self.start_turns(seconds, 2)?.finish(self.patience(15))?;
        both(&guest, &peer)
    }

    /// Starts the checked ping-pong with this number of QPs.
    pub fn start_turns(&self, seconds: u32, qps: u32) -> Result<Relay> {
        let guest = self.host.spawn("exec vrdma-test-guest turns /run/a")?;
        let peer =
            self.peer.spawn(&format!("exec vr-pingpong -d rxe0 -s {seconds} --events --qps {qps} -"))?;
        Ok(Relay::new(guest, peer))
    }

    /// Sends messages to a server of `ibv_SERVICE_pingpong`, which sends them back.
    pub fn echo(&mut self, service: &str, size: u32, mtu: u32, messages: u32) -> Result<()> {
        let port = self.port();
        let server = format!(
            "exec ibv_{service}_pingpong -d rxe0 -g {} -p {port} -s {size} -n {messages}{}",
            self.gid,
            if service == "ud" { String::new() } else { format!(" -m {mtu} -c") }
        );
        let mut server = self.peer.spawn(&server)?;
        let listens =
            format!("until grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done");
        self.peer.check(&listens, self.patience(4)).context("the server does not listen")?;
        let link = self.peer.spawn(&format!("exec busybox nc 127.0.0.1 {port}"))?;
        let guest = format!(
            "exec vrdma-test-guest echo /run/a {service} --messages {messages} --size {size} --mtu {}",
            mtu.ilog2() - 7
        );
        let relay = Relay::new(self.host.spawn(&guest)?, link);
        let (guest, _) = relay.finish_after(&mut server, self.patience(15))?;
        ensure!(
            guest.success(),
            "the guest: {:?}\n{}",
            guest.exit,
            indent(&String::from_utf8_lossy(&guest.stderr))
        );
        both(&guest, &server.wait(self.patience(5))?)
    }

    /// Sends packets whose checksums the device fills in, and checks that the peer finds them
    /// right.
    pub fn packets(&self, protocol: &str) -> Result<()> {
        let before = self.received(protocol)?;
        let command = format!("vrdma-test-guest packets /run/a-net {protocol}");
        self.host.check(&command, self.patience(5))?;
        let deadline = Instant::now() + self.patience(3);
        loop {
            let [good, bad] = self.received(protocol)?;
            ensure!(bad == before[1], "{} checksums are wrong", bad - before[1]);
            if good == before[0] + PACKETS {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{} of {PACKETS} packets came", good - before[0]);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the numbers of a protocol's good packets and wrong checksums, counted by the peer's
    /// kernel.
    fn received(&self, protocol: &str) -> Result<[u64; 2]> {
        // UDP counts datagrams to a port without a program. For TCP each packet is a segment.
        let (good, bad) =
            if protocol == "udp" { ("NoPorts", "InCsumErrors") } else { ("InSegs", "InCsumErrors") };
        let snmp = self.peer.check("cat /proc/net/snmp", self.patience(2))?;
        let name = if protocol == "udp" { "Udp:" } else { "Tcp:" };
        let mut lines = snmp.lines().filter(|line| line.starts_with(name)).map(str::split_whitespace);
        let (names, values) = (lines.next().context("no names")?, lines.next().context("no values")?);
        let table: Vec<_> = names.zip(values).collect();
        let number = |wanted| {
            let found = table.iter().find(|(name, _)| *name == wanted);
            found.and_then(|(_, value)| value.parse().ok()).with_context(|| format!("no counter {wanted}"))
        };
        Ok([number(good)?, number(bad)?])
    }
}

/// The NIC's PCI address: the first device on the first port's bus.
const ADDRESS: &str = "0000:01:00.0";
/// Number of packets that `vrdma-test-guest packets` sends.
const PACKETS: u64 = 50;

fn both(guest: &Output, peer: &Output) -> Result<()> {
    let said = |output: &Output| indent(&String::from_utf8_lossy(&output.stderr));
    ensure!(
        guest.success() && peer.success(),
        "the guest: {:?}\n{}\nits peer: {:?}\n{}\n{}",
        guest.exit,
        said(guest),
        peer.exit,
        said(peer),
        indent(&peer.text())
    );
    Ok(())
}
