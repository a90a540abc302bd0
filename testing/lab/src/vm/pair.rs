//! A pair of VMs for demos and tests, on one backend or on two hosts that a wire joins.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::addresses::{NAMES, THIRD, mac, rail, rail_index};
use super::backend::Backend;
use super::directories::{run_directory, socket_directory};
use super::hosts::Hosts;
use super::pair_config::{PairConfig, Tcp, Topology};
use super::router::Router;
use super::wire::{Namespace, Wire};
use super::{Net, RdmaDevice, Vm, VmConfig, probe};
use crate::accel::Accel;
use crate::artefacts::{self, Artefacts, Build, Part};
use crate::device::Device;
use crate::image::{self, Image};
use crate::kernel::Kernel;
use crate::proc::{Ephemeral, indent};
use crate::{needs, older, paths, siw, ui};

/// Two running VMs, their backends and their files.
///
/// Fields drop in this order: the VMs come first, so that the backend sees them leave.
pub struct Pair {
    /// The first VM, 10.77.0.1. It is the server in most tests.
    pub a: Vm,
    /// The second VM, 10.77.0.2.
    pub b: Vm,
    /// The third VM, if the pair has one.
    pub c: Option<Vm>,
    backends: Vec<Backend>,
    _hosts: [Option<Namespace>; 2],
    wire: Option<Wire>,
    /// The wire of the VMs' Ethernet devices, if it is another one.
    _ethernet: Option<Wire>,
    router: Option<Router>,
    topology: Topology,
    iwarp: Option<Tcp>,
    accel: Accel,
    build: Build,
    kernel: Kernel,
    image: Image,
    directory: PathBuf,
    sockets: Ephemeral,
}

impl Pair {
    /// Builds what is needed and boots the VMs.
    pub fn boot(config: &PairConfig) -> Result<Self> {
        let (accel, image, mut artefacts) = prepare(config)?;
        if config.older_backend {
            artefacts.backend = Some(older::backend()?);
        }
        let directory = run_directory(config.lane)?;
        let sockets = socket_directory(config.lane)?;
        let share = directory.join("share");
        artefacts.lay_out(&share)?;
        if matches!(config.topology, Topology::Wire(devices) if devices.contains(&Device::Siw)) {
            siw::lay_out(&share)?;
        }
        let what = if accel == Accel::Kvm { "KVM" } else { "no KVM here: emulated" };
        let count = if config.third { "three" } else { "two" };
        ui::step(&format!("booting {count} VMs ({what})"), || {
            let program = artefacts.backend.as_deref();
            let hosts = Hosts::start(program, sockets.path(), &directory, config)?;
            let vm = |index: usize| -> Result<Vm> {
                let net = hosts.net(index, sockets.path());
                let functions = function_sockets(config, NAMES[index], sockets.path());
                let rdma = functions.into_iter().filter(|_| hosts.serves(index));
                let device = |socket| RdmaDevice::new(socket, config.channels, config.root_ports);
                let rdma = rdma.map(device).collect();
                let mut vm = vm_config(config, accel, index, net, rdma, &share);
                vm.extra = more_of_qemu(config, accel, index, sockets.path());
                Vm::start(vm, &image, accel, sockets.path(), &directory)
            };
            let (mut a, mut b) = (vm(0)?, vm(1)?);
            let mut c = config.third.then(|| vm(2)).transpose()?;
            for vm in [&mut a, &mut b].into_iter().chain(&mut c) {
                vm.wait_booted()?;
            }
            Ok((a, b, c, hosts))
        })
        .map(|(a, b, c, hosts)| {
            let Hosts { backends, wire, ethernet: _ethernet, router, topology, namespaces: _hosts } = hosts;
            let (build, kernel, iwarp) = (config.build, config.kernel, config.iwarp);
            Self {
                a,
                b,
                c,
                backends,
                _hosts,
                wire,
                _ethernet,
                router,
                topology,
                iwarp,
                accel,
                build,
                kernel,
                image,
                directory,
                sockets,
            }
        })
    }

