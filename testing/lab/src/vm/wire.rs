//! The wire between the lab's hosts: network namespaces, a switch that joins them, and captures of
//! what passes.
//!
//! Nothing here has a name outside: a namespace lives as long as the process that holds it,
//! interfaces are made inside and end with it. So nothing is left behind, however xtask ends.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::proc::{self, Proc, indent};
use crate::{paths, ui, wait};

/// Largest IP packet of the wire: room for RoCE's path MTU of 4096 bytes with all headers.
pub const JUMBO: u32 = 9000;

/// A network namespace without addresses: the host's kernel says nothing in it by itself.
pub struct Namespace {
    holder: Proc,
}

impl Namespace {
    /// Makes a namespace.
    pub fn new(name: &str) -> Result<Self> {
        // Before there is any interface: IPv6 would else give itself addresses and speak of them.
        const HOLD: &str = "for kind in all default; do
                echo 1 >/proc/sys/net/ipv6/conf/$kind/disable_ipv6 || exit 1
            done
            ip link set lo up && echo ready && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sh", "-c", HOLD]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut holder = Proc::spawn(&format!("the holder of namespace {name}"), command)?;
        let stdout = holder.child().stdout.take().context("no pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "cannot make the network namespace {name}: this wants root");
        Ok(Self { holder })
    }

    /// A file that names it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// The command, run in this namespace.
    pub fn enter(&self, command: &Command) -> Command {
        enter(&self.path(), command)
    }

    /// Lets an interface have IPv6, which is off otherwise.
    pub fn enable_ipv6(&self, interface: &str) -> Result<()> {
        self.set(&format!("ipv6/conf/{interface}/disable_ipv6"), "0")
    }

    /// Sets a parameter of its network (sysctl(8), below `net`).
    pub fn set(&self, parameter: &str, value: &str) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $2 >/proc/sys/net/$1", "sh", parameter, value]);
        proc::output(self.enter(&command)).map(|_| ())
    }

    /// Makes a cable to another namespace: the interface `port` here, `interface` there.
    pub fn cable(&self, port: &str, there: &Namespace, interface: &str) -> Result<()> {
        let (queue, id) = ("txqueuelen 10000", there.holder.id());
        self.run(&format!(
            "ip link add name {port} mtu {JUMBO} {queue} type veth peer name {interface} mtu {JUMBO} {queue} netns {id}"
        ))?;
        // What leaves is to be what was put in.
        there.run(&format!("ip link set dev {interface} gso_max_segs 1 up")).map(|_| ())
    }

    /// Runs a command line (words without quotes) in this namespace.
    pub fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().context("an empty command")?);
        command.args(words);
        proc::output(self.enter(&command)).with_context(|| format!("`{line}`"))
    }
}

/// The command, run in the network namespace that a file names.
pub fn enter(namespace: &Path, command: &Command) -> Command {
    let mut inside = Command::new("nsenter");
    inside.arg(format!("--net={}", namespace.display())).arg("--").arg(command.get_program());
    inside.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        inside.current_dir(directory);
    }
    inside
}

/// A switch, as the bridge of a namespace of its own.
pub struct Wire {
    namespace: Namespace,
}

/// The bridge's name.
const BRIDGE: &str = "wire";

impl Wire {
    /// A switch that nothing is plugged into.
    pub fn new() -> Result<Self> {
        let namespace = Namespace::new("wire")?;
        // Without snooping: nobody asks for multicast groups, and neighbour discovery wants them
        // flooded.
        namespace.run(&format!("ip link add name {BRIDGE} type bridge stp_state 0 mcast_snooping 0"))?;
        namespace.run(&format!("ip link set dev {BRIDGE} mtu {JUMBO} up"))?;
        Ok(Self { namespace })
    }

    /// The namespace of the switch's ports.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Joins a host by a cable: the interface `port` here, `interface` there.
    pub fn plug(&self, port: &str, host: &Namespace, interface: &str) -> Result<()> {
        self.namespace.cable(port, host, interface)?;
        self.join(port)
    }

