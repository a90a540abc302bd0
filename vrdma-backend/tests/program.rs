//! Tests the program as a person uses it: its output, and how it ends.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

mod sockets;
#[path = "../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;

const GUEST: [&str; 2] = ["--guest", "name=a,socket=/tmp/a,mac=52:54:00:00:00:01"];

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_vrdma-backend"))
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    for flag in ["--check", "--help"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = program().args(GUEST).arg(flag).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{flag}: {output:?}");
    }
    // Nobody reads the reason. The exit status still shows the failure.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = program().arg("--check").stdout(Stdio::null()).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn what_check_prints_can_be_fed_back() {
    let first = program().args(GUEST).arg("--check").output().unwrap();
    assert!(first.status.success(), "{first:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, &first.stdout).unwrap();
    let second = program().arg("--config").arg(file.path()).arg("--check").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&second.stdout), String::from_utf8_lossy(&first.stdout));
    assert!(second.status.success() && second.stderr.is_empty());
}

/// A running daemon. It is ended by SIGTERM when dropped.
struct Running {
    child: Child,
    /// The lines that it wrote until it was ready.
    log: Vec<String>,
    /// The lines that it wrote since.
    lines: Receiver<String>,
}

impl Running {
    fn start(arguments: &[&str]) -> Running {
        Running::spawn(program().args(arguments))
    }

