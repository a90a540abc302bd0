//! What tests look at while others disturb: the backend's holdings, its processor time, and a
//! ping-pong that goes on.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::proc::indent;
use crate::vm::addresses::IP;
use crate::vm::backend::Backend;
use crate::vm::{Job, Pair, Vm};
use crate::wait::{pause, until};

/// What the backend has at one time, by guest.
#[derive(Clone, Debug)]
pub struct Holdings {
    /// Objects of each kind: `guest.kind` and their number.
    pub objects: Vec<(String, u64)>,
    /// Open file descriptors.
    pub descriptors: usize,
    /// Mappings of guests' memory.
    pub guest_mappings: usize,
    /// All mappings.
    pub mappings: usize,
    /// Resident memory that is the backend's own, in KiB.
    pub own_memory: u64,
}

/// How much more than before the backend's own memory may be: freed memory is the allocator's to
/// keep.
const MEMORY_TOLERANCE: u64 = 1024;
/// The same for mappings, of which the allocator makes some.
const MAPPING_TOLERANCE: usize = 4;

impl Holdings {
    /// What the backend has now.
    pub fn of(backend: &Backend) -> Result<Self> {
        let mut objects = Vec::new();
        for guest in backend.stats()?["guests"].as_array().context("stats without guests")? {
            let name = guest["name"].as_str().context("a guest without a name")?;
            for (kind, count) in guest["objects"].as_object().context("a guest without objects")? {
                objects.push((format!("{name}.{kind}"), count.as_u64().context("an odd count")?));
            }
        }
        let proc = format!("/proc/{}", backend.pid());
        let maps = fs::read_to_string(format!("{proc}/maps"))?;
        Ok(Self {
            objects,
            descriptors: fs::read_dir(format!("{proc}/fd"))?.count(),
            guest_mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
            mappings: maps.lines().count(),
            own_memory: status_field(&proc, "RssAnon:")?,
        })
    }

    /// What the backend has as soon as nothing comes or goes any more: programs that have ended,
    /// and the connection manager, may take a while to give everything back.
    pub fn settled(backend: &Backend, patience: Duration) -> Result<Self> {
        // On a busy machine who gives something back may come to it only after a while.
        const SAME: u32 = 4;
        let (mut before, mut same) = (Self::of(backend)?, 0);
        until("the backend to come to rest", patience, || {
            pause(Duration::from_millis(400), "looks follow each other until some are the same");
            let now = Self::of(backend)?;
            let is_same = now.objects == before.objects && now.descriptors == before.descriptors;
            same = if is_same { same + 1 } else { 0 };
            let was = std::mem::replace(&mut before, now);
            Ok(if same == SAME { Ok(()) } else { Err(format!("{was:?}, and then {before:?}")) })
        })?;
        Ok(before)
    }

    /// The same, to be expected after this guest's driver began anew: its kernel's queues then lie
    /// in other pages, and in how many runs of memory is by chance.
    pub fn with_new_driver(mut self, guest: &str) -> Self {
        let runs = format!("{guest}.runs");
        self.objects.retain(|(kind, _)| *kind != runs);
        self
    }

    /// In what the other has more; an empty list if it does not.
    fn exceeded_by(&self, now: &Self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut compare = |what: &str, before: u64, now: u64, tolerance: u64| {
            if now > before + tolerance || now < before && tolerance == 0 {
                faults.push(format!("{what}: {before} before, {now} now"));
            }
        };
        for (kind, before) in &self.objects {
            let now = now.objects.iter().find(|(other, _)| other == kind).map_or(0, |(_, now)| *now);
            compare(kind, *before, now, 0);
        }
        compare("file descriptors", self.descriptors as u64, now.descriptors as u64, 0);
        compare("mappings of guests", self.guest_mappings as u64, now.guest_mappings as u64, 0);
        compare("mappings", self.mappings as u64, now.mappings as u64, MAPPING_TOLERANCE as u64);
        compare("own memory (KiB)", self.own_memory, now.own_memory, MEMORY_TOLERANCE);
        faults
    }

