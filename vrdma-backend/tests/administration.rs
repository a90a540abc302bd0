//! Plays clients of the admin sockets, good and bad ones, against the program.
//!
//! Shows: administration.

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use tempfile::TempDir;
use vrdma_admin::capture::{CaptureEnd, CaptureProgress, StartCapture};
use vrdma_admin::guest::{FunctionKind, Meeting};
use vrdma_admin::log::Level;
use vrdma_admin::{Call, Client, ClientError, Fault, Frames, INTERFACES, Reply};
use vrdma_admin::{daemon, guest, log, mr, port, qp, service, worker};

#[path = "../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;

/// A running daemon with two guests and both admin sockets. It is killed when dropped.
struct Daemon {
    child: Child,
    dir: TempDir,
    /// What it writes after it was ready.
    lines: Receiver<String>,
}

impl Daemon {
    fn start() -> Daemon {
        Daemon::start_with(&[], |command| command)
    }

    fn start_with(more: &[&str], change: impl FnOnce(&mut Command) -> &mut Command) -> Daemon {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let guests = [
            format!("name=vm1,socket={},net={},mac=52:54:00:00:00:01,any-gid=true", path("a"), path("a-net")),
            format!("name=vm2,socket={},mac=52:54:00:00:00:02,any-gid=true", path("b")),
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-backend"));
        for guest in &guests {
            command.arg("--guest").arg(guest);
        }
        command.args(["--admin", &path("admin"), "--observe", &path("observe")]).args(more);
        command.env_remove("RUST_LOG").stderr(Stdio::piped());
        let mut child = change(&mut command).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_ready = |line: &std::io::Result<String>| line.as_ref().unwrap().contains("ready: ");
        assert!(lines.any(|line| is_ready(&line)), "the daemon ended");
        Daemon { child, dir, lines: rest(lines.map_while(Result::ok)) }
    }

    /// Waits until it writes a line with this text.
    fn says(&self, text: &str) {
        wait::until("a line of the log", || match self.lines.try_recv() {
            Ok(line) => line.contains(text).then_some(()),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the daemon ended without '{text}'"),
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn admin(&self) -> Client {
        client(&self.path("admin"))
    }

    fn observe(&self) -> Client {
        client(&self.path("observe"))
    }

    /// Connects to the observe socket without a client's manners.
    fn raw(&self) -> UnixStream {
        UnixStream::connect(self.path("observe")).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines in a thread of their own.
fn rest(lines: impl Iterator<Item = String> + Send + 'static) -> Receiver<String> {
    let (written, since) = channel();
    std::thread::spawn(move || { lines }.all(|line| written.send(line).is_ok()));
    since
}

fn client(path: &Path) -> Client {
    let client = Client::connect(path).unwrap();
    client.set_timeout(Some(wait::PATIENCE)).unwrap();
    client
}

/// Sends bytes, and returns the reply. Returns `None` if the daemon closes the connection instead.
fn ask(mut stream: &UnixStream, bytes: &[u8]) -> Option<Value> {
    stream.write_all(bytes).unwrap();
    next_reply(stream)
}

fn next_reply(stream: &UnixStream) -> Option<Value> {
    let mut reader = BufReader::new(stream);
    let mut message = Vec::new();
    reader.read_until(0, &mut message).unwrap();
    assert!(reader.buffer().is_empty(), "one reply was asked for");
    (!message.is_empty()).then(|| serde_json::from_slice(&message[..message.len() - 1]).unwrap())
}

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Fault {
    match result {
        Err(ClientError::Refused(fault)) => fault,
        other => panic!("it is not refused: {other:?}"),
    }
}

#[test]
fn observers_see_the_daemon_its_guests_workers_and_ports() {
    let daemon = Daemon::start();
    let mut client = daemon.observe();
    let info = client.call(&daemon::GetDaemon {}).unwrap();
    assert_eq!((info.version.as_str(), info.pid), (env!("CARGO_PKG_VERSION"), daemon.child.id()));
    assert_eq!((info.workers, info.guests, info.queues, info.link), (1, 2, 64, None));
    let guests = client.call(&guest::ListGuests {}).unwrap().guests;
    assert_eq!(guests.iter().map(|guest| guest.name.as_str()).collect::<Vec<_>>(), ["vm1", "vm2"]);
    let functions: Vec<_> = guests[0].functions.iter().map(|each| (each.kind, each.connected)).collect();
    assert_eq!(functions, [(FunctionKind::Roce, false), (FunctionKind::Ethernet, false)]);
    assert_eq!(guests[0].functions[0].meets, Meeting::Socket);
    assert_eq!(guests[0].functions[0].socket, Some(daemon.path("a").display().to_string()));
    assert_eq!(guests[0].objects.as_ref().unwrap()["qps"], 0);
    // A front-end is named with its process.
    let _front_end = UnixStream::connect(daemon.path("a")).unwrap();
    let seen = wait::until("the front-end's process", || {
        let guests = client.call(&guest::ListGuests {}).unwrap().guests;
        guests[0].functions[0].pid
    });
    assert_eq!(seen, std::process::id());
    let shown = client.call(&guest::ShowGuest { name: "vm1".into() }).unwrap();
    assert_eq!(shown.keys["mac"], "52:54:00:00:00:01");
    assert!(shown.counters["device"]["commands"].is_u64(), "{:?}", shown.counters);
    let workers = client.call(&worker::ListWorkers {}).unwrap().workers;
    assert_eq!((workers.len(), &workers[0].guests[..]), (1, &["vm1".to_owned(), "vm2".to_owned()][..]));
    assert!(workers[0].busy_turns.unwrap() > 0 && !workers[0].stuck);
    let ports = client.call(&port::ListPorts {}).unwrap().ports;
    assert_eq!(ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(), ["vm1"]);
    assert!(!client.call(&port::ShowPort { name: "vm1".into() }).unwrap().port.up);
    let stats = client.call(&daemon::GetStats::default()).unwrap().stats;
    assert_eq!(stats["guests"][1]["name"], "vm2");
    assert_eq!(client.call(&qp::ListQps { guest: "vm1".into(), from: None }).unwrap().qps, []);
    assert_eq!(client.call(&mr::ListMrs { guest: "vm1".into(), from: Some(7) }).unwrap().mrs, []);
}

#[test]
fn the_service_describes_itself() {
    let daemon = Daemon::start();
    let mut client = daemon.observe();
    let info = client.call(&service::GetService {}).unwrap();
    assert_eq!(info.product, "vrdma-backend");
    assert_eq!(info.interfaces, INTERFACES.iter().map(|interface| interface.name).collect::<Vec<_>>());
    for interface in INTERFACES {
        let get = service::GetDescription { interface: interface.name.into() };
        assert_eq!(client.call(&get).unwrap().description, interface.description);
    }
    let get = service::GetDescription { interface: "org.vrdma.Colour".into() };
    assert_eq!(refused(client.call(&get)), Fault::InterfaceNotFound { interface: "org.vrdma.Colour".into() });
}

#[test]
fn observers_change_nothing() {
    let daemon = Daemon::start();
    let (mut observer, mut admin) = (daemon.observe(), daemon.admin());
    let set = log::SetLog { level: Level::Debug };
    assert_eq!(refused(observer.call(&set)), Fault::PermissionDenied {});
    assert_eq!(refused(observer.call(&daemon::Drain {})), Fault::PermissionDenied {});
    assert_eq!(refused(observer.call(&daemon::Resume {})), Fault::PermissionDenied {});
    assert!(!admin.call(&daemon::GetDaemon {}).unwrap().draining);
    // Without a reply it is refused all the same.
    observer.tell(&set).unwrap();
    assert_eq!(observer.call(&log::GetLog {}).unwrap().level, Some(Level::Info));
    assert_eq!(admin.call(&set).unwrap().before, Some(Level::Info));
    assert_eq!(observer.call(&log::GetLog {}).unwrap().level, Some(Level::Debug));
    let mode = |name| std::fs::metadata(daemon.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("admin"), mode("observe")), (0o600, 0o660));
}

#[test]
fn rust_log_is_not_overruled() {
    let daemon = Daemon::start_with(&[], |command| command.env("RUST_LOG", "info,vrdma_backend::net=debug"));
    let fault = refused(daemon.admin().call(&log::SetLog { level: Level::Debug }));
    assert!(matches!(&fault, Fault::LogFixed { reason } if reason.contains("RUST_LOG")), "{fault:?}");
}

#[test]
fn mistakes_are_named_and_the_connection_goes_on() {
    let daemon = Daemon::start();
    let stream = daemon.raw();
    let error = |method: &str, parameters: Value| {
        let call = json!({"method": method, "parameters": parameters});
        let reply = ask(&stream, format!("{call}\0").as_bytes()).unwrap();
        (reply["error"].as_str().unwrap().to_owned(), reply["parameters"].clone())
    };
    let (name, parameters) = error("org.vrdma.Guest.Lst", json!({}));
    assert_eq!(name, "org.varlink.service.MethodNotFound");
    assert_eq!(parameters, json!({"method": "org.vrdma.Guest.Lst"}));
    let (name, parameters) = error("org.vrdma.Guests.List", json!({}));
    assert_eq!(name, "org.varlink.service.InterfaceNotFound");
    assert_eq!(parameters, json!({"interface": "org.vrdma.Guests"}));
    let (name, parameters) = error("org.vrdma.Guest.Show", json!({"nme": "vm1"}));
    assert_eq!(name, "org.varlink.service.InvalidParameter");
    assert_eq!(parameters["parameter"], "nme");
    assert_eq!(parameters["reason"], "there is no parameter nme: did you mean name?");
    let (name, parameters) = error("org.vrdma.Daemon.Stats", json!({"interval": 5}));
    assert_eq!(
        (name.as_str(), &parameters["parameter"]),
        ("org.varlink.service.InvalidParameter", &json!("interval"))
    );
    let (name, parameters) = error("org.vrdma.Guest.Show", json!({"name": "vm3"}));
    assert_eq!(name, "org.vrdma.Guest.NotFound");
    assert_eq!(parameters["reason"], "there is no guest vm3: did you mean vm1?");
    let (name, _) = error("org.vrdma.Qp.Show", json!({"guest": "vm1", "qpn": 7}));
    assert_eq!(name, "org.vrdma.Qp.NotFound");
    let (name, _) = error("org.vrdma.Port.Show", json!({"name": "vm2"}));
    assert_eq!(name, "org.vrdma.Port.NotFound");
    assert!(ask(&stream, b"{\"method\":\"org.vrdma.Daemon.Info\"}\0").unwrap()["parameters"]["pid"].is_u64());
}

#[test]
fn nonsense_is_refused_and_ends_the_connection() {
    let daemon = Daemon::start();
    let long = format!("{{\"method\":\"{}\"}}\0", "x".repeat(70_000));
    for nonsense in
        ["{\0", "{}\0", "{\"method\":7}\0", "{colour}\0", &long, "{\"method\":\"x\",\"parameters\":[]}\0"]
    {
        let stream = daemon.raw();
        let reply = ask(&stream, nonsense.as_bytes()).unwrap();
        assert_eq!(reply["error"], "org.vrdma.Daemon.BadMessage", "{reply}");
        let rest = (&stream).read(&mut [0; 16]);
        assert!(matches!(rest, Ok(0)) || rest.is_err(), "{rest:?}");
    }
    // Bytes that are no varlink are a line, which is answered in the old way.
    let stream = daemon.raw();
    (&stream).write_all(b"\xff\xfe\n").unwrap();
    let mut answer = String::new();
    (&stream).read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "{\"error\":\"unknown request; known: stats\"}\n");
}

#[test]
fn a_line_is_answered_at_both_sockets() {
    let daemon = Daemon::start();
    for name in ["admin", "observe"] {
        let mut stream = UnixStream::connect(daemon.path(name)).unwrap();
        stream.write_all(b"stats").unwrap();
        // A client that sends nothing more has sent its line.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let stats: Value = serde_json::from_reader(stream).unwrap();
        assert_eq!(stats["guests"][0]["name"], "vm1");
    }
}

#[test]
fn a_client_that_ends_its_half_gets_all_answers() {
    let daemon = Daemon::start();
    let mut stream = daemon.raw();
    let calls = "{\"method\":\"org.vrdma.Daemon.Info\"}\0".repeat(3);
    stream.write_all(calls.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut frames = Frames::new(1 << 20);
    frames.add(&bytes);
    let replies: Vec<_> = std::iter::from_fn(|| frames.next_message().unwrap()).collect();
    assert_eq!(replies.len(), 3);
    assert!(replies.iter().all(|reply| Reply::parse(reply).unwrap().error.is_none()));
}

#[test]
fn counters_come_again_and_again() {
    let daemon = Daemon::start();
    let mut client = daemon.observe();
    let mut follower = daemon.observe();
    let mut replies = follower.follow(&daemon::GetStats { interval: Some(100) }).unwrap();
    for _ in 0..3 {
        assert!(replies.next().unwrap().unwrap().stats.contains_key("guests"));
        assert_eq!(client.call(&daemon::GetDaemon {}).unwrap().guests, 2, "nobody waits for it");
    }
    // One who does not take several replies gets one.
    assert!(client.call(&daemon::GetStats { interval: Some(100) }).is_ok());
    assert!(client.call(&log::GetLog {}).is_ok());
}

#[test]
fn a_drain_has_several_replies_until_all_are_idle() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let replies: Result<Vec<_>, _> = client.follow(&daemon::Drain {}).unwrap().collect();
    assert_eq!(replies.unwrap(), [daemon::Drained { busy: vec![] }], "all are idle at once");
    assert!(daemon.observe().call(&daemon::GetDaemon {}).unwrap().draining);
    let mut refused = UnixStream::connect(daemon.path("b")).unwrap();
    assert_eq!(refused.read(&mut [0; 1]).unwrap(), 0, "it is closed at once");
    daemon.says("a front-end is refused: the daemon drains");
    client.call(&daemon::Resume {}).unwrap();
    assert!(!client.call(&daemon::GetDaemon {}).unwrap().draining);
}

/// Begins a capture, and returns its first reply.
fn begin_capture(client: &mut Client, file: &impl AsFd) -> Result<CaptureProgress, ClientError> {
    client.follow_with(&StartCapture::default(), &[file.as_fd()])?.next().expect("there is a reply")
}

#[test]
fn a_capture_needs_rights_a_file_and_sense() {
    let daemon = Daemon::start();
    let file = tempfile::tempfile().unwrap();
    assert_eq!(refused(begin_capture(&mut daemon.observe(), &file)), Fault::PermissionDenied {});
    let looked = daemon.observe().follow(&StartCapture::default()).unwrap().next().unwrap();
    assert_eq!(refused(looked), Fault::PermissionDenied {}, "also without a descriptor");
    let mut client = daemon.admin();
    let start = StartCapture::default();
    assert_eq!(refused(client.call_with(&start, &[file.as_fd()])), Fault::ExpectedMore {});
    let mut client = daemon.admin();
    let first = client.follow(&start).unwrap().next().unwrap();
    assert!(matches!(refused(first), Fault::CaptureNoFile { .. }));
    let wrong = |start: StartCapture| {
        let mut client = daemon.admin();
        refused(client.follow_with(&start, &[file.as_fd()]).unwrap().next().unwrap())
    };
    let (text, of) = (|text: &str| Some(text.to_owned()), StartCapture::default);
    for (start, reason) in [
        (
            StartCapture { qpn: Some(0), ..of() },
            "qpn: 0 is none; a queue pair has a number from 1 to 16777214",
        ),
        (
            StartCapture { peer: text("vm2"), ..of() },
            "peer: vm2 is no address; write one like 10.0.0.2 or fe80::1",
        ),
        (StartCapture { snap: Some(13), ..of() }, "snap: 13 is too little; give 14 bytes or more"),
        (
            StartCapture { count: Some(0), ..of() },
            "count: 0 packets are no capture; leave it out, or give 1 or more",
        ),
    ] {
        match wrong(start) {
            Fault::InvalidParameter { reason: told, .. } => assert_eq!(told, reason),
            other => panic!("{other:?}"),
        }
    }
    let missing = wrong(StartCapture { guest: text("vm"), ..of() });
    assert!(matches!(&missing, Fault::GuestNotFound { reason, .. } if reason.contains("vm1")), "{missing:?}");
}

#[test]
fn a_few_captures_run_at_a_time_and_each_ends_by_itself() {
    let daemon = Daemon::start();
    let descriptors_before = descriptors(&daemon);
    let file = tempfile::tempfile().unwrap();
    let mut clients: Vec<Client> = (0..4).map(|_| daemon.admin()).collect();
    for client in &mut clients {
        assert_eq!(begin_capture(client, &file).unwrap().end, None);
    }
    let one_more = refused(begin_capture(&mut daemon.admin(), &file));
    assert!(matches!(one_more, Fault::CaptureTooMany { most: 4, .. }), "{one_more:?}");
    // One that sends nothing more gets the last counts. The file has a header.
    let closer = clients[0].closer().unwrap();
    closer.close().unwrap();
    let last = last_of(&mut clients[0]);
    assert_eq!((last.packets, last.missed, last.end), (0, 0, Some(CaptureEnd::Asked)));
    assert!(last.bytes > 0);
    // The others leave without a word.
    drop(clients);
    wait::until("room for a capture", || begin_capture(&mut daemon.admin(), &file).ok());
    wait::until("no descriptors of clients", || (descriptors(&daemon) <= descriptors_before).then_some(()));
}

/// Follows a capture to its end.
fn last_of(client: &mut Client) -> CaptureProgress {
    loop {
        let reply = client.receive().unwrap();
        if !reply.continues {
            return reply.result::<CaptureProgress>().unwrap().unwrap();
        }
    }
}

#[test]
fn a_file_that_takes_nothing_ends_a_capture_and_nothing_else() {
    let daemon = Daemon::start();
    // The header of the format does not fit. To a process without care this is SIGXFSZ.
    let pid = Pid::from_raw(daemon.child.id() as i32).unwrap();
    let limit = Rlimit { current: Some(8), maximum: None };
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
    let file = tempfile::tempfile().unwrap();
    let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
    let terminal = std::fs::File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    let mut client = daemon.admin();
    for (file, reason) in [(&file, "File too large"), (&null, "to no device"), (&terminal, "to no device")] {
        let replies = client.follow_with(&StartCapture::default(), &[file.as_fd()]).unwrap();
        let last = replies.last().unwrap().unwrap();
        assert_eq!(last.end, Some(CaptureEnd::Failed));
        assert!(last.reason.as_ref().is_some_and(|told| told.contains(reason)), "{last:?}");
    }
    // The connection goes on, and so do captures.
    assert_eq!(client.call(&guest::ListGuests {}).unwrap().guests.len(), 2);
    let (reader, writer) = std::io::pipe().unwrap();
    assert_eq!(begin_capture(&mut client, &writer).unwrap().end, None);
    // Nothing is captured. That the reader is gone is seen all the same.
    drop(reader);
    assert_eq!(last_of(&mut client).end, Some(CaptureEnd::Closed));
}

#[test]
fn a_capture_of_a_guest_ends_with_the_guest() {
    let daemon = Daemon::start();
    let file = tempfile::tempfile().unwrap();
    let (mut of_guest, mut of_other, mut of_all) = (daemon.admin(), daemon.admin(), daemon.admin());
    for (client, name) in [(&mut of_guest, Some("vm2")), (&mut of_other, Some("vm1")), (&mut of_all, None)] {
        let start = StartCapture { guest: name.map(str::to_owned), ..StartCapture::default() };
        let first = client.follow_with(&start, &[file.as_fd()]).unwrap().next().unwrap().unwrap();
        assert_eq!(first.end, None);
    }
    let mut client = daemon.admin();
    let keys = format!("name=vm2,socket={},mac=52:54:00:00:00:02,any-gid=true", daemon.path("b").display());
    client.call(&guest::RemoveGuest { name: "vm2".into(), force: None }).unwrap();
    // Another one with its name is another one.
    client.call(&guest::AddGuest { guest: keys }).unwrap();
    assert_eq!(last_of(&mut of_guest).end, Some(CaptureEnd::GuestRemoved));
    for other in [&mut of_other, &mut of_all] {
        other.closer().unwrap().close().unwrap();
        assert_eq!(last_of(other).end, Some(CaptureEnd::Asked));
    }
}

#[test]
fn captures_end_with_the_daemon_and_their_clients_are_told() {
    let mut daemon = Daemon::start();
    let file = tempfile::tempfile().unwrap();
    // Another one has a full pipe that nobody reads.
    let (_reader, writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    let (mut client, mut stalled) = (daemon.admin(), daemon.admin());
    begin_capture(&mut client, &file).unwrap();
    begin_capture(&mut stalled, &writer).unwrap();
    kill_process(Pid::from_raw(daemon.child.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert_eq!(last_of(&mut client).end, Some(CaptureEnd::Stopping));
    assert_eq!(last_of(&mut stalled).end, Some(CaptureEnd::Stopping));
    assert!(daemon.child.wait().unwrap().success());
}

/// Returns a socket whose last user waits for two minutes when it closes it, and its peer.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(4 * wait::PATIENCE)).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    (stream, peer)
}

/// Closing a descriptor may take long. The admin thread has other clients.
#[test]
fn descriptors_that_nobody_asked_for_delay_nobody() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let pid = Pid::from_raw(daemon.child.id() as i32).unwrap();
    let mut peers = Vec::new();
    // When the daemon goes on, it has the last descriptor of each socket.
    kill_process(pid, Signal::STOP).unwrap();
    for _ in 0..3 {
        let (socket, peer) = lingering();
        client.send(&Call::of(&guest::ListGuests {}).unwrap(), &[socket.as_fd()]).unwrap();
        peers.push(peer);
    }
    kill_process(pid, Signal::CONT).unwrap();
    for _ in 0..3 {
        assert!(client.receive().unwrap().parameters.is_some());
    }
    assert_eq!(daemon.admin().call(&guest::ListGuests {}).unwrap().guests.len(), 2);
}

/// What cannot be closed is not read, and the log says so. Others have a socket of their own.
#[test]
fn a_socket_waits_while_many_descriptors_are_to_be_closed() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let pid = Pid::from_raw(daemon.child.id() as i32).unwrap();
    let call = Call::of(&guest::ListGuests {}).unwrap();
    let (socket, peer) = lingering();
    let file = tempfile::tempfile().unwrap();
    // When the daemon goes on, it has the last descriptor of the socket.
    kill_process(pid, Signal::STOP).unwrap();
    client.send(&call, &[socket.as_fd()]).unwrap();
    drop(socket);
    client.send(&call, &[file.as_fd(); 100]).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    for _ in 0..2 {
        assert!(client.receive().unwrap().parameters.is_some());
    }
    client.send(&call, &[]).unwrap();
    daemon.says("descriptors that clients sent take long to be closed");
    assert_eq!(daemon.observe().call(&guest::ListGuests {}).unwrap().guests.len(), 2);
    // The socket has nothing to wait for without its peer.
    drop(peer);
    assert!(client.receive().unwrap().parameters.is_some());
    assert_eq!(daemon.admin().call(&guest::ListGuests {}).unwrap().guests.len(), 2);
}

/// The stream is closed as well, with what has not been read of it.
#[test]
fn descriptors_of_a_client_that_is_dropped_delay_nobody() {
    let daemon = Daemon::start();
    let pid = Pid::from_raw(daemon.child.id() as i32).unwrap();
    let mut client = daemon.admin();
    client.call(&guest::ListGuests {}).unwrap();
    let (socket, _peer) = lingering();
    // When the daemon goes on, it has the last descriptor of the socket.
    kill_process(pid, Signal::STOP).unwrap();
    // For this the daemon drops the client, and reads nothing more.
    let nonsense = Call { method: "x".repeat(70_000), ..Call::of(&guest::ListGuests {}).unwrap() };
    client.send(&nonsense, &[]).unwrap();
    client.send(&Call::of(&guest::ListGuests {}).unwrap(), &[socket.as_fd()]).unwrap();
    drop(socket);
    kill_process(pid, Signal::CONT).unwrap();
    daemon.says("is disconnected");
    assert_eq!(daemon.admin().call(&guest::ListGuests {}).unwrap().guests.len(), 2);
}

#[test]
fn a_capture_does_not_take_what_came_with_an_earlier_call() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let file = tempfile::tempfile().unwrap();
    client.call_with(&guest::ListGuests {}, &[file.as_fd()]).unwrap();
    let first = client.follow(&StartCapture::default()).unwrap().next().unwrap();
    assert!(matches!(refused(first), Fault::CaptureNoFile { .. }));
}

/// Those who look send none. If the kernel lets them, nobody keeps it.
#[test]
fn a_descriptor_of_one_who_looks_is_not_kept() {
    let daemon = Daemon::start();
    let mut client = daemon.observe();
    let (reader, writer) = std::io::pipe().unwrap();
    let _ = client.call_with(&guest::ListGuests {}, &[writer.as_fd()]);
    drop(writer);
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    wait::until("the end of the pipe", || {
        matches!(rustix::io::read(&reader, &mut [0; 1]), Ok(0)).then_some(())
    });
    drop(client);
}

#[test]
fn clients_that_stall_are_dropped_and_delay_nobody() {
    let daemon = Daemon::start();
    let (silent, mut halting) = (daemon.raw(), daemon.raw());
    halting.write_all(b"{\"method\":\"org.vr").unwrap();
    assert_eq!(daemon.observe().call(&daemon::GetDaemon {}).unwrap().guests, 2);
    // The rest of a call has to come soon. A client between two calls has time.
    assert!(matches!(halting.read(&mut [0; 1]), Ok(0)), "it is closed without an answer");
    let who = format!("process {} of user", std::process::id());
    daemon.says(&who);
    assert!(ask(&silent, b"{\"method\":\"org.vrdma.Daemon.Info\"}\0").is_some());
}

#[test]
fn clients_that_flood_are_dropped_and_delay_nobody() {
    let daemon = Daemon::start();
    let mut floods: Vec<UnixStream> = (0..4).map(|_| daemon.raw()).collect();
    let call = b"{\"method\":\"org.vrdma.Daemon.Stats\"}\0".repeat(100);
    floods.iter().for_each(|flood| flood.set_nonblocking(true).unwrap());
    let mut client = daemon.observe();
    // They send without end, and read nothing. Sooner or later the daemon drops each of them.
    wait::until("the end of all who flood", || {
        floods.retain_mut(|flood| match flood.write(&call) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        assert_eq!(client.call(&daemon::GetDaemon {}).unwrap().guests, 2);
        floods.is_empty().then_some(())
    });
    daemon.says("is disconnected: it has read nothing of its answer for 2 s");
}

#[test]
fn a_message_of_ten_megabytes_is_refused_at_its_beginning() {
    let daemon = Daemon::start();
    let mut stream = daemon.raw();
    let mut client = daemon.observe();
    let message = vec![b' '; 10 << 20];
    stream.write_all(b"{").unwrap();
    let mut sent = 0;
    while sent < message.len() {
        // The daemon closes the connection on the way.
        let Ok(count) = stream.write(&message[sent..]) else { break };
        sent += count;
        assert_eq!(client.call(&daemon::GetDaemon {}).unwrap().guests, 2);
    }
    assert!(sent < 2 << 20, "the daemon took {sent} bytes");
    daemon.says("is disconnected: a message is longer than 65536 bytes");
}

#[test]
fn a_follower_that_sends_on_is_dropped() {
    let daemon = Daemon::start();
    let mut stream = daemon.raw();
    let call = b"{\"method\":\"org.vrdma.Daemon.Stats\",\"parameters\":{\"interval\":100},\"more\":true}\0";
    stream.write_all(call).unwrap();
    // What follows cannot be served. It is not kept without limit.
    stream.set_nonblocking(true).unwrap();
    wait::until("the end of the connection", || match stream.write(&[b' '; 4096]) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Some(()),
        _ => None,
    });
    daemon.says("is disconnected: it sent more than 65536 bytes during a call that has several replies");
    assert_eq!(daemon.observe().call(&daemon::GetDaemon {}).unwrap().guests, 2);
}

/// A client that asked for answers once a day, and left, keeps no place.
#[test]
fn followers_that_left_keep_no_place() {
    let daemon = Daemon::start();
    let mut others: Vec<Client> = (0..20).map(|_| daemon.observe()).collect();
    let call =
        b"{\"method\":\"org.vrdma.Daemon.Stats\",\"parameters\":{\"interval\":86400000},\"more\":true}\0";
    for _ in 0..100 {
        let mut stream = daemon.raw();
        stream.write_all(call).unwrap();
        assert_eq!(next_reply(&stream).unwrap()["continues"], true);
    }
    for other in &mut others {
        assert_eq!(other.call(&daemon::GetDaemon {}).unwrap().guests, 2);
    }
}

#[test]
fn crowds_of_silent_clients_shut_nobody_out() {
    let daemon = Daemon::start();
    let mut follower = daemon.observe();
    let mut replies = follower.follow(&daemon::GetStats { interval: Some(100) }).unwrap();
    replies.next().unwrap().unwrap();
    let _crowd: Vec<UnixStream> = (0..100).map(|_| daemon.raw()).collect();
    assert_eq!(daemon.observe().call(&daemon::GetDaemon {}).unwrap().guests, 2);
    assert_eq!(daemon.admin().call(&daemon::GetDaemon {}).unwrap().guests, 2);
    // One who waits for answers is not silent.
    replies.next().unwrap().unwrap();
    daemon.says("is disconnected: others came, and it was silent for the longest time");
}

#[test]
fn sockets_are_left_out_if_that_is_wanted() {
    let dir = TempDir::new().unwrap();
    let guest = format!("name=vm1,socket={},mac=52:54:00:00:00:01", dir.path().join("a").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-backend"));
    command.args(["--guest", &guest, "--admin", "none", "--observe", "none"]);
    let mut child = command.current_dir(dir.path()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let ready = { lines }.find(|line| line.contains("ready: "));
    let _ = child.kill();
    let _ = child.wait();
    assert!(ready.is_some_and(|line| line.contains("no admin socket")));
    assert!(!dir.path().join("none").exists());
}

/// Starts a daemon whose /run and whose groups are its own. Returns it with what it said until it
/// was ready, or `None` without root.
fn with_own_run(prepare: &str) -> Option<(Daemon, String)> {
    // SAFETY: this is a plain system call.
    if unsafe { libc::geteuid() } != 0 {
        let _ = writeln!(std::io::stderr(), "skipped: a mount namespace needs root");
        return None;
    }
    let script = format!("mount -t tmpfs none /run && cp /etc/group /run && {prepare} && exec \"$@\"");
    let dir = TempDir::new().unwrap();
    let guest = format!("name=vm1,socket={},mac=52:54:00:00:00:01", dir.path().join("a").display());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_vrdma-backend")]);
    command.args(["--guest", &guest]);
    let mut child = command.env_remove("RUST_LOG").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut said = String::new();
    while !said.contains("ready: ") {
        said += &lines.next().unwrap_or_else(|| panic!("the daemon ended: {said}"));
    }
    Some((Daemon { child, dir, lines: rest(lines) }, said))
}

#[test]
fn sockets_have_usual_places_and_observers_a_group() {
    use std::os::unix::fs::MetadataExt;
    let group = "echo 'vrdma:x:12345:' >> /run/group && mount --bind /run/group /etc/group";
    let Some((daemon, said)) = with_own_run(group) else { return };
    assert!(said.contains("admin socket /run/vrdma/admin, observe socket /run/vrdma/observe"), "{said}");
    let run = PathBuf::from(format!("/proc/{}/root/run/vrdma", daemon.child.id()));
    for name in ["admin", "observe"] {
        assert_eq!(client(&run.join(name)).call(&daemon::GetDaemon {}).unwrap().guests, 1);
    }
    let found = |name: &str| {
        let found = std::fs::metadata(run.join(name)).unwrap();
        (found.gid(), found.mode() & 0o777)
    };
    assert_eq!((found("admin"), found("observe"), found(".")), ((0, 0o600), (12345, 0o660), (0, 0o711)));
    drop(daemon);
    // Without the group the socket is for root.
    let (daemon, _) = with_own_run("true").unwrap();
    let observe = std::fs::metadata(format!("/proc/{}/root/run/vrdma/observe", daemon.child.id())).unwrap();
    assert_eq!((observe.gid(), observe.mode() & 0o777), (0, 0o660));
}

/// The directory that root makes is the later user's, whatever the umask is.
#[test]
fn the_usual_directory_is_of_the_user_that_the_daemon_becomes() {
    use std::os::unix::fs::MetadataExt;
    let user = "umask 077 && cp /etc/passwd /run && echo 'vrdma:x:12345:12345::/:/bin/false' >> /run/passwd \
        && mount --bind /run/passwd /etc/passwd";
    let Some((daemon, said)) = with_own_run(user) else { return };
    assert!(said.contains("observe socket /run/vrdma/observe"), "{said}");
    let run = PathBuf::from(format!("/proc/{}/root/run/vrdma", daemon.child.id()));
    let found = std::fs::metadata(&run).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (12345, 12345, 0o711));
    // It can make a socket there again.
    std::fs::remove_file(run.join("admin")).unwrap();
    wait::until("a new socket", || UnixStream::connect(run.join("admin")).ok());
}

#[test]
fn a_daemon_goes_without_usual_sockets_that_cannot_be_made() {
    let Some((_daemon, said)) = with_own_run("touch /run/vrdma") else { return };
    assert!(said.contains("no admin socket"), "{said}");
    for name in ["admin", "observe"] {
        assert!(
            said.contains(&format!(
                "there is no {name} socket (/run/vrdma/{name}: /run/vrdma is no directory"
            ))
        );
        assert!(said.contains(&format!("give --{name} PATH, or --{name} none")), "{said}");
    }
    // One that was asked for has to be there.
    let dir = TempDir::new().unwrap();
    let guest = format!("name=vm1,socket={},mac=52:54:00:00:00:01", dir.path().join("a").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-backend"));
    command.args(["--guest", &guest, "--admin", "none", "--observe", "/nonexistent/observe"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("observe: /nonexistent/observe: there is no directory /nonexistent"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

/// A guest to add: its keys, and the path of its socket.
fn third(daemon: &Daemon) -> (String, PathBuf) {
    let path = daemon.path("c");
    (format!("name=vm3,socket={},mac=52:54:00:00:00:03,any-gid=true,weight=2", path.display()), path)
}

fn names(client: &mut Client) -> Vec<String> {
    let guests = client.call(&guest::ListGuests {}).unwrap().guests;
    guests.into_iter().map(|guest| guest.name).collect()
}

fn threads(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap().count()
}

fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap().count()
}

#[test]
fn a_guest_is_added_and_removed_while_the_daemon_runs() {
    for workers in ["1", "2"] {
        let daemon = Daemon::start_with(&["--workers", workers], |command| command);
        let mut client = daemon.admin();
        let (keys, path) = third(&daemon);
        // An answer shows that the client is accepted, so its descriptor is among those of before.
        assert_eq!(names(&mut client), ["vm1", "vm2"]);
        let open = || (threads(&daemon), descriptors(&daemon));
        let before = open();
        for _ in 0..3 {
            client.call(&guest::AddGuest { guest: keys.clone() }).unwrap();
            assert_eq!(names(&mut client), ["vm1", "vm2", "vm3"]);
            let front_end = UnixStream::connect(&path).unwrap();
            wait::until("the front-end's process", || {
                let guests = client.call(&guest::ListGuests {}).unwrap().guests;
                guests[2].functions[0].pid
            });
            let saved = client.call(&daemon::SaveConfig {}).unwrap().toml;
            assert!(saved.contains("vm3") && saved.contains("weight = 2"), "{saved}");
            // It is in use.
            let remove = guest::RemoveGuest { name: "vm3".into(), force: None };
            match refused(client.call(&remove)) {
                Fault::GuestInUse { name, pids, reason } => {
                    assert_eq!((name.as_str(), &pids[..]), ("vm3", &[std::process::id()][..]));
                    assert!(reason.contains(&format!("process {}", std::process::id())), "{reason}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(names(&mut client), ["vm1", "vm2", "vm3"]);
            drop(front_end);
            wait::until("the guest's removal", || client.call(&remove).ok());
            assert_eq!(names(&mut client), ["vm1", "vm2"]);
            assert!(!path.exists(), "its socket is gone");
            assert!(!client.call(&daemon::SaveConfig {}).unwrap().toml.contains("vm3"));
            assert_eq!(client.call(&daemon::GetStats::default()).unwrap().stats["guests"][1]["name"], "vm2");
            // What was the guest's ends in other threads.
            wait::until("as few threads and descriptors as before", || {
                (open().0 <= before.0 && open().1 <= before.1).then_some(())
            });
        }
    }
}

#[test]
fn a_guest_that_is_in_use_is_removed_by_force() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let mut front_end = UnixStream::connect(daemon.path("b")).unwrap();
    let other = UnixStream::connect(daemon.path("a")).unwrap();
    wait::until("both front-ends", || {
        let guests = client.call(&guest::ListGuests {}).unwrap().guests;
        guests.iter().all(|guest| guest.functions[0].connected).then_some(())
    });
    client.call(&guest::RemoveGuest { name: "vm2".into(), force: Some(true) }).unwrap();
    assert!(matches!(front_end.read(&mut [0; 1]), Ok(0) | Err(_)), "its connection is closed");
    assert!(UnixStream::connect(daemon.path("b")).is_err(), "there is no socket");
    assert_eq!(names(&mut client), ["vm1"]);
    assert!(client.call(&guest::ListGuests {}).unwrap().guests[0].functions[0].connected);
    drop(other);
    // The last guest may go, too.
    client.call(&guest::RemoveGuest { name: "vm1".into(), force: Some(true) }).unwrap();
    assert_eq!(names(&mut client), [""; 0]);
    assert_eq!(client.call(&daemon::GetStats::default()).unwrap().stats["guests"], json!([]));
    client.call(&guest::AddGuest { guest: third(&daemon).0 }).unwrap();
    assert_eq!(names(&mut client), ["vm3"]);
}

#[test]
fn mistakes_in_a_new_guest_are_named_and_change_nothing() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let (keys, path) = third(&daemon);
    let elsewhere = tempfile::TempDir::new().unwrap();
    for (guest, said) in [
        (keys.replace("socket=", "soket="), "there is no key soket: did you mean socket?"),
        (keys.replace("weight=2", "weight=200"), "guest vm3: weight = 200: give a number from 1 to 100"),
        (keys.replace("vm3", "vm2"), "guest vm2: two guests have this name"),
        (keys.replace("00:03", "00:01"), "is there twice, also at guest vm1"),
        (keys.replace("any-gid=true", "any-gid=yes"), "any_gid: 'yes' is not true or false"),
        (keys.replace(&*path.to_string_lossy(), &daemon.path("a").to_string_lossy()), "it is there twice"),
        (format!("{keys},worker=1"), "guest vm3: worker = 1: workers = 1"),
        (format!("{keys},net-fd=3"), "a daemon inherits descriptors at its start alone"),
        (
            keys.replace(&*path.to_string_lossy(), &elsewhere.path().join("c").to_string_lossy()),
            "restart the daemon",
        ),
        (format!("{keys},users=nobody-of-this-name"), "is not a user of this host"),
        ("name=vm3".into(), "the key mac is missing"),
    ] {
        let fault = refused(client.call(&guest::AddGuest { guest: guest.clone() }));
        let reason = fault.to_string();
        assert!(reason.contains(said), "{guest}: {reason}");
        assert_eq!(names(&mut client), ["vm1", "vm2"]);
    }
    let taken = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let fault = refused(client.call(&guest::AddGuest { guest: keys.clone() }));
    assert!(matches!(&fault, Fault::GuestRefused { reason } if reason.contains("in use")), "{fault:?}");
    drop(taken);
    client.call(&guest::AddGuest { guest: keys }).unwrap();
    // A name that nobody has.
    let fault = refused(client.call(&guest::RemoveGuest { name: "vm4".into(), force: None }));
    assert!(matches!(&fault, Fault::GuestNotFound { reason, .. } if reason.contains("did you mean vm")));
    let mut observer = daemon.observe();
    let remove = guest::RemoveGuest { name: "vm3".into(), force: Some(true) };
    assert_eq!(refused(observer.call(&remove)), Fault::PermissionDenied {});
}

#[test]
fn keys_of_a_guest_are_set_while_it_runs() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let set = |keys: &str| guest::SetGuest { name: "vm1".into(), keys: keys.into() };
    client.call(&set("weight=5,tx-bytes=5000000,burst_ms=20")).unwrap();
    let shown = client.call(&guest::ShowGuest { name: "vm1".into() }).unwrap().keys;
    assert_eq!((&shown["weight"], &shown["tx_bytes"]), (&json!(5), &json!(5_000_000)));
    assert!(client.call(&daemon::SaveConfig {}).unwrap().toml.contains("tx_bytes = 5000000"));
    for (keys, said) in [
        ("wieght=5", "there is no key wieght: did you mean weight?"),
        ("weight=0", "guest vm1: weight = 0: give a number from 1 to 100"),
        ("tx_bytes=5", "guest vm1: tx_bytes = 5: give a number from 1000000"),
        ("socket=/x", "socket: it holds from the guest's begin to its end"),
    ] {
        let fault = refused(client.call(&set(keys)));
        assert!(
            matches!(&fault, Fault::InvalidParameter { reason, .. } if reason.starts_with(said)),
            "{fault}"
        );
    }
    let again = client.call(&guest::ShowGuest { name: "vm1".into() }).unwrap().keys;
    assert_eq!(again, shown);
}

#[test]
fn what_was_changed_in_the_file_is_done() {
    let configured = TempDir::new().unwrap();
    let file = configured.path().join("backend.toml");
    std::fs::write(&file, "# No guest so far\n").unwrap();
    let daemon = Daemon::start_with(&["--config", &file.display().to_string()], |command| command);
    let mut client = daemon.admin();
    let guest = |name: &str, mac: u8, more: &str| {
        let socket = daemon.path(name);
        let socket = socket.display();
        format!(
            "[[guest]]\nname = '{name}'\nsocket = '{socket}'\nmac = '52:54:00:00:01:{mac:02x}'\nany_gid = true\n{more}\n"
        )
    };
    let write = |text: String| std::fs::write(&file, text).unwrap();
    let reload = &daemon::Reload {};
    assert_eq!(client.call(reload).unwrap(), daemon::Reloaded::default(), "nothing was changed");
    write([guest("x", 1, ""), guest("y", 2, "")].concat());
    let done = client.call(reload).unwrap();
    assert_eq!(done.added, ["x", "y"]);
    assert_eq!(names(&mut client), ["vm1", "vm2", "x", "y"]);
    write([guest("y", 3, ""), guest("z", 1, "weight = 4")].concat());
    let done = client.call(reload).unwrap();
    assert_eq!(
        (&done.added[..], &done.removed[..], &done.changed[..]),
        (&["z".to_owned()][..], &["x".to_owned()][..], &["y".to_owned()][..])
    );
    assert_eq!(names(&mut client), ["vm1", "vm2", "y", "z"]);
    assert!(!daemon.path("x").exists() && daemon.path("z").exists() && daemon.path("y").exists());
    // A mistake anywhere changes nothing, and is named with its line.
    write([guest("y", 3, "wieght = 7"), guest("w", 4, "")].concat());
    match refused(client.call(reload)) {
        Fault::NotReloaded { reason } => {
            assert!(
                reason.contains(
                    "backend.toml: line 6, 'wieght = 7': there is no key wieght: did you mean weight?"
                ),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(names(&mut client), ["vm1", "vm2", "y", "z"]);
    // Neither does a guest that has to go while a front-end is connected, or a key of the daemon.
    let front_end = UnixStream::connect(daemon.path("y")).unwrap();
    wait::until("the front-end", || client.call(&guest::ListGuests {}).unwrap().guests[2].functions[0].pid);
    write([guest("z", 1, "weight = 9"), guest("w", 4, "")].concat());
    let fault = refused(client.call(reload));
    assert!(fault.to_string().contains(&format!("process {}", std::process::id())), "{fault}");
    write(["mtu = 1500\n".to_owned(), guest("y", 3, ""), guest("z", 1, "weight = 9")].concat());
    let fault = refused(client.call(reload));
    assert!(fault.to_string().starts_with("mtu: "), "{fault}");
    assert_eq!(names(&mut client), ["vm1", "vm2", "y", "z"]);
    // Its weight changes while it is connected. A signal has the file read, too.
    write([guest("y", 3, "weight = 8"), guest("z", 1, "weight = 4")].concat());
    let pid = rustix::process::Pid::from_child(&daemon.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    daemon.says("the configuration was read again: guests added: none; removed: none; changed: y");
    assert_eq!(client.call(&guest::ShowGuest { name: "y".into() }).unwrap().keys["weight"], 8);
    drop(front_end);
}

/// The host's TCP is not in the jail of a daemon that began without it. That is found before a call
/// is made for which the thread would end, and the daemon with it.
#[test]
fn a_new_guest_that_needs_more_than_the_jail_has_is_refused() {
    let configured = TempDir::new().unwrap();
    let file = configured.path().join("backend.toml");
    std::fs::write(&file, "").unwrap();
    let daemon = Daemon::start_with(&["--config", &file.display().to_string()], |command| command);
    let mut client = daemon.admin();
    let (keys, path) = third(&daemon);
    let guest = format!("{keys},transport=iwarp,tcp=kernel,host-address=127.0.0.1");
    let fault = refused(client.call(&guest::AddGuest { guest }));
    assert!(
        matches!(&fault, Fault::GuestRefused { reason } if reason.starts_with("tcp = \"kernel\"")),
        "{fault:?}"
    );
    let text = format!(
        "[[guest]]\nname = 'vm3'\nsocket = '{}'\nmac = '52:54:00:00:00:03'\nany_gid = true\n\
         transport = 'iwarp'\ntcp = 'kernel'\nhost_address = '127.0.0.1'\n",
        path.display()
    );
    std::fs::write(&file, text).unwrap();
    let fault = refused(client.call(&daemon::Reload {}));
    assert!(
        matches!(&fault, Fault::NotReloaded { reason } if reason.starts_with("tcp = \"kernel\"")),
        "{fault:?}"
    );
    assert_eq!(names(&mut client), ["vm1", "vm2"]);
}

/// A reload that the host refuses changes nothing, or as little as can be, and says so.
#[test]
fn a_reload_that_fails_is_undone() {
    let configured = TempDir::new().unwrap();
    let file = configured.path().join("backend.toml");
    std::fs::write(&file, "").unwrap();
    let daemon = Daemon::start_with(&["--config", &file.display().to_string()], |command| command);
    let mut client = daemon.admin();
    let below = daemon.path("below");
    std::fs::create_dir(&below).unwrap();
    let guest = |name: &str, mac: u8, socket: &Path| {
        let socket = socket.display();
        format!(
            "[[guest]]\nname = '{name}'\nsocket = '{socket}'\nmac = '52:54:00:00:01:{mac:02x}'\nany_gid = true\n"
        )
    };
    let write = |text: String| std::fs::write(&file, text).unwrap();
    let [at_x, at_y, at_b] = [daemon.path("x"), daemon.path("y"), below.join("b")];
    // The guest that cannot be had later is the first one to come back.
    write([guest("b", 3, &at_b), guest("x", 1, &at_x), guest("y", 2, &at_y)].concat());
    client.call(&daemon::Reload {}).unwrap();
    let all = ["vm1", "vm2", "b", "x", "y"];
    assert_eq!(names(&mut client), all);
    let mut reason = || match refused(client.call(&daemon::Reload {})) {
        Fault::NotReloaded { reason } => reason,
        other => panic!("{other:?}"),
    };
    // Two guests leave, and a third moves to a place that somebody else has.
    let taken = std::os::unix::net::UnixListener::bind(daemon.path("taken")).unwrap();
    write(guest("y", 2, &daemon.path("taken")));
    assert!(reason().contains("in use"));
    drop(taken);
    // The file was written half way.
    write(String::new());
    assert!(reason().contains("the file is empty"));
    for path in [&at_x, &at_y, &at_b] {
        UnixStream::connect(path).unwrap();
    }
    assert_eq!(names(&mut client), all);
    // A place that becomes free only then cannot be had, because its directory is gone.
    std::fs::remove_dir_all(&below).unwrap();
    write([guest("x", 1, &at_x), guest("y", 2, &at_b)].concat());
    let Fault::NotReloaded { reason } = refused(client.call(&daemon::Reload {})) else { panic!() };
    assert!(reason.contains("guest y: ") && reason.contains("some guests are not as they were"), "{reason}");
    let mut left = names(&mut client);
    left.sort_unstable();
    assert_eq!(left, ["vm1", "vm2", "x", "y"]);
    UnixStream::connect(&at_y).unwrap();
    // A guest with another name at the same place is another guest.
    write([guest("w", 1, &at_x), guest("y", 2, &at_y)].concat());
    client.call(&daemon::Reload {}).unwrap();
    UnixStream::connect(&at_x).unwrap();
    let mut left = names(&mut client);
    left.sort_unstable();
    assert_eq!(left, ["vm1", "vm2", "w", "y"]);
}
