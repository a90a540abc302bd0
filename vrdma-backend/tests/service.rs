//! Tests the program as a service of systemd: the test plays the service manager and the journal.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

mod sockets;
#[path = "../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;

/// Where the journal takes messages.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Reports a skipped test on stderr, which the test harness does not capture.
fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "{}: skipped: {why}", thread.name().unwrap_or("a test"));
}

/// Gives this thread, and what it starts, an empty `/run`. Returns false without root.
fn empty_run() -> bool {
    // SAFETY: these are plain system calls with strings of this function.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(c"none".as_ptr(), c"/run".as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()) == 0
    };
    if !done {
        skipped("a mount namespace needs root");
    }
    done
}

/// A bound datagram socket that never blocks.
fn datagrams(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Returns a datagram that has come.
fn take(socket: &UnixDatagram) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 1 << 16];
    let length = socket.recv(&mut bytes).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

/// A daemon whose service manager the test plays. It is ended by SIGTERM when dropped.
struct Service {
    child: Child,
    /// What it tells its service manager.
    notices: UnixDatagram,
    /// The lines that it writes to standard error.
    lines: Receiver<String>,
    dir: TempDir,
}

impl Service {
    /// Starts a daemon with a guest, and with what `change` adds to its command. Waits until it is
    /// ready.
    fn start(change: impl FnOnce(&mut Command, &Path)) -> Service {
        let dir = TempDir::new().unwrap();
        let at = dir.path().display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-backend"));
        command.args(["--admin", &format!("{at}/admin")]);
        command.args(["--guest", &format!("name=a,socket={at}/a,net={at}/net,mac=52:54:00:00:00:01")]);
        Service::spawn(dir, command, change)
    }

    fn spawn(dir: TempDir, mut command: Command, change: impl FnOnce(&mut Command, &Path)) -> Service {
        let notices = datagrams(&dir.path().join("notify"));
        let (stderr, writer) = std::io::pipe().unwrap();
        command.env("NOTIFY_SOCKET", dir.path().join("notify"));
        command.env_remove("JOURNAL_STREAM").env_remove("WATCHDOG_USEC");
        let stream = format!("/proc/self/fd/{}", writer.as_raw_fd());
        sockets::only_named(&mut command);
        change(&mut command, Path::new(&stream));
        let child = command.stderr(writer).spawn().unwrap();
        drop(command);
        let (written, lines) = channel();
        let all = BufReader::new(stderr).lines();
        std::thread::spawn(move || all.map_while(Result::ok).all(|line| written.send(line).is_ok()));
        let service = Service { child, notices, lines, dir };
        service.expect("READY=1");
        service
    }

    /// Waits for a notice with this line, and returns the whole notice.
    fn expect(&self, line: &str) -> String {
        wait::until(line, || {
            let notice = String::from_utf8(take(&self.notices)?).unwrap();
            notice.lines().any(|found| found == line).then_some(notice)
        })
    }

    /// Waits for a line that has this text, and returns it.
    fn said(&self, text: &str) -> String {
        loop {
            let line = wait::receive(text, &self.lines);
            if line.contains(text) {
                return line;
            }
        }
    }

    fn next_line(&self) -> String {
        wait::receive("a line", &self.lines)
    }