    /// Waits until the backend has no more than this.
    pub fn expect_return(&self, backend: &Backend, patience: Duration) -> Result<()> {
        until("the backend to give everything back", patience, || {
            let faults = self.exceeded_by(&Self::of(backend)?);
            Ok(if faults.is_empty() { Ok(()) } else { Err(format!("\n{}", indent(&faults.join("\n")))) })
        })
    }
}

fn status_field(proc: &str, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("{proc}/status"))?;
    let line = status.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|number| number.parse().ok());
    number.with_context(|| format!("{proc}/status without {field}"))
}

/// Processor time that the backend has used.
pub fn processor_time(backend: &Backend) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", backend.pid()))?;
    // The name, in parentheses, may hold spaces; user and system time are the 12th and 13th field
    // behind it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let times: Vec<u64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    ensure!(times.len() == 2, "an odd /proc/PID/stat: {stat}");
    // USER_HZ is 100 on each architecture that Linux has left.
    Ok(Duration::from_millis((times[0] + times[1]) * 10))
}

/// A counter of a guest's device.
pub fn counter(stats: &Value, guest: &str, name: &str) -> Result<u64> {
    let guests = stats["guests"].as_array().context("stats without guests")?;
    let guest = guests.iter().find(|each| each["name"] == guest).context("no such guest in the stats")?;
    guest["device"][name].as_u64().with_context(|| format!("no counter {name}"))
}

/// A checked ping-pong between two processes that goes on until [`Self::finish`].
pub struct PingPong {
    server: Job,
    client: Job,
}

impl PingPong {
    /// Starts `vr-pingpong` in two VMs, or twice in one, and waits until every QP has made a turn.
    pub fn start(
        pair: &Pair,
        server: &Vm,
        client: &Vm,
        port: u16,
        server_options: &str,
        client_options: &str,
    ) -> Result<Self> {
        let address = IP[usize::from(server.name() == pair.b.name())];
        let command = format!("exec vr-pingpong -d vrdma0 -p {port}");
        let mut server = server.spawn(&format!("{command} {server_options}"))?;
        let mut client = client.spawn(&format!("{command} -s 0 {client_options} {address}"))?;
        client.wait_for("running", pair.patience(5))?;
        server.wait_for("running", pair.patience(2))?;
        Ok(Self { server, client })
    }

    /// That both sides still run.
    pub fn expect_running(&mut self) -> Result<()> {
        ensure!(!self.client.has_ended()?, "the client ended: {}", said(&self.client));
        ensure!(!self.server.has_ended()?, "the server ended: {}", said(&self.server));
        Ok(())
    }

    /// Ends it; says how many turns were made.
    pub fn finish(mut self, patience: Duration) -> Result<u64> {
        self.expect_running().context("the ping-pong beside")?;
        self.client.signal(15)?;
        let client = self.client.wait(patience)?;
        if !client.success() {
            // What the server waits for meanwhile, which it says when it is ended.
            self.server.signal(15)?;
            let _ = self.server.wait_for("turns", Duration::from_secs(3));
            let text = [client.text().into_bytes(), client.stderr].concat();
            bail!(
                "the ping-pong's client: {:?}: {}\nthe server: {}",
                client.exit,
                String::from_utf8_lossy(&text),
                said(&self.server)
            );
        }
        let server = self.server.wait(patience)?;
        for (who, output) in [("client", &client), ("server", &server)] {
            ensure!(
                output.success(),
                "the ping-pong's {who}: {:?}: {}{}",
                output.exit,
                output.text(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let text = client.text();
        let turns = text.split_once("turns ").and_then(|(_, rest)| rest.split(' ').next());
        turns.and_then(|turns| turns.parse().ok()).with_context(|| format!("no count of turns in {text:?}"))
    }
}

/// What a job has written so far, on one line.
pub fn said(job: &Job) -> String {
    let output = job.so_far();
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).lines().collect::<Vec<_>>().join(" | ")
}
