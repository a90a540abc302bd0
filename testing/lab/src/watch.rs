//! What tests observe while others disturb: the backend's objects, memory and processor time, and a
//! ping-pong in the background.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::proc::indent;
use crate::vm::addresses::IP;
use crate::vm::backend::Backend;
use crate::vm::{Job, Pair, Vm};
use crate::wait::{pause, until};

/// What the backend holds at one time.
#[derive(Clone, Debug)]
pub struct Holdings {
    /// Number of objects of each kind, which is named `guest.kind`.
    pub objects: Vec<(String, u64)>,
    /// Number of open file descriptors.
    pub descriptors: usize,
    /// Number of mappings of guest memory.
    pub guest_mappings: usize,
    /// Number of all mappings.
    pub mappings: usize,
    /// The backend's own resident memory, in KiB.
    pub own_memory: u64,
}

/// Allowed growth of the backend's own memory, in KiB: the allocator may keep freed memory.
const MEMORY_TOLERANCE: u64 = 1024;
/// Allowed growth of the number of mappings, some of which the allocator makes.
const MAPPING_TOLERANCE: usize = 4;

impl Holdings {
    /// Returns what the backend holds at present.
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

    /// Returns what the backend holds as soon as that does not change any more.
    ///
    /// Programs that have ended, and the connection manager, may take a while to release
    /// everything.
    pub fn settled(backend: &Backend, patience: Duration) -> Result<Self> {
        // So many polls have to be equal, because on a busy machine a release may come late.
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

    /// Returns the expected holdings after this guest's driver was reloaded.
    ///
    /// The extents (`runs`) are left out. The kernel's queues then lie in other pages, and the
    /// number of extents is by chance.
    pub fn with_new_driver(mut self, guest: &str) -> Self {
        let runs = format!("{guest}.runs");
        self.objects.retain(|(kind, _)| *kind != runs);
        self
    }

    /// Lists what exceeds these holdings, or differs if no tolerance applies. Empty if nothing
    /// does.
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

    /// Waits until the backend holds no more than this.
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

/// Returns the processor time that the backend has used.
pub fn processor_time(backend: &Backend) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", backend.pid()))?;
    // The name, in parentheses, may contain spaces. User and system time are the 12th and 13th
    // field after it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let times: Vec<u64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    ensure!(times.len() == 2, "an odd /proc/PID/stat: {stat}");
    // `USER_HZ` is 100 on all architectures that Linux still supports.
    Ok(Duration::from_millis((times[0] + times[1]) * 10))
}

/// Returns a counter of a guest's device.
pub fn counter(stats: &Value, guest: &str, name: &str) -> Result<u64> {
    let guests = stats["guests"].as_array().context("stats without guests")?;
    let guest = guests.iter().find(|each| each["name"] == guest).context("no such guest in the stats")?;
    guest["device"][name].as_u64().with_context(|| format!("no counter {name}"))
}

/// A checked ping-pong between two processes that runs until [`Self::finish`].
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

    /// Checks that both sides still run.
    pub fn expect_running(&mut self) -> Result<()> {
        ensure!(!self.client.has_ended()?, "the client ended: {}", said(&self.client));
        ensure!(!self.server.has_ended()?, "the server ended: {}", said(&self.server));
        Ok(())
    }

    /// Ends the ping-pong. Returns the number of turns.
    pub fn finish(mut self, patience: Duration) -> Result<u64> {
        self.expect_running().context("the ping-pong beside")?;
        self.client.signal(15)?;
        let client = self.client.wait(patience)?;
        if !client.success() {
            // On its end the server prints what it waited for.
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

/// Returns what a job has written so far, on one line.
pub fn said(job: &Job) -> String {
    let output = job.so_far();
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).lines().collect::<Vec<_>>().join(" | ")
}
