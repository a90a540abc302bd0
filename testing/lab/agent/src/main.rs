//! The agent in a test VM.
//!
//! `vm-init` starts it as PID 1, as the last step of the boot. As PID 1 it keeps a child of itself
//! running, which is the real agent, and reaps orphans.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::wait;
use nix::unistd::Pid;
use vrdma_vm_agent::{Frame, GREETING, Kind, MAX_PAYLOAD, NOT_STARTED, PORT, answer, hunt};

fn main() {
    if std::process::id() == 1 {
        be_init();
    }
    if let Err(error) = serve() {
        eprintln!("vm-agent: {error}");
        std::process::exit(1);
    }
}

/// Runs as PID 1: restarts the agent when it ends, and reaps orphans.
fn be_init() -> ! {
    loop {
        let agent = Command::new("/proc/self/exe").spawn();
        let Ok(agent) = agent else {
            thread::sleep(Duration::from_secs(1));
            continue;
        };
        let agent = Pid::from_raw(agent.id() as i32);
        while wait().is_ok_and(|status| status.pid() != Some(agent)) {}
        eprintln!("vm-agent: restarted");
    }
}

/// The port as a stream that never ends.
///
/// A read of zero bytes means that nobody is connected at the other side.
struct Port(File);

impl Read for Port {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer)? {
                0 => thread::sleep(Duration::from_millis(20)),
                length => return Ok(length),
            }
        }
    }
}

type Writer = Arc<Mutex<File>>;
type Jobs = Arc<Mutex<HashMap<u32, Job>>>;

/// A running job: its process group, and its standard input as long as it is open.
struct Job {
    group: Pid,
    stdin: Option<Sender<Vec<u8>>>,
}

fn serve() -> io::Result<()> {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let port = OpenOptions::new().read(true).write(true).open(find_port()?)?;
    let writer: Writer = Arc::new(Mutex::new(port.try_clone()?));
    let mut reader = BufReader::with_capacity(MAX_PAYLOAD, Port(port));
    let jobs: Jobs = Arc::default();
    loop {
        hunt(&mut reader, &GREETING)?;
        loop {
            let mut nonce = [0; 8];
            reader.read_exact(&mut nonce)?;
            end_all(&jobs);
            send_bytes(&writer, &answer(u64::from_le_bytes(nonce), &boot_id));
            match serve_frames(&mut reader, &writer, &jobs)? {
                Next::Greeting => {}
                Next::Rubbish => break,
            }
        }
    }
}

/// Why [`serve_frames`] returned.
enum Next {
    /// A greeting in place of a frame. It has been read up to the nonce.
    Greeting,
    /// Other bytes in place of a frame.
    Rubbish,
}

fn serve_frames(reader: &mut impl Read, writer: &Writer, jobs: &Jobs) -> io::Result<Next> {
    loop {
        // A frame's header is as long as a greeting's first bytes.
        let mut head = [0; 16];
        reader.read_exact(&mut head)?;
        if head == GREETING {
            return Ok(Next::Greeting);
        }
        match Frame::read(&mut head.as_slice().chain(&mut *reader)) {
            Ok(frame) => handle(frame, writer, jobs),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(Next::Rubbish),
            Err(error) => return Err(error),
        }
    }
}

fn handle(frame: Frame, writer: &Writer, jobs: &Jobs) {
    let Frame { kind, job, payload } = frame;
    match kind {
        Kind::Run => run(job, &payload, writer, jobs),
        Kind::Stdin => {
            if let Some(running) = lock(jobs).get_mut(&job) {
                if payload.is_empty() {
                    running.stdin = None;
                } else if let Some(stdin) = &running.stdin {
                    // An error means that the job no longer reads.
                    let _ = stdin.send(payload);
                }
            }
        }
        Kind::Signal => {
            let number = payload.first_chunk().map_or(9, |bytes| i32::from_le_bytes(*bytes));
            if let (Some(job), Ok(signal)) = (lock(jobs).get(&job), Signal::try_from(number)) {
                let _ = killpg(job.group, signal);
            }
        }
        Kind::Stdout | Kind::Stderr | Kind::Exit => {}
    }
}

fn run(job: u32, command: &[u8], writer: &Writer, jobs: &Jobs) {
    let line = String::from_utf8_lossy(command).into_owned();
    let spawned = Command::new("/bin/sh")
        .args(["-c", &line])
        .current_dir("/root")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match spawned {
        Ok(mut child) => {
            let group = Pid::from_raw(child.id() as i32);
            let stdin = child.stdin.take().map(feed);
            lock(jobs).insert(job, Job { group, stdin });
            let (writer, jobs) = (writer.clone(), jobs.clone());
            thread::spawn(move || watch(job, child, &writer, &jobs));
        }
        Err(error) => {
            send(writer, Kind::Stderr, job, format!("vm-agent: {error}\n").into_bytes());
            send(writer, Kind::Exit, job, NOT_STARTED.to_le_bytes().to_vec());
        }
    }
}

/// Starts a thread that writes to the job's standard input.
///
/// So a job that does not read cannot stop the agent.
fn feed(mut stdin: ChildStdin) -> Sender<Vec<u8>> {
    let (sender, receiver) = channel::<Vec<u8>>();
    thread::spawn(move || receiver.iter().try_for_each(|bytes| stdin.write_all(&bytes)));
    sender
}

/// Copies the job's output until it has ended, then sends its exit value.
fn watch(job: u32, mut child: Child, writer: &Writer, jobs: &Jobs) {
    let (done, finished) = channel::<()>();
    if let Some(stdout) = child.stdout.take() {
        copy(stdout, Kind::Stdout, job, writer.clone(), done.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        copy(stderr, Kind::Stderr, job, writer.clone(), done.clone());
    }
    drop(done);
    let code = match child.wait() {
        Ok(status) => status.code().unwrap_or_else(|| 256 + status.signal().unwrap_or(0)),
        Err(_) => NOT_STARTED,
    };
    // The pipes now contain all that the job wrote. A daemon that it left behind may hold them open
    // for ever, so a pause without output counts as the end.
    for _ in 0..2 {
        if finished.recv_timeout(Duration::from_millis(300)).is_err() {
            break;
        }
    }
    lock(jobs).remove(&job);
    send(writer, Kind::Exit, job, code.to_le_bytes().to_vec());
}

fn copy(mut from: impl Read + Send + 'static, kind: Kind, job: u32, writer: Writer, done: Sender<()>) {
    thread::spawn(move || {
        let mut buffer = vec![0; MAX_PAYLOAD];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            send(&writer, kind, job, buffer[..length].to_vec());
        }
        let _ = done.send(());
    });
}

/// Kills all jobs: a new supervisor knows nothing of the previous one's jobs.
fn end_all(jobs: &Jobs) {
    for (_, job) in lock(jobs).drain() {
        let _ = killpg(job.group, Signal::SIGKILL);
    }
}

fn send(writer: &Writer, kind: Kind, job: u32, payload: Vec<u8>) {
    send_bytes(writer, &Frame { kind, job, payload }.to_bytes());
}

fn send_bytes(writer: &Writer, bytes: &[u8]) {
    if let Err(error) = lock(writer).write_all(bytes) {
        eprintln!("vm-agent: the port: {error}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the character device of the virtio-serial port called [`PORT`].
fn find_port() -> io::Result<PathBuf> {
    for _ in 0..200 {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            if fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == PORT) {
                return Ok(PathBuf::from("/dev").join(entry.file_name()));
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no virtio port called {PORT}")))
}
