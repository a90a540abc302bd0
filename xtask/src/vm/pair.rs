//! Two VMs, on one backend or on two hosts that a wire joins, as the demos and the VM tests use them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::backend::{Backend, BackendConfig, GuestSockets};
use super::directories::{run_directory, socket_directory};
use super::wire::{Namespace, Wire};
use super::{Net, RdmaDevice, Vm, VmConfig};
use crate::accel::Accel;
use crate::artefacts::{self, Part};
use crate::image::{self, Image};
use crate::kernel::Kernel;
use crate::proc::{Ephemeral, indent};
use crate::programs::Device;
use crate::ui;

/// Where the two VMs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// On one host, served by one backend.
    OneHost,
    /// Each on a host of its own, which has this device; a wire joins the hosts.
    Wire([Device; 2]),
}

/// What a pair looks like.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Parts of our device that are left out. Without the backend the VMs have Ethernet only.
    pub without: Vec<Part>,
    /// Virtual CPUs of each VM.
    pub cpus: u32,
    /// Memory of each VM in MiB; more if the kernel needs more.
    pub memory: u32,
    /// What the VMs boot.
    pub kernel: Kernel,
    /// More words for the kernels' command lines.
    pub kernel_words: String,
    /// Channels of each VM's device, the kernel's included.
    pub channels: u16,
    /// Arguments for the backend; [`PairConfig::default`] has what suits the machine.
    pub backend_arguments: Vec<String>,
    /// Where the VMs are.
    pub topology: Topology,
    /// Whether there is a third VM, c, on VM a's host. Then a and b may use VLAN 10, and c and b VLAN 20, with the same addresses
    /// ([`VLAN_IP`]).
    pub third: bool,
    /// Whether the VMs' devices are of iWARP, over the TCP of their host, which has their addresses too.
    pub iwarp: bool,
}

impl Default for PairConfig {
    fn default() -> Self {
        // Two programs that poll and a backend that polls want three processors. With fewer each waits for the
        // others' time slices (milliseconds), so the backend sleeps at once and is woken by kicks instead.
        let few = std::thread::available_parallelism().is_ok_and(|count| count.get() < 4);
        let backend_arguments = if few { vec!["--poll-us=0".to_owned()] } else { Vec::new() };
        Self {
            without: Vec::new(),
            cpus: 1,
            memory: 1024,
            kernel: Kernel::Usual,
            kernel_words: String::new(),
            channels: 60,
            backend_arguments,
            topology: Topology::OneHost,
            third: false,
            iwarp: false,
        }
    }
}

/// Two running VMs, their backends and their files.
///
/// Fields drop in this order: VMs first, so that the backend sees them leave.
pub struct Pair {
    /// The first VM, 10.77.0.1; the server in most tests.
    pub a: Vm,
    /// The second VM, 10.77.0.2.
    pub b: Vm,
    /// The third one, if the pair has it.
    pub c: Option<Vm>,
    backends: Vec<Backend>,
    hosts: [Option<Namespace>; 2],
    wire: Option<Wire>,
    topology: Topology,
    accel: Accel,
    kernel: Kernel,
    image: Image,
    directory: PathBuf,
    sockets: Ephemeral,
}

/// Addresses of the two VMs.
pub const IP: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Their IPv6 addresses, beside the link-local ones.
pub const IP6: [&str; 2] = ["fd77::1", "fd77::2"];

/// Addresses in the VLANs of a pair with a third VM: of a and c alike, and of b.
pub const VLAN_IP: [&str; 2] = ["10.88.0.1", "10.88.0.2"];
/// The VLANs of each VM then.
const VLANS: [&[u16]; 3] = [&[10], &[10, 20], &[20]];

/// The VMs' names.
const NAMES: [&str; 3] = ["a", "b", THIRD];
/// Where a demo puts what passes the wire, in its run's directory.
pub const CAPTURE: &str = "wire.pcap";
/// A host's interface to the wire.
const UPLINK: &str = "uplink";

/// A guest that the backend waits for: a VM if the pair has a third one, else tests may play it.
const THIRD: &str = "c";

impl Pair {
    /// Builds what is needed and boots the VMs.
    pub fn boot(config: &PairConfig) -> Result<Self> {
        let usual = image::ensure()?;
        // By the usual kernel, which is up in a moment.
        let accel = Accel::choose(&usual)?;
        let image = config.kernel.image(usual)?;
        let artefacts = artefacts::build(&config.without, config.kernel)?;
        let directory = run_directory()?;
        let sockets = socket_directory()?;
        let share = directory.join("share");
        artefacts.lay_out(&share)?;
        let what = match accel {
            Accel::Kvm => "KVM",
            Accel::Tcg => "no KVM here: emulated",
        };
        let count = if config.third { "three" } else { "two" };
        ui::step(&format!("booting {count} VMs ({what})"), || {
            let program = artefacts.backend.as_deref();
            let hosts = Hosts::start(program, sockets.path(), &directory, config)?;
            let vm = |index: usize| -> Result<Vm> {
                let net = hosts.net(index, sockets.path());
                let rdma = hosts.serves(index).then(|| {
                    RdmaDevice::new(sockets.path().join(format!("{}.rdma", NAMES[index])), config.channels)
                });
                let config = vm_config(config, accel, index, net, rdma, &share);
                Vm::start(config, &image, accel, sockets.path(), &directory)
            };
            let (mut a, mut b) = (vm(0)?, vm(1)?);
            let mut c = config.third.then(|| vm(2)).transpose()?;
            for vm in [&mut a, &mut b].into_iter().chain(&mut c) {
                vm.wait_booted()?;
            }
            Ok((a, b, c, hosts))
        })
        .map(|(a, b, c, hosts)| {
            let Hosts { backends, wire, topology, namespaces: hosts } = hosts;
            let kernel = config.kernel;
            Self { a, b, c, backends, hosts, wire, topology, accel, kernel, image, directory, sockets }
        })
    }