    /// Ends the daemon, and returns the lines that it wrote until then.
    fn rest(&self) -> Vec<String> {
        self.signal(libc::SIGTERM);
        std::iter::from_fn(|| wait::receive_or_end("its last lines", &self.lines)).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: this is a plain system call. The process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Returns the seconds since its start, by its own clock.
    fn uptime(&self) -> u64 {
        let mut stream = UnixStream::connect(self.path("admin")).unwrap();
        stream.write_all(b"stats\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        answer["uptime"].as_u64().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        let status = self.child.wait().unwrap();
        assert!(status.success() || std::thread::panicking(), "{status}");
    }
}

/// Sets JOURNAL_STREAM to the stream that standard error is.
fn journal_stream(command: &mut Command, stream: &Path) {
    let stream = std::fs::metadata(stream).unwrap();
    command.env("JOURNAL_STREAM", format!("{}:{}", stream.dev(), stream.ino()));
}

#[test]
fn the_service_manager_hears_of_start_status_reload_and_end() {
    let service = Service::start(|_, _| ());
    let front_end = UnixStream::connect(service.path("a")).unwrap();
    service.expect("STATUS=1 of 2 front-ends connected, no uplink");
    let second = UnixStream::connect(service.path("net")).unwrap();
    service.expect("STATUS=2 of 2 front-ends connected, no uplink");
    drop((front_end, second));
    service.expect("STATUS=0 of 2 front-ends connected, no uplink");
    service.signal(libc::SIGHUP);
    let reloading = service.expect("RELOADING=1");
    assert!(reloading.lines().any(|line| line.starts_with("MONOTONIC_USEC=")), "{reloading}");
    service.said("SIGHUP is ignored");
    let ready = service.expect("READY=1");
    assert!(ready.contains("STATUS=0 of 2 front-ends connected"), "{ready}");
    service.signal(libc::SIGTERM);
    service.expect("STOPPING=1");
}

#[test]
fn the_status_tells_the_link_of_the_uplink() {
    let service = Service::start(|command, _| {
        command.args(["--uplink", "net_ring0", "--eal", "--no-huge -m 64"]);
    });
    drop(UnixStream::connect(service.path("a")).unwrap());
    service.expect("STATUS=1 of 2 front-ends connected, uplink net_ring0 up");
}

#[test]
fn the_watchdog_is_fed_while_all_workers_are_alive() {
    for workers in ["1", "2"] {
        let service = Service::start(|command, _| {
            command.args(["--workers", workers]).env("WATCHDOG_USEC", "600000");
        });
        service.expect("WATCHDOG=1");
        let name = if workers == "1" { "worker" } else { "worker 1" };
        let Some(stopped) = Stopped::stop(service.child.id(), name) else {
            skipped("debuggers are not allowed here");
            return;
        };
        service.said("is stuck: no turn for");
        // The line was written before the watch decided whether to feed the watchdog. What came
        // before it is of no interest.
        while take(&service.notices).is_some() {}
        let since = service.uptime();
        wait::until("two seconds more", || (service.uptime() >= since + 2).then_some(()));
        assert_eq!(take(&service.notices), None, "{workers} workers");
        drop(stopped);
        service.said("goes on after");
        service.expect("WATCHDOG=1");
    }
}

#[test]
fn without_a_watchdog_it_is_not_fed() {
    let service = Service::start(|command, _| _ = command.args(["--workers", "2"]));
    let since = service.uptime();
    wait::until("two seconds more", || (service.uptime() >= since + 2).then_some(()));
    assert!(std::iter::from_fn(|| take(&service.notices)).all(|notice| !notice.starts_with(b"WATCHDOG")));
}

/// A thread of another process that a debugger has stopped. It goes on when this is dropped.
struct Stopped(libc::pid_t);

impl Stopped {
    /// Stops the thread of this name. `None` if the system does not allow that.
    fn stop(process: u32, name: &str) -> Option<Stopped> {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let thread = tasks.flatten().find(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|found| found.trim_end() == name)
        });
        let thread = thread.expect("a thread of that name").file_name();
        let thread: libc::pid_t = thread.to_str()?.parse().ok()?;
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: these requests read and write no memory of this process.
        let done = unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) == 0
                && libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) == 0
        };
        // A thread can be let go only once it has stopped.
        // SAFETY: this is a plain system call.
        done.then(|| unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) });
        done.then_some(Stopped(thread))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: this request reads and writes no memory of this process.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) }, 0);
    }
}

