//! A daemon that a test plays, and the exporter's program.
#![allow(dead_code, reason = "not each test uses all of it")]

use serde_json::{Map, Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use vrdma_admin::daemon::{AllCounters, DaemonInfo, GetDaemon, GetStats, LinkState};
use vrdma_admin::guest::{FunctionKind, Guest, GuestFunction, Guests, ListGuests, Meeting};
use vrdma_admin::worker::{ListWorkers, Worker, WorkerList};
use vrdma_admin::{Call, Fault, Frames, Method, Reply};
use vrdma_exporter::families;
use vrdma_exporter::snapshot::Scope;

#[path = "../../../testing/guest/src/wait.rs"]
pub mod wait;

/// A guest's name with what has a meaning in the formats.
pub const ODD_NAME: &str = "odd \"name\" \\ {x=1}";

/// How the daemon behaves.
#[derive(Clone, Debug)]
pub enum Manners {
    /// It answers.
    Answers,
    /// It reads calls and never answers.
    Silent,
    /// It refuses each call.
    Refuses(Fault),
    /// It does not have this method.
    Lacks(&'static str),
    /// It answers with what is no reply.
    Nonsense,
}

/// A daemon with two guests, one of which has an odd name. Its numbers grow with each answer.
pub struct FakeDaemon {
    path: PathBuf,
    manners: Arc<Mutex<Manners>>,
}

impl FakeDaemon {
    /// Listens at a path.
    pub fn start(path: &Path) -> FakeDaemon {
        let listener = UnixListener::bind(path).unwrap();
        let manners = Arc::new(Mutex::new(Manners::Answers));
        let (own, ticks) = (Arc::clone(&manners), Arc::new(AtomicU64::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (manners, ticks) = (Arc::clone(&own), Arc::clone(&ticks));
                std::thread::spawn(move || serve(stream, &manners, &ticks));
            }
        });
        FakeDaemon { path: path.to_owned(), manners }
    }

    /// Sets how it behaves from here on.
    pub fn behave(&self, manners: Manners) {
        *self.manners.lock().unwrap() = manners;
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(mut stream: UnixStream, manners: &Mutex<Manners>, ticks: &AtomicU64) {
    let (mut frames, mut bytes) = (Frames::new(1 << 16), [0; 4096]);
    loop {
        while let Some(message) = frames.next_message().unwrap() {
            let call = Call::parse(&message).unwrap();
            assert!(!call.more && !call.oneway, "the exporter asks once: {call:?}");
            let Some(reply) = reply(&call, &manners.lock().unwrap(), ticks) else { continue };
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => frames.add(&bytes[..count]),
        }
    }
}

fn reply(call: &Call, manners: &Manners, ticks: &AtomicU64) -> Option<Vec<u8>> {
    let fault = |fault: &Fault| Some(Reply::fault(fault).emit());
    match manners {
        Manners::Silent => return None,
        Manners::Refuses(why) => return fault(why),
        Manners::Lacks(method) if *method == call.method => {
            return fault(&Fault::MethodNotFound { method: call.method.clone() });
        }
        Manners::Nonsense => return Some(b"{\"parameters\":7".to_vec().into_iter().chain([0]).collect()),
        Manners::Lacks(_) | Manners::Answers => {}
    }
    let reply = match call.method.as_str() {
        GetDaemon::NAME => Reply::of(&info()),
        GetStats::NAME => Reply::of(&stats(1000 * ticks.fetch_add(1, Ordering::Relaxed))),
        ListGuests::NAME => Reply::of(&Guests { guests: vec![guest("vm1"), guest(ODD_NAME)] }),
        ListWorkers::NAME => Reply::of(&workers(ticks.load(Ordering::Relaxed))),
        other => panic!("the exporter calls {other}"),
    };
    Some(reply.emit())
}

fn info() -> DaemonInfo {
    DaemonInfo {
        version: "9.8.7".into(),
        pid: 1,
        uptime: 5,
        uplink: None,
        link: Some(LinkState { up: true, mtu: 4200 }),
        workers: 1,
        guests: 2,
        queues: 64,
        config: None,
        draining: false,
    }
}

fn guest(name: &str) -> Guest {
    let function = |kind| GuestFunction {
        kind,
        meets: Meeting::Socket,
        socket: None,
        connected: true,
        pid: Some(1),
        uid: Some(0),
    };
    Guest {
        name: name.into(),
        mac: "52:54:00:00:00:01".into(),
        worker: 0,
        functions: vec![function(FunctionKind::Roce), function(FunctionKind::Ethernet)],
        objects: None,
    }
}

fn workers(tick: u64) -> WorkerList {
    let some = |number: u64| Some(number + 1_000_000 * tick);
    let worker = Worker {
        guests: vec!["vm1".into()],
        processor: Some(0),
        processor_time: some(1),
        busy: some(2),
        idle: some(3),
        asleep: some(4),
        longest_turn: Some(1500),
        sleeps: some(5),
        busy_turns: some(6),
        idle_turns: some(7),
        requests: some(8),
        ..Worker::default()
    };
    WorkerList { workers: vec![worker] }
}

/// Returns all counters from which series are made, each with another number.
fn stats(base: u64) -> AllCounters {
    let guest = |name: &str| {
        let mut guest = json!({
            "name": name,
            "connected": {"rdma": true, "net": true},
            "reachable": {"rdma": true, "net": true},
        });
        fill(&mut guest, &[Scope::Guest], base);
        fill_only(&mut guest, Scope::Port, "net.", base);
        guest
    };
    let mut stats = json!({
        "version": "9.8.7",
        "link": {"up": true, "mtu": 4200},
        "workers": [{"frames_lost": base, "packets_lost": base + 1}],
        "guests": [guest("vm1"), guest(ODD_NAME)],
    });
    fill(&mut stats, &[Scope::Daemon], base);
    fill_only(&mut stats, Scope::Port, "uplink.", base);
    stats["version"] = "9.8.7".into();
    AllCounters { stats: stats.as_object().cloned().unwrap() }
}

fn fill(object: &mut Value, scopes: &[Scope], base: u64) {
    scopes.iter().for_each(|scope| fill_only(object, *scope, "", base));
}

/// Sets each number from which series of a scope are made.
fn fill_only(object: &mut Value, scope: Scope, start: &str, base: u64) {
    let families = families::all().filter(|family| family.scope == scope);
    let sources = families.flat_map(|family| family.rows).flat_map(|row| row.sources);
    for (number, source) in sources.filter(|source| source.starts_with(start)).enumerate() {
        let number = base + number as u64;
        let source = source.replace('*', "odd");
        match source.split_once('.') {
            // These are in other replies.
            Some(("place" | "info", _)) => {}
            Some((section, key)) => {
                if !object[section].is_object() {
                    object[section] = Map::new().into();
                }
                object[section][key] = number.into();
            }
            None => object[source] = number.into(),
        }
    }
}

/// The program. It is killed when dropped.
pub struct Exporter {
    pub child: Child,
    pub address: SocketAddr,
    /// What it writes after it was ready.
    pub lines: Mutex<Receiver<String>>,
}

impl Exporter {
    /// Starts it for a daemon's socket.
    pub fn start(socket: &Path, more: &[&str]) -> Exporter {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-exporter"));
        command.arg("--socket").arg(socket);
        if !more.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut child = command.args(more).env_remove("RUST_LOG").stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.find(|line| line.contains("ready: ")).expect("it ended");
        let address = ready.split_once("http://").unwrap().1.split_once("/metrics").unwrap().0;
        let (written, since) = channel();
        std::thread::spawn(move || lines.all(|line| written.send(line).is_ok()));
        Exporter { child, address: address.parse().unwrap(), lines: Mutex::new(since) }
    }

    /// Waits until it writes a line with this text.
    pub fn says(&self, text: &str) {
        let lines = self.lines.lock().unwrap();
        while !wait::receive(text, &lines).contains(text) {}
    }

    /// Connects without sending anything.
    pub fn connect(&self) -> TcpStream {
        connect(self.address).unwrap()
    }

    /// Sends bytes, and returns the whole answer.
    pub fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // It may be refused before it is sent as a whole.
        let _ = stream.write_all(bytes);
        answer(&mut stream)
    }

    /// Returns the series in Prometheus' own format.
    pub fn metrics(&self) -> String {
        let answer = self.ask(b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to a server that answers soon.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(wait::PATIENCE))?;
    stream.set_write_timeout(Some(wait::PATIENCE))?;
    Ok(stream)
}

/// Reads an answer to its end.
pub fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        panic!("{error} after {}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8(bytes).unwrap()
}
