//! Two VMs on one backend, as the demo and the VM tests use them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Net, RdmaDevice, Vm, VmConfig};
use crate::accel::Accel;
use crate::artefacts::{self, Part};
use crate::image::{self, Image};
use crate::proc::{Ephemeral, Proc, describe, indent};
use crate::{paths, ui};

/// What a pair looks like.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Parts of our device that are left out. Without the backend the VMs have Ethernet only.
    pub without: Vec<Part>,
    /// Virtual CPUs of each VM.
    pub cpus: u32,
    /// Memory of each VM in MiB.
    pub memory: u32,
    /// More words for the kernels' command lines.
    pub kernel_words: String,
    /// Channels of each VM's device, the kernel's included.
    pub channels: u16,
    /// Arguments for the backend; [`PairConfig::default`] has what suits the machine.
    pub backend_arguments: Vec<String>,
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
            kernel_words: String::new(),
            channels: 60,
            backend_arguments,
        }
    }
}

/// Two running VMs, their backend and their files.
///
/// Fields drop in this order: VMs first, so that the backend sees them leave.
pub struct Pair {
    /// The first VM, 10.77.0.1; the server in most tests.
    pub a: Vm,
    /// The second VM, 10.77.0.2.
    pub b: Vm,
    backend: Option<Backend>,
    accel: Accel,
    image: Image,
    directory: PathBuf,
    sockets: Ephemeral,
}

/// Addresses of the two VMs.
pub const IP: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// A guest that the backend waits for and that is no VM: tests may play it.
const THIRD: &str = "c";

impl Pair {
    /// Builds what is needed and boots both VMs.
    pub fn boot(config: &PairConfig) -> Result<Self> {
        let image = image::ensure()?;
        let artefacts = artefacts::build(&config.without)?;
        let accel = Accel::choose(&image)?;
        let directory = run_directory()?;
        let sockets = socket_directory()?;
        let share = directory.join("share");
        artefacts.lay_out(&share)?;
        let what = match accel {
            Accel::Kvm => "booting two VMs (KVM)",
            Accel::Tcg => "booting two VMs (no KVM here: emulated)",
        };
        ui::step(what, || {
            let backend = match &artefacts.backend {
                Some(program) => Some(Backend::start(program, sockets.path(), &directory, config)?),
                _ => None,
            };
            let vm = |index: usize| -> Result<Vm> {
                let config = vm_config(config, index, backend.is_some(), sockets.path(), &share);
                Vm::start(config, &image, accel, sockets.path(), &directory)
            };
            let mut a = vm(0)?;
            let mut b = vm(1)?;
            a.wait_booted()?;
            b.wait_booted()?;
            Ok((a, b, backend))
        })
        .map(|(a, b, backend)| Self { a, b, backend, accel, image, directory, sockets })
    }

    /// The VM called `a` or `b`.
    pub fn vm(&mut self, name: &str) -> Result<&mut Vm> {
        match name {
            "a" => Ok(&mut self.a),
            "b" => Ok(&mut self.b),
            _ => bail!("no VM {name}: there are a and b"),
        }
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

    /// The backend, if the pair has one.
    pub fn backend(&mut self) -> Result<&mut Backend> {
        self.backend.as_mut().context("this pair runs without the backend")
    }

    /// The backend's socket for a guest that is not a VM.
    pub fn third_socket(&self) -> PathBuf {
        self.sockets.path().join(format!("{THIRD}.rdma"))
    }

    /// What runs the guests.
    pub fn accel(&self) -> Accel {
        self.accel
    }

    /// A time limit for something that takes this long under KVM.
    pub fn patience(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds) * self.accel.slowness()
    }

    /// Logs and share of this run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory that both VMs see as `/share`.
    pub fn share(&self) -> PathBuf {
        self.directory.join("share")
    }

    /// What to look at after a failure: ends of the backend's log and of both kernels' messages.
    pub fn post_mortem(&self) -> String {
        let mut text = String::new();
        if let Some(backend) = &self.backend {
            text +=
                &format!("backend ({}):\n{}\n", backend.log.display(), indent(&ui::tail(&backend.log, 20)));
        }
        for vm in [&self.a, &self.b] {
            text += &format!("VM {}'s kernel:\n{}\n", vm.name(), indent(&vm.dmesg(15)));
        }
        text + &format!("all logs: {}", self.directory.display())
    }
}