#[test]
fn a_stream_of_the_journal_has_priorities_and_no_stamps() {
    // There is no socket of the journal.
    if !empty_run() {
        return;
    }
    let service = Service::start(journal_stream);
    let line = service.said("ready: ");
    assert!(line.starts_with("<6>[vrdma_backend] ready: version "), "{line}");
    service.signal(libc::SIGHUP);
    let line = service.said("SIGHUP is ignored");
    assert!(line.starts_with("<4>[vrdma_backend] SIGHUP "), "{line}");
}

#[test]
fn a_stream_that_is_not_the_journal_has_stamps() {
    let service = Service::start(|command, _| {
        // The variable is inherited, but standard error is another stream.
        command.env("JOURNAL_STREAM", "1:1");
    });
    let line = service.said("ready: ");
    assert!(line.starts_with("[20") && line.contains(" INFO "), "{line}");
}

#[test]
fn why_it_does_not_start_has_a_priority_too() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-backend"));
    journal_stream(&mut command, Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())));
    let status = command.stdout(Stdio::null()).stderr(writer).status().unwrap();
    drop(command);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(said.starts_with("<3>vrdma-backend: no guest: "), "{said}");
}

/// Returns the fields of an entry of the journal.
fn fields(mut entry: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while !entry.is_empty() {
        let name = entry.iter().position(|byte| *byte == b'\n').unwrap();
        let (name, rest) = entry.split_at(name);
        let (length, rest) = rest[1..].split_at(8);
        let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
        let (value, rest) = rest.split_at(length);
        entry = rest.strip_prefix(b"\n").unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(fields.insert(text(name), text(value)), None);
    }
    fields
}

#[test]
fn the_journal_has_guests_and_origins_as_fields() {
    if !empty_run() {
        return;
    }
    std::fs::create_dir_all(Path::new(JOURNAL).parent().unwrap()).unwrap();
    let journal = datagrams(Path::new(JOURNAL));
    let service = Service::start(journal_stream);
    let said = |text: &str| {
        wait::until(text, || {
            let entry = fields(&take(&journal)?);
            entry["MESSAGE"].contains(text).then_some(entry)
        })
    };
    let ready = said("ready: version ");
    assert_eq!((&ready["PRIORITY"][..], &ready["SYSLOG_IDENTIFIER"][..]), ("6", "vrdma-backend"));
    assert!(!ready.contains_key("GUEST") && ready.contains_key("CODE_LINE"), "{ready:?}");
    let mut front_end = UnixStream::connect(service.path("a")).unwrap();
    let came = said("front-end connected");
    // SAFETY: this is a plain system call.
    let user = unsafe { libc::getuid() };
    let text = format!("guest a, RDMA: front-end connected: process {} of user {user}", std::process::id());
    assert_eq!(came["MESSAGE"], text);
    assert_eq!((&came["GUEST"][..], &came["CODE_MODULE"][..]), ("a", "vrdma_backend::session"));
    front_end.write_all(&[0x20; 12]).unwrap();
    let violation = said("front-end disconnected: ");
    assert_eq!((&violation["PRIORITY"][..], &violation["GUEST"][..]), ("4", "a"));
    assert_eq!(violation["CODE_MODULE"], "vrdma_backend::session");
    // The journal ends. What it does not take goes to the stream.
    drop(journal);
    std::fs::remove_file(JOURNAL).unwrap();
    service.signal(libc::SIGHUP);
    service.said("<4>[vrdma_backend] SIGHUP is ignored");
    // It is there again.
    let journal = datagrams(Path::new(JOURNAL));
    service.signal(libc::SIGHUP);
    wait::until("an entry", || take(&journal));
}

/// Returns the command of a daemon that gets two sockets as descriptors 3 and 4.
fn with_descriptors(sockets: [&UnixListener; 2], names: &str) -> Command {
    let [first, second] = sockets.map(|socket| OwnedFd::from(socket.try_clone().unwrap()));
    let mut command = Command::new("sh");
    // The service manager names the process, which has the number of this shell.
    let script = "exec 3<&0 4<&1 0</dev/null 1>/dev/null; export LISTEN_PID=$$; exec \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_vrdma-backend")]);
    command.stdin(first).stdout(second);
    if names.is_empty() {
        command.env_remove("LISTEN_FDS").env_remove("LISTEN_FDNAMES");
    } else {
        command.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", names);
    }
    command
}

