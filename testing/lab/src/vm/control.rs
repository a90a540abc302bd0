//! The supervisor's end of the link to a VM's agent: starts jobs and collects their output.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use vrdma_vm_agent::{ANSWER, ANSWER_LEN, Frame, HEADER_LEN, Kind, MAX_PAYLOAD, NOT_STARTED, greeting};

use crate::wait;

/// The link to a VM's agent.
pub struct Control {
    writer: Mutex<UnixStream>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The nonce of the last greeting. An answer with another nonce is stale.
    nonce: u64,
    /// The boot id of the last greeting's answer. `None` while an answer is awaited.
    boot: Option<String>,
    /// QEMU has closed the link.
    closed: bool,
    jobs: HashMap<u32, Sender<Event>>,
    last_job: u32,
}

enum Event {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Exit(Exit),
}

/// How a command in a VM ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It could not be started.
    NotStarted,
}

/// The output of a command in a VM, and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Returns standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Whether it ended with status 0.
    pub fn success(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

impl Control {
    /// Connects to the socket of the VM's agent port.
    pub fn connect(socket: &Path) -> Result<Arc<Self>> {
        let stream =
            UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
        stream.set_write_timeout(Some(wait::PATIENCE))?;
        let reader = stream.try_clone()?;
        let control =
            Arc::new(Self { writer: Mutex::new(stream), state: Mutex::default(), changed: Condvar::new() });
        let ours = Arc::clone(&control);
        thread::spawn(move || ours.read(reader));
        Ok(control)
    }

    /// Waits for an answer of the agent, and returns the boot id. All jobs are lost.
    ///
    /// If `not` is given, the boot id has to differ from it.
    pub fn greet(&self, not: Option<&str>, timeout: Duration) -> Result<String> {
        // Before the agent runs, nobody reads from the link, which has room for few greetings. They
        // must not fill it, however long a busy machine takes to boot. So the pauses between
        // greetings grow.
        const LONGEST: Duration = Duration::from_millis(400);
        const PART: u32 = 20;
        let start = Instant::now();
        let deadline = start + timeout;
        let mut pause = Duration::from_millis(50);
        loop {
            let nonce = {
                let mut state = self.state();
                state.jobs.clear();
                state.boot = None;
                state.nonce = state.nonce.wrapping_add(1).max(u64::from(std::process::id()) << 32);
                state.nonce
            };
            self.send(&greeting(nonce))?;
            let (state, _) = self
                .changed
                .wait_timeout_while(self.state(), pause, |state| state.boot.is_none() && !state.closed)
                .unwrap_or_else(PoisonError::into_inner);
            match &state.boot {
                Some(boot) if Some(boot.as_str()) != not => return Ok(boot.clone()),
                _ if state.closed => bail!("QEMU ended"),
                _ if Instant::now() > deadline => bail!("no word from the VM's agent for {timeout:?}"),
                _ => {}
            }
            // The old boot still answers.
            let goes = state.boot.is_some();
            drop(state);
            if goes {
                thread::sleep(pause);
            }
            pause = (2 * pause).min(LONGEST.max(start.elapsed() / PART));
        }
    }

    /// Starts a job: a command line for the shell.
    pub fn run(self: &Arc<Self>, command: &str) -> Result<Job> {
        anyhow::ensure!(command.len() <= MAX_PAYLOAD, "command line too long");
        let (sender, events) = channel();
        let id = {
            let mut state = self.state();
            anyhow::ensure!(!state.closed, "QEMU ended");
            anyhow::ensure!(state.boot.is_some(), "the VM has not booted");
            state.last_job += 1;
            let id = state.last_job;
            state.jobs.insert(id, sender);
            id
        };
        self.send_frame(Kind::Run, id, command.as_bytes())?;
        let output = Output { exit: Exit::NotStarted, stdout: Vec::new(), stderr: Vec::new() };
        Ok(Job {
            control: Arc::clone(self),
            id,
            command: command.to_owned(),
            events,
            output,
            ended: false,
            echo: None,
        })
    }

    fn send_frame(&self, kind: Kind, job: u32, payload: &[u8]) -> Result<()> {
        self.send(&Frame { kind, job, payload: payload.to_vec() }.to_bytes())
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_all(bytes).context("cannot write to the VM's agent")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parses the stream until QEMU closes it. Runs in the reader thread.
    fn read(&self, mut stream: UnixStream) {
        let mut buffer = Vec::new();
        let mut chunk = vec![0; MAX_PAYLOAD];
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            buffer.extend_from_slice(&chunk[..length]);
            let mut used = 0;
            while let Some(length) = self.take_one(&buffer[used..]) {
                used += length;
            }
            buffer.drain(..used);
        }
        let mut state = self.state();
        state.closed = true;
        state.jobs.clear();
        self.changed.notify_all();
    }

    /// Handles the next message in the bytes and returns its length. `None` if it is incomplete.
    fn take_one(&self, bytes: &[u8]) -> Option<usize> {
        let mut state = self.state();
        if bytes.len() >= ANSWER.len() && bytes.starts_with(&ANSWER) {
            let answer = bytes.get(..ANSWER_LEN)?;
            let nonce = answer[16..24].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if nonce == state.nonce && state.boot.is_none() {
                state.boot = Some(String::from_utf8_lossy(&answer[24..]).trim().to_owned());
                self.changed.notify_all();
            }
            return Some(ANSWER_LEN);
        }
        if bytes.len() < HEADER_LEN {
            return None;
        }
        if state.boot.is_none() {
            return Some(1);
        }
        match Frame::read(&mut &bytes[..]) {
            Ok(frame) => {
                let length = HEADER_LEN + frame.payload.len();
                deliver(&mut state, frame);
                Some(length)
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
            // This is the rest of a frame that a reset cut off.
            Err(_) => Some(1),
        }
    }
}

/// Delivers a frame to its job. Drops it if nobody waits for the job any more.
fn deliver(state: &mut State, frame: Frame) {
    let Some(job) = state.jobs.get(&frame.job) else { return };
    let event = match frame.kind {
        Kind::Stdout => Event::Stdout(frame.payload),
        Kind::Stderr => Event::Stderr(frame.payload),
        Kind::Exit => {
            let value = frame.payload.first_chunk().map_or(NOT_STARTED, |bytes| i32::from_le_bytes(*bytes));
            Event::Exit(match value {
                NOT_STARTED => Exit::NotStarted,
                256.. => Exit::Signal(value - 256),
                _ => Exit::Code(value),
            })
        }
        Kind::Run | Kind::Stdin | Kind::Signal => return,
    };
    let last = matches!(event, Event::Exit(_));
    let _ = job.send(event);
    if last {
        state.jobs.remove(&frame.job);
    }
}

/// A command that runs in a VM. Dropping it kills it.
pub struct Job {
    control: Arc<Control>,
    id: u32,
    command: String,
    events: Receiver<Event>,
    output: Output,
    ended: bool,
    echo: Option<Echo>,
}

/// Prints output as whole lines, with a prefix.
struct Echo {
    prefix: String,
    line: Vec<u8>,
}

impl Echo {
    fn show(&mut self, bytes: &[u8]) {
        self.line.extend_from_slice(bytes);
        let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') else { return };
        let rest = self.line.split_off(end + 1);
        self.print();
        self.line = rest;
    }

    fn print(&mut self) {
        let mut stdout = std::io::stdout().lock();
        for line in String::from_utf8_lossy(&self.line).lines() {
            // An error is ignored: work goes on if nobody reads the output.
            let _ = writeln!(stdout, "{}{line}", self.prefix);
        }
        self.line.clear();
    }
}

impl Job {
    /// Prints the job's output as it arrives, each line with this prefix.
    pub fn echo(&mut self, prefix: &str) {
        self.echo = Some(Echo { prefix: prefix.to_owned(), line: Vec::new() });
    }

    /// Waits for the end. On time-out it kills the job, and the error contains the job's output.
    pub fn wait(mut self, timeout: Duration) -> Result<Output> {
        let ended = self.pump(timeout, |_| false)?;
        if !ended {
            let error = self.error(&format!("still runs after {timeout:?}"));
            self.signal(9)?;
            return Err(error);
        }
        let output = std::mem::replace(
            &mut self.output,
            Output { exit: Exit::NotStarted, stdout: Vec::new(), stderr: Vec::new() },
        );
        Ok(output)
    }

    /// Waits until the job's output (either stream) contains `text`.
    pub fn wait_for(&mut self, text: &str, timeout: Duration) -> Result<()> {
        let has = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
        let seen = |output: &Output| has(&output.stdout) || has(&output.stderr);
        if !seen(&self.output) {
            self.pump(timeout, seen)?;
        }
        if seen(&self.output) { Ok(()) } else { Err(self.error(&format!("did not say {text:?}"))) }
    }

    /// Whether the job has ended, without waiting.
    pub fn has_ended(&mut self) -> Result<bool> {
        self.pump(Duration::ZERO, |_| false)
    }

    /// Returns what the job had written by the last wait.
    pub fn so_far(&self) -> &Output {
        &self.output
    }

    /// Writes to the job's standard input.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        bytes.chunks(MAX_PAYLOAD).try_for_each(|part| self.control.send_frame(Kind::Stdin, self.id, part))
    }

    /// Closes the job's standard input.
    pub fn close_stdin(&self) -> Result<()> {
        self.control.send_frame(Kind::Stdin, self.id, &[])
    }

    /// Sends a signal, by number, to the job's process group.
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.control.send_frame(Kind::Signal, self.id, &signal.to_le_bytes())
    }

    /// Takes events until the job ends (true), `enough` returns true, or time is up.
    fn pump(&mut self, timeout: Duration, enough: impl Fn(&Output) -> bool) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        while !self.ended {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Stdout(bytes)) => {
                    self.show(&bytes);
                    self.output.stdout.extend(bytes);
                }
                Ok(Event::Stderr(bytes)) => {
                    self.show(&bytes);
                    self.output.stderr.extend(bytes);
                }
                Ok(Event::Exit(exit)) => {
                    self.output.exit = exit;
                    self.echo.iter_mut().for_each(Echo::print);
                    self.ended = true;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    return Err(self.error("was lost: its VM was reset or has ended"));
                }
            }
            if enough(&self.output) {
                break;
            }
        }
        Ok(self.ended)
    }

    fn show(&mut self, bytes: &[u8]) {
        if let Some(echo) = &mut self.echo {
            echo.show(bytes);
        }
    }

    fn error(&self, what: &str) -> anyhow::Error {
        let mut said = String::from_utf8_lossy(&self.output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&self.output.stderr));
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        anyhow!("`{}` {what}\n{}", self.command, crate::proc::indent(&last))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.ended {
            // An error means that the VM is gone, and the job with it.
            let _ = self.signal(9);
        }
    }
}
