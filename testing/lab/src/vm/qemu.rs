//! QEMU's command line for a test VM.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use vrdma_vm_agent::PORT;

use crate::accel::Accel;
use crate::image::Image;
use crate::paths;
use crate::vm::qmp;
use crate::vm::wire::JUMBO;

/// The vrdma device in a VM, as QEMU's generic vhost-user device.
#[derive(Clone, Debug)]
pub struct RdmaDevice {
    /// The backend's socket for this guest.
    pub socket: PathBuf,
    /// Virtio device id.
    ///
    /// QEMU refuses 42, which has no name in its table. So the driver also accepts 38, if the
    /// device has vrdma's magic number.
    pub virtio_id: u32,
    /// Number of virtqueues.
    pub num_vqs: u32,
    /// Entries of each virtqueue.
    pub vq_size: u32,
    /// Size of the config space in bytes.
    pub config_size: u32,
    /// Whether it is behind a PCIe root port, as hardware is.
    ///
    /// If so, its function can be reset and unplugged.
    pub behind_port: bool,
}

impl RdmaDevice {
    /// Returns a device with the usual sizes: two completion vectors, and this number of channels.
    pub fn new(socket: PathBuf, channels: u16, behind_port: bool) -> Self {
        // The control queue, the queue of asynchronous events, and a queue for each vector.
        let num_vqs = 2 + 2 + u32::from(channels);
        Self { socket, virtio_id: 38, num_vqs, vq_size: 256, config_size: 256, behind_port }
    }

    /// Returns the properties for `-device` and `device_add`. `index` is the device's place in the
    /// VM.
    pub fn properties(&self, index: usize) -> Value {
        let mut properties = json!({
            "driver": "vhost-user-test-device-pci",
            "id": format!("rdma{index}"),
            "chardev": format!("rdma{index}"),
            "virtio-id": self.virtio_id,
            "num_vqs": self.num_vqs,
            "vq_size": self.vq_size,
            "config_size": self.config_size,
            "page-per-vq": true,
        });
        if self.behind_port {
            properties["bus"] = json!(format!("port{index}"));
        }
        properties
    }
}

/// How a VM's Ethernet device is attached.
#[derive(Clone, Debug)]
pub enum Net {
    /// It listens on the socket for the other VM.
    Listen(PathBuf),
    /// It connects to the other VM's socket, and reconnects.
    Connect(PathBuf),
    /// QEMU's own device on a tap device. QEMU runs in the network namespace of that device.
    Tap {
        /// A file that refers to the namespace.
        namespace: PathBuf,
        /// The tap device, which must exist.
        interface: String,
    },
    /// The backend's Ethernet function.
    VhostUser(PathBuf),
}

impl Net {
    /// Returns QEMU's arguments for the back end `net`, and properties of the front-end device.
    fn arguments(&self) -> (Vec<String>, String) {
        let stream = |link: String| format!("stream,id=net,{link},addr.type=unix");
        match self {
            Self::Listen(path) => {
                let netdev = stream(format!("server=on,addr.path={}", path.display()));
                (vec!["-netdev".into(), netdev], String::new())
            }
            Self::Connect(path) => {
                let link = format!("server=off,addr.path={},reconnect-ms=200", path.display());
                (vec!["-netdev".into(), stream(link)], String::new())
            }
            Self::Tap { interface, .. } => {
                let netdev = format!("tap,id=net,ifname={interface},script=no,downscript=no,vhost=off");
                // Offloads are off, so that captures of the wire show whole packets with valid
                // checksums.
                let off = "csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,\
                           guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,mrg_rxbuf=on";
                (vec!["-netdev".into(), netdev], format!(",host_mtu={JUMBO},{off}"))
            }
            Self::VhostUser(path) => {
                let chardev = format!("socket,id=ethernet,path={}", path.display());
                let netdev = "vhost-user,id=net,chardev=ethernet".to_owned();
                let arguments = vec!["-chardev".into(), chardev, "-netdev".into(), netdev];
                (arguments, format!(",host_mtu={JUMBO},rx_queue_size=1024"))
            }
        }
    }
}

/// The configuration of a VM.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Its name, which is also its host name.
    pub name: String,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB. It is shared with the backend.
    pub memory: u32,
    /// MAC address of the virtio-net device, and of the RDMA function.
    pub mac: String,
    /// IPv4 address with prefix length.
    pub ip: String,
    /// The Ethernet link.
    pub net: Option<Net>,
    /// Its vrdma devices.
    pub rdma: Vec<RdmaDevice>,
    /// Directory that the guest sees as `/share`.
    pub share: PathBuf,
    /// Additional words for the kernel's command line.
    pub kernel_words: String,
    /// How many times longer things may take than under KVM.
    pub slowness: u32,
    /// Additional arguments for QEMU.
    pub extra: Vec<String>,
}

