//! `cargo xtask soak`: other people's programs between two VMs, chosen at random, with
//! disturbances.
//!
//! Processes are killed, the driver is removed, a VM is reset or its QEMU killed. The cable is
//! pulled, or the backend stopped for a while.
//!
//! After each round everything must be as before: objects of backends and guests, memory,
//! descriptors, mappings. The kernel logs must have no reports. Meanwhile a checked ping-pong
//! between VM a and a third guest goes on. The seed determines the order: which programs, which
//! disturbances, and when.

mod disturb;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::device::Device;
use vrdma_lab::third::ThirdGuest;
use vrdma_lab::ui;
use vrdma_lab::vm::{Pair, PairConfig, Topology, Vm, complaints};
use vrdma_lab::watch::Holdings;

pub use self::disturb::Disturbance;
use crate::families::Place;
use crate::lineup::{IpFamily, PathMtu, Ready, Round, Row, Running, Sizes, prepare, rows};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct SoakPlan {
    /// Duration, after each program has run once.
    pub time: Duration,
    /// The seed. A new one is chosen if there is none.
    pub seed: Option<u64>,
    /// Where the VMs run.
    pub place: Place,
}

/// The highest number of programs at the same time.
const TOGETHER: usize = 3;

/// Runs until the time is up. An error names the round that failed.
pub fn run(plan: &SoakPlan) -> Result<()> {
    let seed = plan.seed.unwrap_or_else(|| fastrand::u64(..) >> 32);
    ui::say(&format!("seed {seed}"));
    let mut soak = Soak::boot(plan.place, seed)?;
    let result = soak.go(plan.time);
    result.with_context(|| format!("seed {seed}\n{}", soak.pair.post_mortem()))?;
    println!("{}", soak.tally);
    Ok(())
}

/// Counts of what was done.
#[derive(Debug, Default)]
struct Tally {
    rounds: u32,
    programs: u32,
    disturbed: u32,
    /// Turns of the ping-pong in the background.
    turns: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rounds, programs, disturbed, turns } = self;
        write!(
            f,
            "{rounds} rounds, {disturbed} of them disturbed; {programs} programs; {turns} turns of the ping-pong beside"
        )
    }
}

struct Soak {
    pair: Pair,
    rng: fastrand::Rng,
    rows: Vec<Row>,
    beside: Option<ThirdGuest>,
    tally: Tally,
    /// The next port. Each round has its own, because those of the last one may be in `TIME_WAIT`.
    port: u16,
}

/// The state to which each round has to return.
struct Baseline {
    /// The holdings of each backend.
    holdings: Vec<Holdings>,
    /// The output of `rdma resource` in each VM.
    resources: Vec<String>,
}

impl Soak {
    fn boot(place: Place, seed: u64) -> Result<Self> {
        let topology = match place {
            Place::OneHost => Topology::OneHost,
            Place::TwoHosts => Topology::Wire([Device::Vrdma; 2]),
        };
        let pair = Pair::boot(&PairConfig { topology, ..PairConfig::default() })?;
        prepare(&pair, PathMtu::Jumbo)?;
        let mut rows = rows(IpFamily::V4, PathMtu::Jumbo, Sizes::One);
        rows.extend(more_rows());
        let rng = fastrand::Rng::with_seed(seed);
        Ok(Self { pair, rng, rows, beside: None, tally: Tally::default(), port: 20_000 })
    }

