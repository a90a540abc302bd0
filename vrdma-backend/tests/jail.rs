//! Tests what the program can do once it is in its jail.
//!
//! Shows: jail.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

#[path = "../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;

/// The number of the user nobody.
const NOBODY: u32 = 65534;

/// Kinds of threads, as the probe names them.
const KINDS: [&str; 9] =
    ["start", "main", "worker", "session", "manager", "admin", "sockets", "helper", "uplink"];

/// Whether this is root. If not, it reports that a test is skipped.
fn is_root() -> bool {
    // SAFETY: this is a plain system call.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        skipped("namespaces and other users need root");
    }
    is_root
}

/// Reports a skipped test on stderr, which the test harness does not capture.
fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "{}: skipped: {why}", thread.name().unwrap_or("a test"));
}

/// A directory for sockets, with a guest that has both functions.
struct Dir(TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the program with this guest and an admin socket.
    fn program(&self) -> Command {
        self.program_by(Command::new(env!("CARGO_BIN_EXE_vrdma-backend")))
    }

    fn program_by(&self, mut command: Command) -> Command {
        let (rdma, net) = (self.path("a"), self.path("net"));
        let guest = format!("name=a,socket={},net={},mac=52:54:00:00:00:01", rdma.display(), net.display());
        command.args(["--guest", &guest, "--observe", "none"]).arg("--admin").arg(self.path("admin"));
        command
    }

    fn stats(&self) -> Value {
        let mut stream = UnixStream::connect(self.path("admin")).unwrap();
        writeln!(stream, "stats").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// A running daemon. When dropped, it has to end by SIGTERM without a failure.
struct Running {
    child: Child,
    log: Vec<String>,
    lines: Receiver<String>,
}

impl Running {
    fn spawn(command: &mut Command) -> Running {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut log = Vec::new();
        while !log.last().is_some_and(|line: &String| line.contains("] ready: ")) {
            log.push(lines.next().unwrap_or_else(|| panic!("not ready: {log:?}")).unwrap());
        }
        let (written, since) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).all(|line| written.send(line).is_ok()));
        Running { child, log, lines: since }
    }

    /// Returns fields of `/proc/PID/task/TID/status`, by thread's name and number.
    fn threads(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let status = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("status")).unwrap();
            let fields = text.lines().filter_map(|line| line.split_once(':'));
            let fields = fields.map(|(key, value)| (key.to_owned(), value.trim().to_owned()));
            let fields: BTreeMap<_, _> = fields.collect();
            (format!("{} {}", fields["Name"], fields["Pid"]), fields)
        };
        tasks.map(|task| status(task.unwrap())).collect()
    }

    fn warnings(&self) -> Vec<&String> {
        self.log.iter().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: this is a plain system call. The process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) }, 0);
        let status = self.child.wait().unwrap();
        assert!(status.success() || std::thread::panicking(), "{status}: {:?}", self.log);
    }
}

/// Returns a command that starts a program without these capabilities.
fn without(capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={capabilities}")).arg(format!("--inh-caps={capabilities}"));
    command.arg(env!("CARGO_BIN_EXE_vrdma-backend"));
    command
}

#[cfg(debug_assertions)]
fn probe(mut command: Command, what: &str, options: &[&str]) -> Output {
    command.args(options).args(["--jail-probe", what]).output().unwrap()
}

/// Whether the kernel ended the program for a system call.
#[cfg(debug_assertions)]
fn is_killed(output: &Output) -> bool {
    output.status.signal() == Some(libc::SIGSYS)
}

#[cfg(debug_assertions)]
#[test]
fn what_no_thread_may_do_is_stopped_in_each() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    let asked = ["--sandbox", "namespace", "--seccomp", "kill"];
    for kind in KINDS {
        for what in [
            "open",
            "execve",
            "ptrace",
            "mount",
            "setuid",
            "mmap-exec",
            "socket-inet",
            "socket-vsock",
            "fork",
        ] {
            let output = probe(dir.program(), &format!("{kind}:{what}"), &asked);
            assert!(is_killed(&output), "{kind}: {what}: {output:?}");
        }
        // Some threads open files. None sees this one.
        let output = probe(dir.program(), &format!("{kind}:file-outside"), &asked);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            is_killed(&output) || said == "refused: No such file or directory (os error 2)",
            "{kind}: {output:?}"
        );
    }
}

