//! The wire between the lab's hosts: network namespaces, a switch that joins them, and captures.
//!
//! Nothing here has a name outside. A namespace lives as long as the process that holds it.
//! Interfaces are made inside a namespace and end with it. So nothing is left behind, however xtask
//! ends.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::proc::{self, Proc, indent};
use crate::{paths, ui, wait};

/// MTU of the wire: RoCE's path MTU of 4096 bytes with all headers fits.
pub const JUMBO: u32 = 9000;

/// A network namespace without addresses, in which the host's kernel sends nothing by itself.
pub struct Namespace {
    holder: Proc,
}

impl Namespace {
    /// Makes a namespace.
    pub fn new(name: &str) -> Result<Self> {
        // This comes before any interface: otherwise IPv6 would add addresses and announce them.
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

    /// Returns the path of a file that refers to this namespace.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// Returns the command, run in this namespace.
    pub fn enter(&self, command: &Command) -> Command {
        enter(&self.path(), command)
    }

    /// Allows IPv6 on an interface, which is off otherwise.
    pub fn enable_ipv6(&self, interface: &str) -> Result<()> {
        self.set(&format!("ipv6/conf/{interface}/disable_ipv6"), "0")
    }

    /// Sets a network parameter of the namespace (sysctl(8), below `net`).
    pub fn set(&self, parameter: &str, value: &str) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $2 >/proc/sys/net/$1", "sh", parameter, value]);
        proc::output(self.enter(&command)).map(|_| ())
    }

    /// Makes a cable to another namespace. It ends in interface `port` here, and in `interface`
    /// there.
    pub fn cable(&self, port: &str, there: &Namespace, interface: &str) -> Result<()> {
        let (queue, id) = ("txqueuelen 10000", there.holder.id());
        self.run(&format!(
            "ip link add name {port} mtu {JUMBO} {queue} type veth peer name {interface} mtu {JUMBO} {queue} netns {id}"
        ))?;
        // Packets leave as they were sent, without segmentation.
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

/// Returns the command, run in the network namespace of a file.
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

/// A switch: the bridge in a namespace of its own.
pub struct Wire {
    namespace: Namespace,
}

/// The bridge's name.
const BRIDGE: &str = "wire";

impl Wire {
    /// Makes a switch without cables.
    pub fn new() -> Result<Self> {
        let namespace = Namespace::new("wire")?;
        // Snooping is off: nobody joins multicast groups, but neighbour discovery needs its frames
        // flooded.
        namespace.run(&format!("ip link add name {BRIDGE} type bridge stp_state 0 mcast_snooping 0"))?;
        namespace.run(&format!("ip link set dev {BRIDGE} mtu {JUMBO} up"))?;
        Ok(Self { namespace })
    }

    /// Returns the namespace of the switch's ports.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Connects a host by a cable. It ends in interface `port` here, and in `interface` there.
    pub fn plug(&self, port: &str, host: &Namespace, interface: &str) -> Result<()> {
        self.namespace.cable(port, host, interface)?;
        self.join(port)
    }

    /// Adds a tap device as a port, for a VM whose QEMU runs in [`Self::namespace`].
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

    /// Records the RoCE packets that pass a port, in both directions, until [`Capture::finish`].
    pub fn capture(&self, port: &str, file: &Path) -> Result<Capture> {
        Capture::start(self, port, &["udp", "port", "4791"], file)
    }

    /// Records the TCP segments that pass a port, which include iWARP's.
    pub fn capture_tcp(&self, port: &str, file: &Path) -> Result<Capture> {
        Capture::start(self, port, &["tcp"], file)
    }

    /// Records all frames that pass a port. Each is written at once: see [`Capture::wait_for`].
    pub fn capture_all(&self, port: &str, file: &Path) -> Result<Capture> {
        Capture::start(self, port, &["-U"], file)
    }
}

/// A running capture.
pub struct Capture {
    tcpdump: Proc,
    file: PathBuf,
    log: PathBuf,
}

impl Capture {
    /// Starts tcpdump with these words: options, and a filter for frames.
    fn start(wire: &Wire, port: &str, words: &[&str], file: &Path) -> Result<Self> {
        let log = file.with_extension("log");
        let mut command = guest_root_program("usr/bin/tcpdump");
        // The buffer has 256 MiB, because VMs may keep the machine busy.
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

    /// Waits until the file contains a frame with these bytes, and so all earlier frames.
    ///
    /// When tcpdump ends, it drops frames that it has not read from the kernel.
    pub fn wait_for(&self, bytes: &[u8]) -> Result<()> {
        wait::until("a frame to be captured", wait::PATIENCE, || {
            let captured = std::fs::read(&self.file)?;
            let is_there = captured.windows(bytes.len()).any(|part| part == bytes);
            Ok(if is_there { Ok(()) } else { Err(format!("{} bytes of others", captured.len())) })
        })
    }

    /// Ends the capture and returns its file. Fails if it missed packets.
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

/// Returns a command for a program of the guest root, run here by that root's own loader.
fn guest_root_program(path: &str) -> Command {
    let root = paths::guest_root();
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu")).arg(root.join(path));
    command
}