    fn go(&mut self, time: Duration) -> Result<()> {
        self.beside = Some(ThirdGuest::start(&self.pair)?);
        // The first use of each program may leave something in caches.
        for index in 0..self.rows.len() {
            self.round(&[index], None).with_context(|| self.rows[index].what.clone())?;
        }
        let mut baseline = self.baseline()?;
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let chosen = self.choose();
            let disturbance = Disturbance::choose(&mut self.rng);
            let what: Vec<&str> = chosen.iter().map(|index| self.rows[*index].what.as_str()).collect();
            let mut what = what.join(" + ");
            if let Some(disturbance) = &disturbance {
                what += &format!(", beside them {disturbance}");
            }
            ui::say(&format!("round {}, {} s left: {what}", self.tally.rounds + 1, left.as_secs()));
            let begins_anew = disturbance.as_ref().is_some_and(Disturbance::begins_anew);
            let round = self.round(&chosen, disturbance);
            round.with_context(|| format!("round {}: {what}", self.tally.rounds + 1))?;
            if begins_anew {
                baseline.new_driver("b");
            }
            self.check(&baseline).with_context(|| format!("after round {}: {what}", self.tally.rounds))?;
        }
        let beside = self.beside.take().context("the ping-pong beside was started")?;
        self.tally.turns = beside.finish(self.pair.patience(9)).context("the ping-pong beside")?;
        Ok(())
    }

    /// Chooses rows that run at the same time.
    fn choose(&mut self) -> Vec<usize> {
        let mut chosen: Vec<usize> = Vec::new();
        for _ in 0..self.rng.usize(1..=TOGETHER) {
            let index = self.rng.usize(..self.rows.len());
            let twice = |other: &usize| *other == index || self.rows[*other].uses_cm();
            if !(self.rows[index].uses_cm() && chosen.iter().any(twice)) {
                chosen.push(index);
            }
        }
        chosen
    }

    /// Runs programs to their ends, or until a disturbance.
    fn round(&mut self, chosen: &[usize], disturbance: Option<Disturbance>) -> Result<()> {
        let server_in_a = self.rng.bool();
        let mut running = Vec::new();
        {
            let server = if server_in_a { &self.pair.a } else { &self.pair.b };
            let round = Round::new(&self.pair, server, IpFamily::V4)?;
            for index in chosen {
                self.port = if self.port < 29_000 { self.port + 1 } else { 20_000 };
                running.push((&self.rows[*index], round.start(&self.rows[*index], self.port)?));
            }
            if disturbance.is_none() {
                for (row, running) in running.drain(..) {
                    round.finish(row, running)?;
                }
            }
        }
        let jobs: Vec<Running> = running.into_iter().map(|(_, running)| running).collect();
        if let Some(disturbance) = disturbance {
            let early = Duration::from_millis(self.rng.u64(..1500));
            std::thread::sleep(early * self.pair.slowness() / 4);
            disturbance.happen(&mut self.pair, &jobs)?;
            self.tally.disturbed += 1;
            end_all(&self.pair, jobs)?;
        }
        let beside = self.beside.as_mut().context("the ping-pong beside was started")?;
        beside.expect_running().context("the ping-pong beside")?;
        self.tally.rounds += 1;
        self.tally.programs += chosen.len() as u32;
        Ok(())
    }

    fn baseline(&mut self) -> Result<Baseline> {
        let patience = self.pair.patience(5);
        let settled = |backend: &vrdma_lab::vm::backend::Backend| Holdings::settled(backend, patience);
        let holdings = self.pair.backends().iter().map(settled).collect::<Result<_>>()?;
        let resources = self.pair.vms().map(|vm| resources(vm, patience)).collect::<Result<_>>()?;
        Ok(Baseline { holdings, resources })
    }

    fn check(&mut self, baseline: &Baseline) -> Result<()> {
        let patience = self.pair.patience(10);
        for (holdings, backend) in baseline.holdings.iter().zip(self.pair.backends()) {
            ensure!(backend.is_running()?, "the backend is gone");
            holdings.expect_return(backend, patience)?;
        }
        let deadline = Instant::now() + patience;
        for (vm, before) in self.pair.vms().zip(&baseline.resources) {
            let mut now = resources(vm, patience)?;
            while now != *before {
                ensure!(Instant::now() < deadline, "VM {}: {before} before, {now} now", vm.name());
                std::thread::sleep(Duration::from_millis(200));
                now = resources(vm, patience)?;
            }
            complaints::expect_none(vm, patience)?;
        }
        Ok(())
    }
}

impl Baseline {
    /// Adapts the baseline to a guest's reloaded driver, whose memory may lie elsewhere.
    fn new_driver(&mut self, guest: &str) {
        self.holdings = std::mem::take(&mut self.holdings)
            .into_iter()
            .map(|holdings| holdings.with_new_driver(guest))
            .collect();
    }
}

/// Returns the objects of a VM's device, as its kernel counts them.
pub fn resources(vm: &Vm, patience: Duration) -> Result<String> {
    let text = vm.check("rdma resource show", patience)?;
    let line = text.lines().find_map(|line| line.split_once("vrdma0: "));
    Ok(line.with_context(|| format!("no vrdma0 in {text:?}"))?.1.trim().to_owned())
}

/// Kills the programs, which must be possible after any disturbance.
pub fn end_all(pair: &Pair, jobs: Vec<Running>) -> Result<()> {
    for job in jobs.into_iter().flat_map(|running| [running.server, Some(running.client)]).flatten() {
        // An error means that the job's VM was reset, and the job is gone.
        if job.signal(9).is_ok()
            && let Err(error) = job.wait(pair.patience(5))
        {
            let text = format!("{error:#}");
            if !text.contains("was lost") {
                bail!("a program that was killed does not end: {text}");
            }
        }
    }
    Ok(())
}

/// Returns programs beyond those of the demos.
fn more_rows() -> Vec<Row> {
    let mut rows = vec![Row::new(
        "ping-pong of 8 QPs, checked",
        Ready::Tcp,
        "vr-pingpong -d @d -p @p --events --qps 8 --size 100000",
        "vr-pingpong -d @d -p @p --events --qps 8 --size 100000 -s 3 @4",
        "turns",
    )];
    for (what, command, last) in [
        ("UC send", "ib_send_bw -c UC -s 65536 -n 20", 65_536),
        ("UD send with events", "ib_send_bw -c UD -s 1024 -n 50 -e", 1024),
        ("RC send, 8 QPs of a shared queue", "ib_send_bw -q 8 --use-srq -s 4096 -n 40", 4096),
        ("RC write, 16 QPs", "ib_write_bw -q 16 -s 65536 -n 10", 65_536),
        ("RC read latency", "ib_read_lat -s 4096 -n 50", 4096),
        ("RC write, inline, both ways", "ib_write_bw -b -I 64 -s 64 -n 100", 64),
        ("RC compare and swap", "ib_atomic_bw -A CMP_AND_SWAP -n 20", 8),
    ] {
        rows.push(Row::perftest(what, command, last));
    }
    rows
}