    /// A port that is a tap device, for a VM whose QEMU runs in [`Self::namespace`].
    pub fn tap(&self, port: &str) -> Result<()> {
        self.namespace.run(&format!("ip tuntap add dev {port} mode tap"))?;
        self.namespace.run(&format!("ip link set dev {port} mtu {JUMBO} txqueuelen 10000"))?;
        self.join(port)
    }

    fn join(&self, port: &str) -> Result<()> {
        self.namespace.run(&format!("ip link set dev {port} master {BRIDGE} up")).map(|_| ())
    }

    /// Pulls a port's cable, or plugs it in again.
    pub fn set_link(&self, port: &str, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        self.namespace.run(&format!("ip link set dev {port} {state}")).map(|_| ())
    }

    /// Records the RoCE packets that pass a port, both ways, until [`Capture::finish`].
    pub fn capture(&self, port: &str, file: &Path) -> Result<Capture> {
        Capture::start(self, port, &["udp", "port", "4791"], file)
    }

    /// The same of TCP, which iWARP goes over.
    pub fn capture_tcp(&self, port: &str, file: &Path) -> Result<Capture> {
        Capture::start(self, port, &["tcp"], file)
    }

    /// Likewise of all frames. Each is in the file soon: see [`Capture::wait_for`].
    pub fn capture_all(&self, port: &str, file: &Path) -> Result<Capture> {
        Capture::start(self, port, &["-U"], file)
    }
}

/// A capture that runs.
pub struct Capture {
    tcpdump: Proc,
    file: PathBuf,
    log: PathBuf,
}

impl Capture {
    /// Captures by these words of tcpdump: options, and what frames are to be.
    fn start(wire: &Wire, port: &str, words: &[&str], file: &Path) -> Result<Self> {
        let log = file.with_extension("log");
        let mut command = guest_root_program("usr/bin/tcpdump");
        // A buffer of 256 MiB, for while the machine is busy with VMs.
        command.args(["-i", port, "-Z", "root", "-n", "-s", "0", "-B", "262144", "-w"]).arg(file);
        command.args(words);
        let mut command = wire.namespace.enter(&command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let mut tcpdump = Proc::spawn("tcpdump", command)?;
        wait::until("tcpdump to listen", wait::PATIENCE, || {
            let said = paths::read(&log)?;
            ensure!(tcpdump.try_wait()?.is_none(), "tcpdump ended\n{}", indent(&said));
            Ok(if said.contains("listening on") { Ok(()) } else { Err(said) })
        })?;
        Ok(Self { tcpdump, file: file.to_owned(), log })
    }

    /// Waits until a frame with these bytes is in the file, and so all that passed before it. At
    /// its end tcpdump leaves out what the kernel still keeps for it.
    pub fn wait_for(&self, bytes: &[u8]) -> Result<()> {
        wait::until("a frame to be captured", wait::PATIENCE, || {
            let captured = std::fs::read(&self.file)?;
            let is_there = captured.windows(bytes.len()).any(|part| part == bytes);
            Ok(if is_there { Ok(()) } else { Err(format!("{} bytes of others", captured.len())) })
        })
    }

    /// Ends the capture and says where it is. An error if it missed packets.
    pub fn finish(mut self) -> Result<PathBuf> {
        self.tcpdump.signal(Signal::SIGINT);
        self.tcpdump.wait(wait::PATIENCE).context("tcpdump")?;
        let said = paths::read(&self.log)?;
        ensure!(
            said.contains("\n0 packets dropped by kernel"),
            "the capture missed packets:\n{}",
            indent(&ui::tail(&self.log, 5))
        );
        Ok(self.file)
    }
}

/// A program of the guest root, run here by that root's own loader.
fn guest_root_program(path: &str) -> Command {
    let root = paths::guest_root();
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu")).arg(root.join(path));
    command
}