/// Asks the back-end at the other end for its features (vhost-user, GET_FEATURES), and expects an
/// answer.
fn expect_a_back_end(mut stream: &UnixStream) {
    const GET_FEATURES: u32 = 1;
    let words = [GET_FEATURES, 1, 0];
    stream.write_all(&words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect::<Vec<_>>()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut answer, mut bytes) = (Vec::new(), [0; 20]);
    wait::until("an answer", || {
        let count = stream.read(&mut bytes).ok()?;
        answer.extend_from_slice(&bytes[..count]);
        (answer.len() == 20).then_some(())
    });
    assert_eq!((&answer[..4], &answer[8..12]), (&words[0].to_ne_bytes()[..], &8u32.to_ne_bytes()[..]));
}

#[test]
fn sockets_are_inherited_by_name_and_by_number() {
    let (dir, of_service) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let at = dir.path();
    let sockets = ["rdma", "net"].map(|name| UnixListener::bind(at.join(name)).unwrap());
    let mut command = with_descriptors([&sockets[0], &sockets[1]], "a-rdma:a-net");
    command.args(["--guest", "name=a,fd=a-rdma,net-fd=4,mac=52:54:00:00:00:01"]);
    let service = Service::spawn(of_service, command, |_, _| ());
    let ready = service.said("ready: ");
    assert!(ready.contains("guest a (RDMA descriptor a-rdma, Ethernet descriptor 4)"), "{ready}");
    for name in ["rdma", "net"] {
        let front_end = UnixStream::connect(at.join(name)).unwrap();
        expect_a_back_end(&front_end);
        service.expect("STATUS=1 of 2 front-ends connected, no uplink");
        drop(front_end);
        service.expect("STATUS=0 of 2 front-ends connected, no uplink");
    }
    // The sockets belong to who made them. They stay when the daemon ends.
    drop(service);
    for (name, socket) in ["rdma", "net"].into_iter().zip(&sockets) {
        UnixStream::connect(at.join(name)).unwrap();
        socket.set_nonblocking(true).unwrap();
        wait::until("the connection", || socket.accept().ok());
    }
}

#[test]
fn the_admin_sockets_may_be_inherited_too() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().to_owned();
    let sockets = ["admin", "observe"].map(|name| UnixListener::bind(at.join(name)).unwrap());
    // Without a service manager, by number alone.
    let mut command = with_descriptors([&sockets[0], &sockets[1]], "");
    let guest = format!("name=a,socket={}/a,mac=52:54:00:00:00:01", at.display());
    command.args(["--admin-fd", "3", "--observe-fd", "4", "--guest", &guest]);
    let service = Service::spawn(dir, command, |_, _| ());
    service.uptime();
    // The same call is answered at both, and a change at one of them.
    for (name, may) in [("admin", true), ("observe", false)] {
        let mut client = vrdma_admin::Client::connect(&service.path(name)).unwrap();
        assert_eq!(client.call(&vrdma_admin::guest::ListGuests {}).unwrap().guests.len(), 1);
        let change = client.call(&vrdma_admin::daemon::Resume {});
        assert_eq!(change.is_ok(), may, "{name}: {change:?}");
    }
}