/// Paths of a VM's sockets and logs.
#[derive(Clone, Debug)]
pub struct Places {
    /// The socket of the agent's port.
    pub agent: PathBuf,
    /// The socket of the serial port with a shell.
    pub shell: PathBuf,
    /// The socket of QEMU's monitor.
    pub monitor: PathBuf,
    /// The log of the kernel's console.
    pub console: PathBuf,
    /// The log of QEMU's output.
    pub qemu: PathBuf,
}

/// Kernel words that speed up the boot, and turn off what a test VM does not need.
const KERNEL_WORDS: &str = "console=ttyS0 quiet loglevel=5 mitigations=off lsm=capability audit=0 ima_appraise=off \
    nowatchdog no_timer_check tsc=reliable cryptomgr.notests random.trust_cpu=on 8250.nr_uarts=2";

/// The machine type, without devices that would only delay the kernel's boot.
const MACHINE: &str = "q35,memory-backend=mem,hpet=off,smm=off,sata=off,vmport=off,i8042=off,usb=off";

/// Returns the command for QEMU, run by its root's own loader.
///
/// So neither a chroot nor a mount is needed.
pub fn program() -> Command {
    let root = paths::qemu_root();
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu"));
    command.arg(root.join("usr/bin/qemu-system-x86_64"));
    command.env("QEMU_MODULE_DIR", root.join("usr/lib/x86_64-linux-gnu/qemu"));
    for firmware in ["usr/share/qemu", "usr/share/seabios"] {
        command.arg("-L").arg(root.join(firmware));
    }
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    command
}

/// Adds the arguments that every VM shares: accelerator, kernel and root file system.
pub fn machine(command: &mut Command, image: &Image, accel: Accel, cpus: u32, memory: u32) {
    match accel {
        Accel::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
        Accel::Tcg => command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
    };
    command.args(["-machine", MACHINE, "-m", &memory.to_string(), "-smp", &cpus.to_string()]);
    command.args(["-object", &format!("memory-backend-memfd,id=mem,size={memory}M,share=on")]);
    command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
    let file = image.root.display();
    command.args(["-drive", &format!("if=none,id=root,file={file},format=raw,readonly=on,file.locking=off")]);
    command.args(["-device", "virtio-blk-pci,drive=root"]);
}

/// Returns the whole command line of a VM.
pub fn command(config: &VmConfig, image: &Image, accel: Accel, places: &Places) -> Command {
    let mut command = program();
    machine(&mut command, image, accel, config.cpus, config.memory);
    command.args(["-name", &format!("{},debug-threads=on", config.name)]);
    let socket = |id: &str, path: &Path| format!("socket,id={id},path={},server=on,wait=off", path.display());
    command.args(["-chardev", &format!("file,id=console,path={},append=on", places.console.display())]);
    command.args(["-serial", "chardev:console"]);
    command.args(["-chardev", &socket("shell", &places.shell), "-serial", "chardev:shell"]);
    command.args(qmp::arguments(&places.monitor));
    command.args(["-chardev", &socket("agent", &places.agent), "-device", "virtio-serial-pci"]);
    command.args(["-device", &format!("virtserialport,chardev=agent,name={PORT}")]);
    let share = config.share.display();
    command.args([
        "-virtfs",
        &format!("local,path={share},mount_tag=share,security_model=none,multidevs=remap"),
    ]);
    if let Some(net) = &config.net {
        let (arguments, properties) = net.arguments();
        command.args(arguments);
        let mac = &config.mac;
        command.args(["-device", &format!("virtio-net-pci,netdev=net,mac={mac},romfile={properties}")]);
    }
    for (index, rdma) in config.rdma.iter().enumerate() {
        command.args(["-chardev", &format!("socket,id=rdma{index},path={}", rdma.socket.display())]);
        if rdma.behind_port {
            let chassis = index + 1;
            command.args(["-device", &format!("pcie-root-port,id=port{index},chassis={chassis}")]);
        }
        command.args(["-device", &rdma.properties(index).to_string()]);
    }
    let VmConfig { name, ip, mac, kernel_words, .. } = config;
    let words = format!("{KERNEL_WORDS} vrdma.name={name} vrdma.ip={ip} vrdma.mac={mac} {kernel_words}");
    command.args(["-append", words.trim_end()]);
    command.args(&config.extra);
    command
}
