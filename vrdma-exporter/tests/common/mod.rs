//! A daemon that a test plays, and the exporter's program.
#![allow(dead_code, reason = "not each test uses all of it")]

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vrdma_admin::daemon::{AllCounters, DaemonInfo, GetDaemon, GetStats, LinkState};
use vrdma_admin::guest::{FunctionKind, Guest, GuestFunction, Guests, ListGuests, Meeting};
use vrdma_admin::worker::{ListWorkers, Worker, WorkerList};
use vrdma_admin::{Call, Fault, Frames, Method, Reply};
use vrdma_exporter::families;
use vrdma_exporter::family::Kind;
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
    /// It answers, and its second worker is stuck.
    HasStuckWorker,
    /// It answers each call after this time.
    Slow(Duration),
}

/// A daemon with two workers. Each has a guest, the second of which has an odd name. Its numbers
/// grow with each answer.
pub struct FakeDaemon {
    path: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    manners: Mutex<Manners>,
    /// How often its counters were asked for.
    ticks: AtomicU64,
    /// How many calls came, by their method.
    calls: Mutex<BTreeMap<String, usize>>,
    /// Its connections.
    streams: Mutex<Vec<UnixStream>>,
    /// How many guests it has beside the two, on the first worker.
    more_guests: usize,
}

impl FakeDaemon {
    /// Listens at a path.
    pub fn start(path: &Path) -> FakeDaemon {
        FakeDaemon::with_more_guests(path, 0)
    }