#[test]
fn a_descriptor_that_will_not_do_is_refused_with_those_that_there_are() {
    let dir = TempDir::new().unwrap();
    let sockets = ["rdma", "net"].map(|name| UnixListener::bind(dir.path().join(name)).unwrap());
    let refused = |names: &str, keys: &str| {
        let mut command = with_descriptors([&sockets[0], &sockets[1]], names);
        let output =
            command.args(["--guest", &format!("name=a,{keys},mac=52:54:00:00:00:01")]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (names, keys, said) in [
        (
            "x:y",
            "fd=z",
            "guest a: fd: no descriptor has the name z in LISTEN_FDNAMES: the service manager passed 3 (x), 4 (y)",
        ),
        ("x:x", "fd=x", "several descriptors have the name x"),
        ("x:y", "fd=x,net-fd=3", "guest a: net_fd: descriptor 3 is in use already, as guest a: fd"),
        (
            "",
            "fd=1",
            "guest a: fd: descriptor 1 is no Unix stream socket that listens: those that were passed and listen are 3, 4",
        ),
        ("", "fd=999", "descriptor 999 is not open: those that were passed and listen are 3, 4"),
        ("x", "fd=x", "invalid LISTEN_FDNAMES"),
    ] {
        let found = refused(names, keys);
        assert!(found.contains(said), "{names} {keys}: {found}");
    }
}

#[test]
fn a_socket_of_the_daemon_itself_is_no_descriptor_for_a_guest() {
    let dir = TempDir::new().unwrap();
    let admin = dir.path().join("admin");
    let said = (3..16).map(|number| {
        // A daemon that accepts the number is ended, and has another status then.
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_vrdma-backend"), "--admin", &admin.display().to_string()]);
        command.args(["--guest", &format!("name=a,fd={number},mac=52:54:00:00:00:01")]);
        let output = command.env_remove("LISTEN_FDS").stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{number}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    });
    let said: Vec<_> = said.collect();
    assert!(said.iter().any(|text| text.contains("was not passed to this process: ")), "{said:?}");
}

#[test]
fn a_front_end_of_another_user_is_refused_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    // SAFETY: this is a plain system call.
    let other = unsafe { libc::getuid() } + 1;
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-backend"));
    let shown = path.display();
    command.args(["--guest", &format!("name=a,connect={shown},user={other},mac=52:54:00:00:00:01")]);
    let service = Service::spawn(dir, command, |_, _| ());
    let refused = "the guest's users do not name the maker of its listener, process ";
    service.said(refused);
    for _ in 0..3 {
        wait::until("another attempt", || listener.accept().ok());
    }
    let rest = service.rest();
    assert!(rest.iter().all(|line| !line.contains(refused)), "{rest:?}");
}

#[test]
fn a_front_end_that_listens_is_connected_to_again_and_again() {
    for (key, function) in [("connect", "RDMA"), ("net-connect", "Ethernet")] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let shown = path.display();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-backend"));
        command.args(["--guest", &format!("name=a,{key}={shown},mac=52:54:00:00:00:01")]);
        command.args(["--admin", &format!("{}/admin", dir.path().display())]);
        let service = Service::spawn(dir, command, |_, _| ());
        let absent = format!("guest a: no front-end listens at {shown} (No such file or directory");
        let ready = format!("guest a ({function} connects to {shown})");
        // The session may be faster than the rest of the start, and the other way round.
        let mut awaited = vec![&absent, &ready];
        while !awaited.is_empty() {
            let line = service.next_line();
            assert!(!line.contains("WARN"), "{line}");
            awaited.retain(|text| !line.contains(*text));
        }
        for turn in 0..2 {
            let since = service.uptime();
            wait::until("two seconds more", || (service.uptime() >= since + 2).then_some(()));
            let listener = UnixListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            // The front-end goes, and is there again.
            for _ in 0..2 {
                let (front_end, _) = wait::until("the daemon", || listener.accept().ok());
                expect_a_back_end(&front_end);
                // Lines about front-ends that come and go all the time are left out after a while.
                if turn == 0 {
                    service.said("connected: its listener was made by process ");
                }
                service.expect("STATUS=1 of 1 front-ends connected, no uplink");
                drop(front_end);
                service.expect("STATUS=0 of 1 front-ends connected, no uplink");
            }
            drop(listener);
            std::fs::remove_file(&path).unwrap();
            service.said(&absent);
        }
        // It tried again and again, and said nothing of that.
        let rest = service.rest();
        assert!(rest.iter().all(|line| !line.contains(&absent)), "{rest:?}");
    }
}