    /// The VM called `a` or `b`.
    pub fn vm(&mut self, name: &str) -> Result<&mut Vm> {
        match name {
            "a" => Ok(&mut self.a),
            "b" => Ok(&mut self.b),
            _ => bail!("no VM {name}: there are a and b"),
        }
    }

    /// All its VMs.
    pub fn vms(&self) -> impl Iterator<Item = &Vm> {
        [&self.a, &self.b].into_iter().chain(&self.c)
    }

    /// Kills a VM's QEMU, if it still runs, and boots the VM afresh.
    pub fn reboot(&mut self, name: &str) -> Result<()> {
        let config = {
            let vm = self.vm(name)?;
            vm.kill()?;
            vm.config().clone()
        };
        let vm = Vm::boot(config, &self.image, self.accel, self.sockets.path(), &self.directory)?;
        *self.vm(name)? = vm;
        Ok(())
    }

    /// The backend, if the pair has one; of two, VM a's.
    pub fn backend(&mut self) -> Result<&mut Backend> {
        self.backends.first_mut().context("this pair runs without the backend")
    }

    /// All backends: none, one, or on two hosts those of VM a and VM b.
    pub fn backends(&mut self) -> &mut [Backend] {
        &mut self.backends
    }

    /// The wire between the hosts, if there are two.
    pub fn wire(&self) -> Result<&Wire> {
        self.wire.as_ref().context("these VMs share a host: there is no wire")
    }

    /// The network namespace of a VM's host, if the VM has our device and a host of its own.
    pub fn host(&self, vm: &Vm) -> Result<&Namespace> {
        self.hosts[self.index(vm)].as_ref().context("this VM has no host of its own")
    }

    /// Index of a VM of this pair: 0 is a, 1 is b.
    pub fn index(&self, vm: &Vm) -> usize {
        usize::from(vm.name() == self.b.name())
    }

    /// The RDMA device that a VM has.
    pub fn device(&self, vm: &Vm) -> Device {
        match self.topology {
            Topology::OneHost if self.backends.is_empty() => Device::Rxe,
            Topology::OneHost => Device::Vrdma,
            Topology::Wire(devices) => devices[self.index(vm)],
        }
    }

    /// The backend's socket for a guest that is not a VM.
    pub fn third_socket(&self) -> PathBuf {
        self.sockets.path().join(format!("{THIRD}.rdma"))
    }

    /// What runs the guests.
    pub fn accel(&self) -> Accel {
        self.accel
    }

    /// How much longer than under KVM things may take.
    pub fn slowness(&self) -> u32 {
        self.accel.slowness() * self.kernel.slowness()
    }

    /// A time limit for something that takes no longer than this under KVM on a machine that has nothing else to do.
    pub fn patience(&self, seconds: u64) -> Duration {
        /// How many times slower a machine may be.
        const BUSY: u32 = 3;
        Duration::from_secs(seconds) * BUSY * self.slowness()
    }

    /// Logs and share of this run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory that both VMs see as `/share`.
    pub fn share(&self) -> PathBuf {
        self.directory.join("share")
    }

    /// What to look at after a failure: ends of the backends' logs and of the kernels' messages.
    pub fn post_mortem(&self) -> String {
        let mut text = String::new();
        for backend in &self.backends {
            let log = backend.log();
            text += &format!("backend ({}):\n{}\n", log.display(), indent(&ui::tail(log, 20)));
        }
        for vm in self.vms() {
            text += &format!("VM {}'s kernel:\n{}\n", vm.name(), indent(&vm.dmesg(15)));
        }
        text + &format!("all logs: {}", self.directory.display())
    }
}

/// What the VMs run on; the namespace of each host that is one.
struct Hosts {
    backends: Vec<Backend>,
    wire: Option<Wire>,
    topology: Topology,
    namespaces: [Option<Namespace>; 2],
}