fn vm_config(pair: &PairConfig, index: usize, rdma: bool, sockets: &Path, share: &Path) -> VmConfig {
    let name = ["a", "b"][index];
    let link = sockets.join("link");
    VmConfig {
        name: name.to_owned(),
        cpus: pair.cpus,
        memory: pair.memory,
        mac: mac(index),
        ip: format!("{}/24", IP[index]),
        net: Some(if index == 0 { Net::Listen(link) } else { Net::Connect(link) }),
        rdma: rdma.then(|| RdmaDevice::new(sockets.join(format!("{name}.rdma")), pair.channels)),
        share: share.to_owned(),
        kernel_words: pair.kernel_words.clone(),
        extra: Vec::new(),
    }
}

fn mac(index: usize) -> String {
    format!("52:54:00:77:00:{:02x}", index + 1)
}

/// A new directory for the logs of a run; old ones but a few are removed.
fn run_directory() -> Result<PathBuf> {
    const KEPT: usize = 8;
    let vm = paths::vm();
    let mut old: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(&vm)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("run-").and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !is_alive(pid)) {
            old.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    old.sort();
    for (_, path) in old.iter().rev().skip(KEPT) {
        paths::remove(path)?;
    }
    let directory = vm.join(format!("run-{}", std::process::id()));
    // A second pair of the same process starts over.
    paths::remove(&directory)?;
    paths::make_dir(&directory.join("share"))?;
    Ok(directory)
}

/// A directory with a short path for sockets. Those of xtasks that were killed are removed.
fn socket_directory() -> Result<Ephemeral> {
    let parent = std::env::temp_dir();
    for entry in fs::read_dir(&parent)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("vrdma-vm-").and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !is_alive(pid)) {
            paths::remove(&entry.path())?;
        }
    }
    let directory = parent.join(format!("vrdma-vm-{}", std::process::id()));
    paths::make_dir(&directory)?;
    Ok(Ephemeral::new(directory))
}

fn is_alive(pid: u32) -> bool {
    pid == std::process::id() || Path::new(&format!("/proc/{pid}")).exists()
}

/// The backend daemon of a pair.
pub struct Backend {
    proc: Proc,
    admin: PathBuf,
    log: PathBuf,
}

impl Backend {
    fn start(program: &Path, sockets: &Path, directory: &Path, config: &PairConfig) -> Result<Self> {
        let log = directory.join("backend.log");
        let admin = sockets.join("admin");
        let mut command = Command::new(program);
        let mut awaited = vec![admin.clone()];
        for (index, name) in ["a", "b", THIRD].iter().enumerate() {
            let socket = sockets.join(format!("{name}.rdma"));
            command.args(["--guest", &format!("name={name},socket={},mac={}", socket.display(), mac(index))]);
            awaited.push(socket);
        }
        command.arg("--admin").arg(&admin).args(["--channels", &config.channels.to_string()]);
        command.args(&config.backend_arguments);
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut proc = Proc::spawn("the backend", command)?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !awaited.iter().all(|socket| socket.exists()) {
            if let Some(status) = proc.try_wait()? {
                bail!("the backend: {}\n{}", describe(status), indent(&ui::tail(&log, 15)));
            }
            if Instant::now() > deadline {
                bail!("the backend made no sockets\n{}", indent(&ui::tail(&log, 15)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { proc, admin, log })
    }

    /// The backend's process id.
    pub fn pid(&self) -> u32 {
        self.proc.id()
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.proc.try_wait()?.is_none())
    }

    /// The backend's counters.
    pub fn stats(&self) -> Result<serde_json::Value> {
        let mut stream = UnixStream::connect(&self.admin).context("cannot connect to the admin socket")?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"stats\n")?;
        let mut lines = BufReader::new(stream);
        let mut text = String::new();
        // One JSON document, on one line or up to the end of the stream.
        loop {
            let length = lines.read_line(&mut text).context("cannot read from the admin socket")?;
            match serde_json::from_str(&text) {
                Ok(stats) => return Ok(stats),
                Err(error) if length == 0 => return Err(error).context("the admin socket gave no JSON"),
                Err(_) => {}
            }
        }
    }
}