    /// Listens at a path. It has this many guests beside the two.
    pub fn with_more_guests(path: &Path, more_guests: usize) -> FakeDaemon {
        let listener = UnixListener::bind(path).unwrap();
        let manners = Mutex::new(Manners::Answers);
        let (ticks, calls, streams) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { manners, ticks, calls, streams, more_guests });
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&own);
                shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        FakeDaemon { path: path.to_owned(), shared }
    }

    /// Sets how it behaves from here on.
    pub fn behave(&self, manners: Manners) {
        *self.shared.manners.lock().unwrap() = manners;
    }

    /// Closes all connections.
    pub fn hang_up(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns how many calls of a method have come.
    pub fn calls(&self, method: &str) -> usize {
        self.shared.calls.lock().unwrap().get(method).copied().unwrap_or_default()
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(mut stream: UnixStream, shared: &Shared) {
    let (mut frames, mut bytes) = (Frames::new(1 << 16), [0; 4096]);
    loop {
        while let Some(message) = frames.next_message().unwrap() {
            let call = Call::parse(&message).unwrap();
            assert!(!call.more && !call.oneway, "the exporter asks once: {call:?}");
            *shared.calls.lock().unwrap().entry(call.method.clone()).or_default() += 1;
            let manners = shared.manners.lock().unwrap().clone();
            let Some(reply) = reply(&call, &manners, shared) else { continue };
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

fn reply(call: &Call, manners: &Manners, shared: &Shared) -> Option<Vec<u8>> {
    let fault = |fault: &Fault| Some(Reply::fault(fault).emit());
    match manners {
        Manners::Silent => return None,
        Manners::Refuses(why) => return fault(why),
        Manners::Lacks(method) if *method == call.method => {
            return fault(&Fault::MethodNotFound { method: call.method.clone() });
        }
        Manners::Nonsense => return Some(b"{\"parameters\":7".to_vec().into_iter().chain([0]).collect()),
        Manners::Slow(time) => wait::pause(*time, "the daemon is slow; a test may wait longer, never less"),
        Manners::Lacks(_) | Manners::Answers | Manners::HasStuckWorker => {}
    }
    let is_stuck = matches!(manners, Manners::HasStuckWorker);
    let more: Vec<String> = (0..shared.more_guests).map(|number| format!("g{number}")).collect();
    let reply = match call.method.as_str() {
        GetDaemon::NAME => Reply::of(&info()),
        GetStats::NAME => {
            Reply::of(&stats(1000 * shared.ticks.fetch_add(1, Ordering::Relaxed), &more, is_stuck))
        }
        ListGuests::NAME => {
            let mut guests = vec![guest("vm1", 0), guest(ODD_NAME, 1)];
            guests.extend(more.iter().map(|name| guest(name, 0)));
            Reply::of(&Guests { guests })
        }
        ListWorkers::NAME => Reply::of(&workers(shared.ticks.load(Ordering::Relaxed), is_stuck)),
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
        workers: 2,
        guests: 2,
        queues: 64,
        config: None,
        draining: false,
    }
}

fn guest(name: &str, worker: u64) -> Guest {
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
        worker,
        functions: vec![function(FunctionKind::Roce), function(FunctionKind::Ethernet)],
        objects: None,
    }
}

fn workers(tick: u64, is_stuck: bool) -> WorkerList {
    let some = |number: u64| Some(number + 1_000_000 * tick);
    let worker = |number, guest: &str| Worker {
        number,
        guests: vec![guest.into()],
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
    let stuck = || Worker { number: 1, stuck: true, guests: vec![ODD_NAME.into()], ..Worker::default() };
    let second = if is_stuck { stuck() } else { worker(1, ODD_NAME) };
    WorkerList { workers: vec![worker(0, "vm1"), second] }
}

/// Returns all counters from which series are made, each with another number.
///
/// A stuck worker is told as the daemon does it (`Observer::stats`): its guests are missing, its
/// own counters are zero, and the sums are those of the other worker.
fn stats(base: u64, more: &[String], is_stuck: bool) -> AllCounters {
    let mut guest = json!({
        "connected": {"rdma": true, "net": true},
        "reachable": {"rdma": true, "net": true},
    });
    fill_only(&mut guest, Scope::Guest, "", base);
    fill_only(&mut guest, Scope::Port, "net.", base);
    let guest = |name: &str| {
        let mut guest = guest.clone();
        guest["name"] = name.into();
        guest
    };
    let own = |base| json!({"stuck": false, "frames_lost": base, "packets_lost": base + 1});
    let second =
        if is_stuck { json!({"stuck": true, "frames_lost": 0, "packets_lost": 0}) } else { own(base) };
    let names = ["vm1", ODD_NAME].into_iter().take(if is_stuck { 1 } else { 2 });
    let guests: Vec<Value> = names.chain(more.iter().map(String::as_str)).map(guest).collect();
    let mut stats = json!({
        "version": "9.8.7",
        "link": {"up": true, "mtu": 4200},
        "workers": [own(base), second],
        "guests": guests,
    });
    let sums = if is_stuck { 0 } else { base };
    fill_only(&mut stats, Scope::Daemon, "", sums);
    fill_only(&mut stats, Scope::Port, "uplink.", sums);
    stats["version"] = "9.8.7".into();
    stats["memory_faults"] = (base + 2).into();
    AllCounters { stats: stats.as_object().cloned().unwrap() }
}

/// Sets each number from which series of a scope are made, if its name begins so.
fn fill_only(object: &mut Value, scope: Scope, start: &str, base: u64) {
    let families = families::all().filter(|family| family.scope == scope);
    let sources = families.flat_map(|family| {
        family.rows.iter().flat_map(|row| row.sources).map(|source| (family.kind, *source))
    });
    for (number, (kind, source)) in sources.filter(|(_, source)| source.starts_with(start)).enumerate() {
        let number = base + number as u64;
        let number = match kind {
            Kind::Histogram => json!({
                "requests": 4 * number,
                "sum_ns": 9000 * number,
                "buckets": [[1000, number], [5000, 2 * number]],
            }),
            _ => number.into(),
        };
        let source = source.replace('*', "odd");
        match source.split_once('.') {
            // These are in other replies.
            Some(("place" | "info", _)) => {}
            Some((section, key)) => {
                if !object[section].is_object() {
                    object[section] = Map::new().into();
                }
                object[section][key] = number;
            }
            None => object[source] = number,
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
        Exporter::start_by(Command::new(env!("CARGO_BIN_EXE_vrdma-exporter")), socket, more)
    }

    /// Starts it by a command that has no arguments.
    pub fn start_by(mut command: Command, socket: &Path, more: &[&str]) -> Exporter {
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

    /// Scrapes without a daemon's answer until it writes a line with this text.
    pub fn says_after_scrapes(&self, text: &str) {
        wait::until(text, || {
            assert!(self.metrics().contains("\nvrdma_up 0\n"));
            self.lines.lock().unwrap().try_iter().any(|line| line.contains(text)).then_some(())
        });
    }

    /// Scrapes until the series have this line. An answer of the daemon is good for a while.
    pub fn metrics_with(&self, line: &str) -> String {
        wait::until(line, || {
            let text = self.metrics();
            text.lines().any(|own| own == line).then_some(text)
        })
    }

    /// Connects without sending anything.
    pub fn connect(&self) -> TcpStream {
        connect(self.address).unwrap()
    }

    /// Sends bytes, and returns the whole answer.
    pub fn ask(&self, bytes: &[u8]) -> String {
        ask(self.address, bytes)
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

/// Sends bytes to a server, and returns the whole answer.
pub fn ask(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(address).unwrap();
    // It may be refused before it is sent as a whole.
    let _ = stream.write_all(bytes);
    answer(&mut stream)
}

/// Reads an answer to its end.
pub fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        panic!("{error} after {}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8(bytes).unwrap()
}