    /// Returns the VM called `a` or `b`.
    pub fn vm(&mut self, name: &str) -> Result<&mut Vm> {
        match name {
            "a" => Ok(&mut self.a),
            "b" => Ok(&mut self.b),
            _ => bail!("no VM {name}: there are a and b"),
        }
    }

    /// Returns all VMs of the pair.
    pub fn vms(&self) -> impl Iterator<Item = &Vm> {
        [&self.a, &self.b].into_iter().chain(&self.c)
    }

    /// Kills a VM's QEMU, if it still runs, and boots the VM again.
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

    /// Returns the backend, if the pair has one. If there are two, returns VM a's.
    pub fn backend(&mut self) -> Result<&mut Backend> {
        self.backends.first_mut().context("this pair runs without the backend")
    }

    /// Returns all backends: none, one, or those of VM a and VM b on two hosts.
    pub fn backends(&mut self) -> &mut [Backend] {
        &mut self.backends
    }

    /// Returns the wire between the hosts, if there are two.
    pub fn wire(&self) -> Result<&Wire> {
        self.wire.as_ref().context("these VMs share a host: there is no wire")
    }

    /// Returns the router between the hosts, if there is one.
    pub fn router(&mut self) -> Result<&mut Router> {
        self.router.as_mut().context("between these VMs there is no router")
    }

    /// Returns the index of a VM of this pair: 0 is a, 1 is b.
    pub fn index(&self, vm: &Vm) -> usize {
        usize::from(vm.name() == self.b.name())
    }

    /// Whether the VMs have iWARP devices.
    pub fn is_iwarp(&self) -> bool {
        self.iwarp.is_some()
    }

    /// Returns whose TCP carries the connections of vrdma's iWARP devices.
    pub fn tcp(&self) -> Option<Tcp> {
        self.iwarp
    }

    /// Returns the RDMA device of a VM.
    pub fn device(&self, vm: &Vm) -> Device {
        self.devices()[self.index(vm)]
    }

    /// Returns the RDMA devices of VMs a and b.
    pub fn devices(&self) -> [Device; 2] {
        match self.topology {
            Topology::OneHost if self.backends.is_empty() => [Device::Rxe; 2],
            Topology::OneHost => [Device::Vrdma; 2],
            Topology::Wire(devices) => devices,
        }
    }

    /// Returns the backend's socket for a guest that is not a VM.
    pub fn third_socket(&self) -> PathBuf {
        self.sockets.path().join(format!("{THIRD}.rdma"))
    }

    /// Returns the accelerator of the VMs.
    pub fn accel(&self) -> Accel {
        self.accel
    }

    /// Returns how the project's programs were built.
    pub fn build(&self) -> Build {
        self.build
    }

    /// Returns the VMs' kernel.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// How many times longer things may take than under KVM with Debian's kernel.
    pub fn slowness(&self) -> u32 {
        self.accel.slowness() * self.kernel.slowness()
    }

    /// Returns a time limit.
    ///
    /// `seconds` is the longest duration under KVM, on a machine that has nothing else to do.
    pub fn patience(&self, seconds: u64) -> Duration {
        /// How many times slower a busy machine may be.
        const BUSY: u32 = 3;
        Duration::from_secs(seconds) * BUSY * self.slowness()
    }

    /// Returns the directory of this run, with its logs and its share.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the directory that both VMs see as `/share`.
    pub fn share(&self) -> PathBuf {
        self.directory.join("share")
    }

    /// Returns what helps after a failure: the ends of the backends' logs and of the kernel logs.
    pub fn post_mortem(&self) -> String {
        let mut text = String::new();
        for backend in &self.backends {
            let log = backend.log();
            text += &format!("backend ({}):\n{}\n", log.display(), indent(&ui::tail(log, 20)));
            // The counters may show where something got lost.
            let stats = backend.stats().and_then(|stats| {
                paths::write(&log.with_extension("stats.json"), serde_json::to_string_pretty(&stats)?)
            });
            if let Err(error) = stats {
                text += &format!("what it counted is lost: {error:#}\n");
            }
        }
        for vm in self.vms() {
            text += &format!("VM {}'s kernel:\n{}\n", vm.name(), indent(&vm.dmesg(15)));
        }
        text + &format!("all logs: {}", self.directory.display())
    }
}