    fn spawn(command: &mut Command) -> Running {
        sockets::only_named(command);
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

    /// Returns whether it wrote this text until it was ready.
    fn said(&self, text: &str) -> bool {
        self.log.iter().any(|line| line.contains(text))
    }

    fn signal(&self, signal: i32) {
        // SAFETY: this is a plain system call. The process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        let status = self.child.wait().unwrap();
        assert!(status.success() || std::thread::panicking(), "{status}: {:?}", self.log);
    }
}

/// Returns the output of a daemon that refuses to start.
fn refused(arguments: &[&str]) -> String {
    let output = program().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A directory that is deleted with the test.
struct Dir(TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(TempDir::new().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn guest(&self) -> String {
        format!("name=a,socket={}/a,mac=52:54:00:00:00:01", self.path().display())
    }
}

/// Reports a skipped test on stderr, which the test harness does not capture. The output of passing
/// tests is otherwise not shown.
fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "{}: skipped: {why}", thread.name().unwrap_or("a test"));
}

/// Creates a network namespace with a veth, for this thread and what it starts. Returns false
/// without root.
fn namespace() -> bool {
    // SAFETY: this is a plain system call.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        skipped("a network namespace needs root");
        return false;
    }
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
    true
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_daemon_that_is_refused_leaves_the_one_that_runs_alone() {
    if !namespace() {
        return;
    }
    let dir = Dir::new();
    let guest = dir.guest();
    let capture = dir.path().join("capture");
    let capture = capture.to_str().unwrap();
    let arguments = |mtu| {
        ["--guest", &guest, "--uplink", "net_af_packet0,iface=va", "--uplink-mtu", mtu, "--capture", capture]
    };
    let first = Running::start(&arguments("4200"));
    let mtu =
        |mtu| assert!(ip("-o link show va").contains(&format!(" mtu {mtu} ")), "{}", ip("-o link show va"));
    mtu(4200);
    let held = std::fs::metadata(capture).unwrap().len();
    let said = refused(&arguments("1400"));
    assert!(said.contains("guest a: socket: ") && said.contains("/a is in use by another process"), "{said}");
    mtu(4200);
    assert!(dir.path().join("a").exists() && std::fs::metadata(capture).unwrap().len() >= held);
    drop(first);
    mtu(1500);
    assert!(!dir.path().join("a").exists());
    // A later failure leaves nothing behind either.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(capture, &link).unwrap();
    let mut wrong = arguments("4200");
    wrong[7] = link.to_str().unwrap();
    assert!(refused(&wrong).contains("it is a symbolic link"));
    mtu(1500);
    assert!(!dir.path().join("a").exists());
}

#[test]
fn ready_names_what_is_served() {
    let dir = Dir::new();
    let path = dir.path().display();
    let guest = format!("{},net={path}/net", dir.guest());
    let admin = format!("{path}/admin");
    let running = Running::start(&["--guest", &guest, "--channels", "3", "--admin", &admin]);
    for part in [
        &format!("version {}", env!("CARGO_PKG_VERSION")),
        "num_vqs=7",
        "1 worker",
        "no uplink",
        &format!("admin socket {admin}"),
        &format!("guest a (RDMA {path}/a, Ethernet {path}/net)"),
    ] {
        assert!(running.log.last().unwrap().contains(part), "{part}: {:?}", running.log);
    }
    // It does not read the configuration again, and does not end.
    running.signal(libc::SIGHUP);
    assert!(running.lines.recv().unwrap().contains("SIGHUP is ignored"));
    assert!(ask(&UnixStream::connect(&admin).unwrap(), "stats").contains("\"version\""));
}

fn ask(mut stream: &UnixStream, request: &str) -> String {
    writeln!(stream, "{request}").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn a_client_that_is_silent_holds_up_nobody() {
    let dir = Dir::new();
    let admin = dir.path().join("admin");
    let _running = Running::start(&["--guest", &dir.guest(), "--admin", admin.to_str().unwrap()]);
    let connect = || UnixStream::connect(&admin).unwrap();
    let (silent, mut halting) = (connect(), connect());
    halting.write_all(b"sta").unwrap();
    let answer = ask(&connect(), "stats");
    for part in ["\"uptime\":", "\"link\":null", "\"connected\":{\"rdma\":false,\"net\":null}"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    // The other clients were not disconnected for it.
    assert!(ask(&halting, "ts").contains("\"version\""));
    assert!(ask(&silent, "colour").contains("known: stats"));
}

#[test]
fn silent_clients_of_the_admin_socket_delay_nobody() {
    let dir = Dir::new();
    let admin = dir.path().join("admin");
    let _running = Running::start(&["--guest", &dir.guest(), "--admin", admin.to_str().unwrap()]);
    let connect = || UnixStream::connect(&admin).unwrap();
    // A client has two seconds. On a slow machine the check may take longer than that, and is tried
    // again.
    wait::until("a client that is served beside silent ones", || {
        a_new_client_is_served_at_once(&connect).then_some(())
    });
}

/// Connects more clients than the admin socket has room for. Returns whether the last one is
/// answered.
///
/// The silent clients before it, except the oldest ones, must still be connected.
fn a_new_client_is_served_at_once(connect: &impl Fn() -> UnixStream) -> bool {
    let silent: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    assert!(ask(&connect(), "stats").contains("\"version\""));
    let is_served = |client: &UnixStream| {
        let mut line = String::new();
        let asked =
            writeln!(&mut &*client, "stats").and_then(|()| BufReader::new(client).read_line(&mut line));
        asked.is_ok() && line.contains("\"version\"")
    };
    is_served(&silent[20])
}

#[test]
fn sockets_whose_files_are_deleted_are_there_again() {
    deleted_sockets_are_there_again(&[], false);
}

/// A jail shows a directory, and not another one that has its name later.
#[test]
fn sockets_whose_directory_is_deleted_are_there_again_without_a_sandbox() {
    deleted_sockets_are_there_again(&["--sandbox", "none"], true);
}

fn deleted_sockets_are_there_again(options: &[&str], with_directory: bool) {
    let dir = Dir::new();
    let sockets = dir.path().join("run");
    std::fs::create_dir(&sockets).unwrap();
    let path = |name: &str| sockets.join(name).display().to_string();
    let guest = format!("name=a,socket={},net={},mac=52:54:00:00:00:01", path("a"), path("net"));
    let running = Running::start(&[&["--guest", &guest, "--admin", &path("admin")], options].concat());
    let expect_all_again = || {
        let mut left: BTreeSet<&str> = ["a", "net", "admin"].into();
        while !left.is_empty() {
            let line = wait::receive("a line for each socket", &running.lines);
            left.retain(|name| !line.contains(&format!("{} was deleted: it is bound anew", path(name))));
        }
        // Some lines may be about an earlier deletion.
        let connect = |name| wait::until("a socket bound anew", || UnixStream::connect(path(name)).ok());
        ["a", "net"].iter().for_each(|name| drop(connect(name)));
        assert!(ask(&connect("admin"), "stats").contains("\"version\""));
    };
    ["a", "net", "admin"].iter().for_each(|name| std::fs::remove_file(path(name)).unwrap());
    expect_all_again();
    if with_directory {
        // Deletes everything and the directory, as somebody who tidies up does. If that takes
        // longer than the daemon waits, sockets that are bound again are in the way.
        wait::until("a directory without sockets", || std::fs::remove_dir_all(&sockets).ok());
        std::fs::create_dir(&sockets).unwrap();
        expect_all_again();
    }
    drop(running);
    assert!(["a", "net", "admin"].iter().all(|name| !sockets.join(name).exists()));
}

#[test]
fn a_socket_that_nobody_reaches_is_told_in_the_counters() {
    let (dir, other) = (Dir::new(), Dir::new());
    let sockets = dir.path().join("run");
    std::fs::create_dir(&sockets).unwrap();
    let (guest, admin) = (format!("{}/a", sockets.display()), other.path().join("admin"));
    let guest = format!("name=a,socket={guest},net-connect=/nowhere,mac=52:54:00:00:00:01");
    // A jail has the directory of the start alone.
    let options = ["--sandbox", "none", "--guest", &guest, "--admin", admin.to_str().unwrap()];
    let _running = Running::start(&options);
    let expect = |part: &str| {
        wait::until(part, || {
            ask(&UnixStream::connect(&admin).unwrap(), "stats").contains(part).then_some(())
        });
    };
    expect("\"reachable\":{\"rdma\":true,\"net\":null}");
    // If that takes long, the socket is bound again and is in the way.
    wait::until("a directory without sockets", || std::fs::remove_dir_all(&sockets).ok());
    expect("\"reachable\":{\"rdma\":false,\"net\":null}");
    std::fs::create_dir(&sockets).unwrap();
    expect("\"reachable\":{\"rdma\":true,\"net\":null}");
}

/// Tests that a daemon may give a guest's socket to the VMM's group if it is a member of it, with
/// only the capabilities of the unit file.
#[test]
fn the_service_may_give_sockets_to_others() {
    // SAFETY: this is a plain system call.
    if unsafe { libc::geteuid() } != 0 {
        skipped("only root takes capabilities and groups");
        return;
    }
    let unit = include_str!("../../docs/vrdma-backend.service");
    let allowed = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let allowed: Vec<String> = allowed.split(' ').map(|name| name[4..].to_lowercase()).collect();
    let all = Command::new("setpriv").arg("--list-caps").output().unwrap();
    let all = String::from_utf8(all.stdout).unwrap();
    let dropped: Vec<String> = all
        .lines()
        .filter(|name| !allowed.iter().any(|each| each == name))
        .map(|name| format!("-{name}"))
        .collect();
    assert_eq!(dropped.len() + allowed.len(), all.lines().count(), "the unit names what is no capability");

    let dir = Dir::new();
    let (group, config, socket) = (12345, dir.path().join("toml"), dir.path().join("a"));
    let text = format!(
        "socket_group = '{group}'\n[[guest]]\nname = 'a'\nsocket = '{}'\nmac = '52:54:00:00:00:01'",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    // As systemd starts the main process of a service.
    let mut command = Command::new("sh");
    command.args(["-c", "export SYSTEMD_EXEC_PID=$$; exec \"$@\"", "sh", "setpriv", "--no-new-privs"]);
    command.arg(format!("--bounding-set={}", dropped.join(","))).arg(format!("--groups={group}"));
    let _running =
        Running::spawn(command.arg(env!("CARGO_BIN_EXE_vrdma-backend")).arg("--config").arg(&config));
    let socket = std::fs::metadata(&socket).unwrap();
    assert_eq!((socket.gid(), socket.permissions().mode() & 0o777), (group, 0o660));
}

#[test]
fn an_admin_socket_is_private() {
    let dir = Dir::new();
    let admin = dir.path().join("admin");
    let _running = Running::start(&["--guest", &dir.guest(), "--admin", admin.to_str().unwrap()]);
    for path in [admin, dir.path().join("a")] {
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
}

/// Returns the keys in the tables of docs/monitoring.md, by the heading above them.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = include_str!("../../docs/monitoring.md");
    let (_, text) = text.split_once("\n## Counters\n").unwrap();
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = "";
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            section = heading;
        } else if let Some(cell) = line.strip_prefix("| `") {
            let (cell, _) = cell.split_once(" | ").unwrap();
            for key in cell.split(", ") {
                let key = key.trim_matches('`').to_owned();
                assert!(sections.entry(section.to_owned()).or_default().insert(key), "{section}: {cell}");
            }
        }
    }
    sections
}

#[test]
fn documented_counters_are_those_that_are_emitted() {
    let dir = Dir::new();
    let path = dir.path().display();
    let guest = format!("{},net={path}/net,any-gid=true", dir.guest());
    let (admin, capture) = (format!("{path}/admin"), format!("{path}/capture"));
    let uplink =
        ["--uplink", "net_ring0", "--eal", "--no-huge -m 64", "--faults", "loss=0", "--capture", &capture];
    // An iWARP guest with vrdma's own TCP.
    let streams = format!("name=b,socket={path}/b,mac=52:54:00:00:00:02,transport=iwarp,any-gid=true");
    let guests = ["--guest", &guest, "--guest", &streams, "--admin", &admin, "--workers", "2"];
    let _running = Running::start(&[&guests, &uplink[..]].concat());
    let all: Value = serde_json::from_str(&ask(&UnixStream::connect(&admin).unwrap(), "stats")).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let guest = &all["guests"][0];
    let mut emitted = BTreeMap::from([("daemon".to_owned(), keys(&all)), ("guest".to_owned(), keys(guest))]);
    for (of, sections) in [
        (guest, &["objects", "object_limits", "device", "peaks", "transport", "net"][..]),
        (&all["guests"][1], &["tcp"]),
        (&all, &["switch", "uplink", "roce", "malformed"]),
    ] {
        emitted.extend(sections.iter().map(|section| ((*section).to_owned(), keys(&of[section]))));
    }
    emitted.insert("worker".to_owned(), keys(&all["workers"][1]));
    // Nothing was measured. Each service would have this.
    let of_service = serde_json::to_value(vrdma_backend::daemon::Histogram::default()).unwrap();
    emitted.insert("latency".to_owned(), keys(&of_service));
    let mut documented = documented();
    match keys_of_net_packet() {
        Some(keys) => {
            _ = emitted.insert("net_packet".into(), keys.difference(&emitted["uplink"]).cloned().collect())
        }
        None => _ = documented.remove("net_packet"),
    }
    for (section, keys) in &emitted {
        let known = &documented[section];
        let (missing, stale): (Vec<_>, Vec<_>) =
            (keys.difference(known).collect(), known.difference(keys).collect());
        assert!(
            missing.is_empty() && stale.is_empty(),
            "{section}: not documented: {missing:?}; not emitted: {stale:?}"
        );
    }
    assert_eq!(documented.len(), emitted.len());
}

/// Returns the counters that docs/troubleshooting.md names: `SECTION.COUNTER` in its tables.
fn blamed(known: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<(&'static str, &'static str)> {
    let text = include_str!("../../docs/troubleshooting.md");
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let names = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    // Other names have dots too, such as those of files. Their first part is no section.
    names
        .filter_map(|name| name.split_once('.'))
        .filter(|(section, _)| known.contains_key(*section))
        .collect()
}

#[test]
fn counters_that_troubleshooting_names_exist() {
    let known = documented();
    let blamed = blamed(&known);
    for (section, counter) in &blamed {
        assert!(known[*section].contains(*counter), "there is no counter {section}.{counter}");
    }
    // A dropped RDMA packet is a symptom that somebody looks up.
    for section in ["transport", "roce"] {
        let drops = known[section].iter().filter(|key| key.starts_with("drop_"));
        let missing: Vec<_> = drops.filter(|key| !blamed.contains(&(section, key.as_str()))).collect();
        assert!(missing.is_empty(), "{section}: the page does not say what to do about {missing:?}");
    }
}

/// Returns the counters of an uplink of this driver. `None` without root.
fn keys_of_net_packet() -> Option<BTreeSet<String>> {
    let dir = Dir::new();
    let (guest, admin) = (dir.guest(), format!("{}/admin", dir.path().display()));
    let uplink = ["--uplink", "net_packet0,iface=va", "--eal", "--no-huge -m 64"];
    let _running = namespace()
        .then(|| Running::start(&[&["--guest", &guest, "--admin", &admin][..], &uplink].concat()))?;
    let all: Value = serde_json::from_str(&ask(&UnixStream::connect(&admin).unwrap(), "stats")).unwrap();
    Some(all["uplink"].as_object()?.keys().cloned().collect())
}

/// Checks the message of a refused uplink. EAL can start only once in a process, so each check is a
/// process.
#[test]
fn mistakes_about_the_uplink_are_told_in_a_line() {
    if !namespace() {
        return;
    }
    let dir = Dir::new();
    let memif = format!("net_memif0,role=client,socket={}/memif,socket-abstract=no", dir.path().display());
    let guest = dir.guest();
    for (uplink, parts) in [
        ("va", &["va is an interface of the kernel", "write net_packet0,iface=va"][..]),
        (
            "net_af_packet0",
            &["uplink = net_af_packet0: the parameter iface is missing", "net_af_packet0,iface="],
        ),
        ("net_af_packet0,iface=nowhere", &["there is no interface nowhere"]),
        (&memif, &["the server of net_memif has to be there first"]),
        ("net_nonsense0", &["net_nonsense0", "drivers are"]),
        ("net_afpacket0", &["there is no driver net_afpacket: did you mean net_af_packet?"]),
        (
            "net_af_packet0,iface=va,qpair=1",
            &["net_af_packet has no parameter qpair: did you mean qpairs?", "DPDK says:"],
        ),
    ] {
        let said = refused(&["--guest", &guest, "--uplink", uplink]);
        let mut lines: Vec<&str> =
            said.lines().map(|line| line.rsplit("] ").next().unwrap().trim()).collect();
        lines.sort_unstable();
        assert!(lines.windows(2).all(|pair| pair[0] != pair[1]), "twice: {uplink}: {said}");
        for part in parts {
            assert!(said.contains(part), "{uplink}: {said}");
        }
    }
    // Root with a restricted capability bounding set.
    let mut bounded = Command::new("setpriv");
    bounded.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw"]).arg(env!("CARGO_BIN_EXE_vrdma-backend"));
    let output = bounded.args(["--guest", &guest, "--uplink", "net_af_packet0,iface=va"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("packet sockets need CAP_NET_RAW"), "{said}");
}

#[test]
fn a_wrong_argument_of_eal_prints_no_usage() {
    let dir = Dir::new();
    let guest = dir.guest();
    let output =
        program().args(["--guest", &guest, "--uplink", "net_ring0", "--eal", "--nonsense"]).output().unwrap();
    let (said, printed) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(said.contains("an argument of --eal is wrong"), "{said}");
    assert!(printed.is_empty() && said.matches("--nonsense").count() == 1, "{printed}{said}");
    assert!(!said.contains("unrecognized option"), "{said}");
}

#[test]
fn a_level_of_messages_that_makes_no_sense_does_not_silence_the_daemon() {
    let dir = Dir::new();
    let guest = dir.guest();
    let start = |filter: &str, arguments: &[&str]| {
        let arguments = [&["--guest", &guest][..], arguments].concat();
        Running::spawn(program().env("RUST_LOG", filter).args(arguments))
    };
    for (filter, said) in [
        (
            "debgu",
            "RUST_LOG=debgu is left out: debgu is neither a level nor a part of this program: did you mean debug?",
        ),
        (
            "vrdma_backend=dbug",
            "RUST_LOG=vrdma_backend=dbug is left out: dbug is no level: did you mean debug?",
        ),
    ] {
        let running = start(filter, &[]);
        assert_eq!(
            running.log.iter().filter(|line| line.contains("RUST_LOG")).count(),
            1,
            "{:?}",
            running.log
        );
        assert!(running.said(said), "{:?}", running.log);
    }
    // Modules that RUST_LOG does not name are logged as usual.
    assert!(!start("vrdma_backend::net=debug", &[]).said("RUST_LOG"));
    // A flag or a configuration key overrides RUST_LOG, which is then not even parsed.
    assert!(!start("debgu", &["--log", "info"]).said("RUST_LOG"));
    let file = dir.path().join("toml");
    std::fs::write(&file, "log = 'debug'\n").unwrap();
    let file = ["--config", file.to_str().unwrap()];
    assert!(!start("off", &file).said("RUST_LOG"));
    for flag in [&["-v"][..], &["--log", "debug"], &["-vv"]] {
        start("error", flag);
    }
    let output = program().args(file).args(["--log", "warn", "--check", "--guest", &guest]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("log = \"warn\""), "{output:?}");
    let output = program().args(["-vv", "--check", "--guest", &guest]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("log = \"trace\""), "{output:?}");
}

#[test]
fn a_processor_that_is_not_there_is_told_before_the_start() {
    let dir = Dir::new();
    let said = refused(&["--guest", &dir.guest(), "--cpus", "1000", "--check"]);
    assert!(said.contains("cpus = [1000]: no thread of ours may run on 1000 ("), "{said}");
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let dir = Dir::new();
    let missing = dir.path().join("missing");
    let missing = missing.display();
    let said = refused(&["--guest", &format!("name=a,socket={missing}/a,mac=52:54:00:00:00:01")]);
    let text = format!("guest a: socket: {missing}/a: there is no directory {missing}: make it");
    assert!(said.contains(&text) && !said.contains(".lock"), "{said}");
    let said = refused(&["--guest", &dir.guest(), "--admin", &format!("{missing}/admin")]);
    assert!(said.contains(&format!("admin: {missing}/admin: there is no directory {missing}")), "{said}");
}

#[test]
fn an_interface_is_the_uplink_of_one_daemon() {
    if !namespace() {
        return;
    }
    let (dir, other) = (Dir::new(), Dir::new());
    let (guest, second) = (dir.guest(), other.guest());
    ip("link property add dev va altname uplink");
    for driver in ["net_packet0", "net_af_packet0"] {
        let device = format!("{driver},iface=va");
        let first = Running::start(&["--guest", &guest, "--uplink", &device, "--uplink-mtu", "4200"]);
        let text = format!("is in use by another vrdma-backend, process {}: stop it", first.child.id());
        for uplink in ["net_packet0,iface=va", "net_af_packet0,iface=va", "net_packet0,iface=uplink"] {
            let said = refused(&["--guest", &second, "--uplink", uplink, "--uplink-mtu", "1400"]);
            assert!(said.contains(&text), "{driver}, {uplink}: {said}");
            assert!(ip("-o link show va").contains(" mtu 4200 "));
        }
        // The other end of the veth is another interface.
        drop(Running::start(&["--guest", &second, "--uplink", "net_packet0,iface=vb"]));
    }
    drop(Running::start(&["--guest", &second, "--uplink", "net_packet0,iface=va"]));
}

#[test]
fn a_healthy_uplink_starts_without_complaints() {
    let dir = Dir::new();
    let guest = dir.guest();
    let running = Running::start(&[
        "--guest",
        &guest,
        "--uplink",
        "net_ring0",
        "--mtu",
        "1500",
        "--eal",
        "--no-huge -m 64",
    ]);
    assert!(!running.said("WARN") && !running.said("ERROR"), "{:?}", running.log);
    assert!(running.log.last().unwrap().contains("uplink net_ring0"));
}

#[test]
fn an_interface_that_will_not_do_is_warned_of() {
    if !namespace() {
        return;
    }
    let dir = Dir::new();
    let guest = dir.guest();
    let start = || Running::start(&["--guest", &guest, "--uplink", "net_af_packet0,iface=va"]);
    let running = start();
    assert!(running.said("more than 1500 bytes are dropped, although mtu = 9000"), "{:?}", running.log);
    assert!(!running.said("is down") && !running.said("of this host"), "{:?}", running.log);
    drop(running);
    ip("link set va down");
    ip("addr add 10.1.2.3/24 dev va");
    let running = start();
    assert!(running.said("the interface va is down: `ip link set va up`"), "{:?}", running.log);
    assert!(running.said("has the address 10.1.2.3 of this host"), "{:?}", running.log);
    drop(running);
    ip("addr del 10.1.2.3/24 dev va");
    ip("link set va up");
    ip("-6 addr add 2001:db8::1/64 dev va");
    assert!(start().said("has the address 2001:db8::1 of this host"));
}