#[cfg(debug_assertions)]
#[test]
fn each_wall_of_the_jail_stands_alone() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    let said = |command: Command, what: &str, options: &[&str]| {
        let output = probe(command, what, options);
        assert!(output.status.success(), "{what}, {options:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let nothing = ["--sandbox", "none", "--seccomp", "none"];
    for what in ["worker:file-outside", "worker:mmap-exec", "worker:socket-inet", "worker:open"] {
        assert_eq!(said(dir.program(), what, &nothing), "allowed", "{what}: the probe can do it");
    }
    // Capabilities, without filters.
    assert!(said(dir.program(), "worker:mount", &nothing).contains("not permitted"));
    // The root, without filters.
    let sandbox = ["--sandbox", "namespace", "--seccomp", "none"];
    assert!(said(dir.program(), "worker:file-outside", &sandbox).contains("No such file"));
    // Landlock, without the root.
    let landlock = said(dir.program_by(without("-sys_admin")), "worker:file-outside", &["--seccomp", "none"]);
    assert!(landlock.contains("Permission denied"), "{landlock}");
    // Filters that only report.
    assert_eq!(said(dir.program(), "worker:mmap-exec", &["--seccomp", "log"]), "allowed");
}

#[test]
fn all_threads_give_up_what_they_do_not_need() {
    if !is_root() {
        return;
    }
    // CAP_NET_ADMIN and CAP_NET_RAW are bits 12 and 13, CAP_IPC_LOCK is bit 14, CAP_CHOWN bit 0.
    let kept = [
        (vec![], 0),
        (vec!["--uplink", "net_packet0,iface=va"], 0x3000),
        (vec!["--uplink", "net_af_packet0,iface=va", "--workers", "2"], 0x7000),
        (vec!["--uplink", "net_ring0", "--eal", "--no-huge -m 64"], 0),
    ];
    if !namespace() {
        return;
    }
    for (options, capabilities) in kept {
        let dir = Dir::new();
        chown(dir.0.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let running =
            Running::spawn(dir.program().args(["--user", "nobody", "--mtu", "1500"]).args(&options));
        assert!(running.warnings().is_empty(), "{:?}", running.log);
        let threads = running.threads();
        assert!(threads.len() > 5, "{threads:?}");
        for (name, status) in &threads {
            let of = |key: &str| status[key].as_str();
            let user = NOBODY.to_string();
            assert!(of("Uid").split_whitespace().all(|id| id == user), "{name}: {}", of("Uid"));
            assert!(of("Gid").split_whitespace().all(|id| id != "0"), "{name}: {}", of("Gid"));
            assert_eq!((of("NoNewPrivs"), of("Seccomp")), ("1", "2"), "{name}");
            for set in ["CapBnd", "CapInh", "CapAmb"] {
                assert_eq!(u64::from_str_radix(of(set), 16), Ok(0), "{name}: {set}");
            }
            for set in ["CapPrm", "CapEff"] {
                let has = u64::from_str_radix(of(set), 16).unwrap();
                let expected = if is_dpdks(name) { 0 } else { capabilities };
                assert_eq!(has, expected, "{name}: {set}, {options:?}");
            }
        }
        assert!(dir.stats()["version"].is_string());
        drop(running);
        assert!(!dir.path("a").exists() && !dir.path("admin").exists());
    }
}

/// Whether DPDK has made this thread.
fn is_dpdks(thread: &str) -> bool {
    ["eal", "dpdk", "rte_", "intr", "telemetry"].iter().any(|name| thread.contains(name))
}

#[test]
fn what_cannot_be_had_is_one_warning_or_an_error() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    let running = Running::spawn(&mut dir.program_by(without("-sys_admin,-setpcap")));
    let warnings = running.warnings();
    assert_eq!(warnings.len(), 1, "{:?}", running.log);
    assert!(warnings[0].contains("the jail has gaps here") && warnings[0].contains("namespaces: "));
    drop(running);
    let output = dir.program_by(without("-sys_admin")).args(["--sandbox", "namespace"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("jail: namespaces: unshare: start the daemon as root, or give `--sandbox none`"),
        "{said}"
    );
    // A service has the namespaces of its unit.
    let mut service = dir.program_by(without("-sys_admin"));
    let running = Running::spawn(&mut as_service(&service));
    assert!(running.warnings().is_empty(), "{:?}", running.log);
    drop(running);
    // Others that systemd starts have that variable from their parent.
    let running = Running::spawn(service.env("SYSTEMD_EXEC_PID", "1"));
    assert_eq!(running.warnings().len(), 1, "{:?}", running.log);
}

/// Returns the command as systemd starts the main process of a service.
fn as_service(command: &Command) -> Command {
    let mut service = Command::new("sh");
    service.args(["-c", "export SYSTEMD_EXEC_PID=$$; exec \"$@\"", "sh"]);
    service.arg(command.get_program()).args(command.get_args());
    service
}

/// The usual user is taken if it can be had. Programs before this one stayed root, and their unit
/// forbids to change the user.
#[test]
fn a_root_that_cannot_change_its_user_stays_root_unless_asked() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    chown(dir.0.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let output = dir.program_by(without("-setuid")).args(["--user", "nobody"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("jail: user nobody: only a process with CAP_SETUID becomes another user"),
        "{said}"
    );
    assert!(!dir.path("a").exists(), "it is told before anything is opened");
}

#[test]
fn a_user_that_cannot_be_had_is_told() {
    let dir = Dir::new();
    let output = dir.program().args(["--user", "nobody-at-all"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("give a user of this host, by name or number"), "{said}");
    if !is_root() {
        return;
    }
    let output = dir.program().args(["--user", "4000000001"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("jail: user = 4000000001: this host has no such user"), "{said}");
}

/// Creates a network namespace with a veth, for this thread and what it starts. Returns false
/// without root.
fn namespace() -> bool {
    // SAFETY: this is a plain system call.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        skipped("a network namespace needs root");
        return false;
    }
    veth();
    true
}

fn veth() {
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}

#[test]
fn an_interface_that_comes_back_is_taken_within_the_jail() {
    if !namespace() {
        return;
    }
    for uplink in ["net_packet0,iface=va", "net_af_packet0,iface=va"] {
        let dir = Dir::new();
        chown(dir.0.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let options =
            ["--user", "nobody", "--sandbox", "namespace", "--seccomp", "kill", "--uplink-mtu", "4200"];
        let running = Running::spawn(dir.program().args(options).args(["--uplink", uplink]));
        let heard = |text: &str| while !wait::receive(text, &running.lines).contains(text) {};
        for _ in 0..2 {
            ip("link del va");
            heard("the interface va is gone");
            veth();
            heard("the interface va is there again");
            wait::until("the link", || (dir.stats()["link"]["up"] == true).then_some(()));
            let shown = Command::new("ip").args(["-o", "-d", "link", "show", "va"]).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            assert!(shown.contains(" mtu 4200 ") && shown.contains("promiscuity 1"), "{uplink}: {shown}");
        }
    }
}

#[test]
fn relative_paths_and_links_lead_to_the_same_sockets() {
    let dir = Dir::new();
    fs::create_dir_all(dir.path("real/inner")).unwrap();
    std::os::unix::fs::symlink(dir.path("real"), dir.path("link")).unwrap();
    let link = dir.path("link/s");
    let guest = format!("name=a,socket=inner/a,net={},mac=52:54:00:00:00:01", link.display());
    let mut program = Command::new(env!("CARGO_BIN_EXE_vrdma-backend"));
    program.current_dir(dir.path("real")).args(["--guest", &guest, "--admin", "admin", "--observe", "none"]);
    let running = Running::spawn(&mut program);
    let sockets = ["real/inner/a", "real/s", "real/admin"].map(|name| dir.path(name));
    for socket in &sockets {
        UnixStream::connect(socket).unwrap();
        fs::remove_file(socket).unwrap();
    }
    for socket in &sockets {
        wait::until("a socket bound anew", || UnixStream::connect(socket).ok());
    }
    drop(running);
    assert!(sockets.iter().all(|socket| !socket.exists()));
}