/// Returns the sockets of a VM's RDMA functions, in the order of its devices.
fn function_sockets(config: &PairConfig, name: &str, sockets: &Path) -> Vec<PathBuf> {
    let first = config.both.then(|| super::hosts::second(sockets, name));
    let last = config.rails.then(|| sockets.join(format!("{}.rdma", rail(name))));
    first.into_iter().chain([sockets.join(format!("{name}.rdma"))]).chain(last).collect()
}

fn vm_config(
    pair: &PairConfig,
    accel: Accel,
    index: usize,
    net: Net,
    rdma: Vec<RdmaDevice>,
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
        kernel_words: format!("{} {}{}", pair.kernel.words(), pair.kernel_words, iommu_words(pair, index)),
        slowness: accel.slowness() * pair.kernel.slowness(),
        extra: Vec::new(),
    }
}

/// Makes the image and builds what goes into the VMs.
///
/// The backend needs no root, so it is built at the same time.
fn prepare(config: &PairConfig) -> Result<(Accel, Image, Artefacts)> {
    needs::ensure()?;
    artefacts::announce(&config.without, config.build);
    let mut within = config.without.clone();
    within.push(Part::Backend);
    let (image, artefacts) = thread::scope(|scope| -> Result<_> {
        let backend = scope.spawn(|| artefacts::backend_unless(&config.without, config.build));
        let image = config.kernel.image(image::ensure()?)?;
        let artefacts = artefacts::build(&within, config.kernel, config.build)?;
        let backend = backend.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((image, Artefacts { backend, ..artefacts }))
    })?;
    // KVM is probed with the usual kernel, which boots at once, and after the compilers have ended.
    // A kernel that boots too slowly would be taken for missing KVM.
    let accel = probe::choose(&image::ensure()?)?;
    Ok((accel, image, artefacts))
}

/// Returns the IOMMU words for a kernel's command line.
fn iommu_words(pair: &PairConfig, index: usize) -> &'static str {
    match (pair.iommu, index) {
        (false, _) => "",
        (true, 0) => " intel_iommu=on iommu=nopt",
        (true, _) => " intel_iommu=on iommu=pt",
    }
}

/// The id of a VM's root port without a device.
pub const SPARE_PORT: &str = "spare";

/// Returns additional arguments for a VM's QEMU.
fn more_of_qemu(pair: &PairConfig, accel: Accel, index: usize, sockets: &Path) -> Vec<String> {
    let mut more: Vec<String> = Vec::new();
    if pair.root_ports {
        more.extend(["-m", "slots=4,maxmem=8G"].map(str::to_owned));
        more.extend(["-device".into(), format!("pcie-root-port,id={SPARE_PORT},chassis=9")]);
    }
    if pair.iommu {
        // QEMU remaps the interrupts, so the kernel must not emulate all of the interrupt
        // controllers.
        if accel == Accel::Kvm {
            more.extend(["-machine", "kernel-irqchip=split"].map(str::to_owned));
        }
        more.extend(["-device", "intel-iommu,intremap=on,caching-mode=on"].map(str::to_owned));
    }
    if pair.rails {
        let socket = sockets.join(format!("{}.net", rail(NAMES[index])));
        more.extend(["-chardev".into(), format!("socket,id=rail,path={}", socket.display())]);
        more.extend(["-netdev", "vhost-user,id=rail,chardev=rail"].map(str::to_owned));
        let mac = mac(rail_index(index));
        more.extend(["-device".into(), format!("virtio-net-pci,netdev=rail,mac={mac},romfile=")]);
    }
    more
}