impl Hosts {
    fn start(program: Option<&Path>, sockets: &Path, directory: &Path, config: &PairConfig) -> Result<Self> {
        let PairConfig { topology, channels, backend_arguments, third, iwarp, .. } = config;
        let mut hosts =
            Self { backends: Vec::new(), wire: None, topology: *topology, namespaces: [None, None] };
        let backend =
            |name: &str, guests: &[(&str, usize)], namespace: Option<&Namespace>, more: &[String]| {
                let Some(program) = program else { bail!("this wants the backend") };
                let guests = guests.iter().map(|(name, index)| GuestSockets {
                    name: (*name).to_owned(),
                    mac: mac(*index),
                    rdma: sockets.join(format!("{name}.rdma")),
                    net: (*name != THIRD || *third).then(|| sockets.join(format!("{name}.net"))),
                    gids: gids(*index, *third),
                    vlans: if *third { VLANS[*index] } else { &[] },
                    host_addresses: match (*iwarp, IP.get(*index), IP6.get(*index)) {
                        (true, Some(ip), Some(ip6)) => vec![(*ip).to_owned(), (*ip6).to_owned()],
                        _ => Vec::new(),
                    },
                });
                let config = BackendConfig {
                    name: name.to_owned(),
                    guests: guests.collect(),
                    channels: *channels,
                    arguments: [backend_arguments.as_slice(), more].concat(),
                };
                Backend::start(program, &config, sockets, directory, namespace)
            };
        match topology {
            Topology::OneHost => {
                if *iwarp {
                    let host = Namespace::new("host")?;
                    for address in IP {
                        host.run(&format!("ip address add {address}/32 dev lo"))?;
                    }
                    host.run("sysctl -q -w net.ipv6.conf.lo.disable_ipv6=0")?;
                    for address in IP6 {
                        host.run(&format!("ip address add {address}/128 dev lo"))?;
                    }
                    let more = ["--tcp=kernel".to_owned()];
                    hosts.backends.push(backend("backend", &[("a", 0), ("b", 1)], Some(&host), &more)?);
                    hosts.namespaces[0] = Some(host);
                } else if program.is_some() {
                    hosts.backends.push(backend("backend", &[("a", 0), ("b", 1), (THIRD, 2)], None, &[])?);
                }
            }
            Topology::Wire(devices) => {
                let wire = Wire::new()?;
                for (index, device) in devices.iter().enumerate() {
                    let name = NAMES[index];
                    match device {
                        Device::Rxe => wire.tap(name)?,
                        Device::Vrdma => {
                            let host = Namespace::new(name)?;
                            wire.plug(name, &host, UPLINK)?;
                            let more = ["--uplink".to_owned(), format!("net_af_packet0,iface={UPLINK}")];
                            let guests = [(name, index), (THIRD, 2)];
                            let guests = if index == 0 && *third { &guests[..] } else { &guests[..1] };
                            let backend = backend(&format!("backend-{name}"), guests, Some(&host), &more)?;
                            hosts.backends.push(backend);
                            hosts.namespaces[index] = Some(host);
                        }
                    }
                }
                hosts.wire = Some(wire);
            }
        }
        Ok(hosts)
    }

    /// Whether the VM has our device.
    fn serves(&self, index: usize) -> bool {
        match self.topology {
            Topology::OneHost => !self.backends.is_empty(),
            Topology::Wire(devices) => devices[host(index)] == Device::Vrdma,
        }
    }

    fn net(&self, index: usize, sockets: &Path) -> Net {
        let name = NAMES[index];
        match (self.topology, &self.wire) {
            (Topology::Wire(devices), Some(wire)) if devices[host(index)] == Device::Rxe => {
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

fn vm_config(
    pair: &PairConfig,
    accel: Accel,
    index: usize,
    net: Net,
    rdma: Option<RdmaDevice>,
    share: &Path,
) -> VmConfig {
    VmConfig {
        name: NAMES[index].to_owned(),
        cpus: pair.cpus,
        memory: pair.memory.max(pair.kernel.least_memory()),
        mac: mac(index),
        ip: format!("10.77.0.{}/24", index + 1),
        net: Some(net),
        rdma,
        share: share.to_owned(),
        kernel_words: format!("{} {}", pair.kernel.words(), pair.kernel_words),
        slowness: accel.slowness() * pair.kernel.slowness(),
        extra: Vec::new(),
    }
}

/// The host of a VM where each has its own: the third one is on the first one's.
fn host(index: usize) -> usize {
    index % 2
}

/// The MAC address of a VM's functions: 0 is a, 1 is b.
pub fn mac(index: usize) -> String {
    format!("52:54:00:77:00:{:02x}", index + 1)
}

/// Addresses that a guest may use: its own, those that a test gives VM b for a while, and those in its VLANs.
fn gids(index: usize, third: bool) -> Vec<String> {
    let own = [format!("10.77.0.{}", index + 1), format!("fd77::{}", index + 1)];
    let more = (index == 1).then(|| ["10.77.1.9", "fd77::9"].map(str::to_owned)).into_iter().flatten();
    let vlans = if third { VLANS[index] } else { &[] };
    let vlans = vlans.iter().map(|vlan| format!("{}@{vlan}", VLAN_IP[host(index)]));
    own.into_iter().chain(more).chain(vlans).collect()
}
