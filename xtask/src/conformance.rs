//! `cargo xtask conformance`: other people's programs between two VMs, one after the other, over
//! our device or over rdma_rxe.
//!
//! What became of each is kept in `docs/conformance.json`, from which `docs/conformance.md` is
//! made: a row for a program, a column for a device and where its VMs were.

mod ai;
mod cases;
mod cm;
mod linux;
mod mpi;
mod perftest;
mod pyverbs;
mod results;
mod sockets;
mod storage;

use anyhow::{Context, Result, bail, ensure};

use crate::artefacts::Part;
use crate::lineup::{PathMtu, prepare};
use crate::programs::Device;
use crate::ui;
use crate::vm::{Pair, PairConfig, Topology};
use cases::Case;
use results::{Outcome, Results};

/// Programs that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// rdma-core's own tests, in one VM.
    Pyverbs,
    /// perftest, with each of its options.
    Perftest,
    /// Programs that connect by rdma_cm, and libibverbs' ping-pongs.
    Cm,
    /// Storage of the kernel: NVMe over Fabrics, iSER, SRP, NFS.
    Storage,
    /// What parallel programs use: UCX, libfabric, and MPI libraries over them.
    Mpi,
    /// rsockets, and programs that have them in place of the kernel's sockets.
    Sockets,
    /// What machine learning has of RDMA, as PyPI has it.
    Ai,
    /// The guest's Linux as people set it up: the tests in VMs that are called `vm-linux-...`, in
    /// their own VMs.
    Linux,
}

/// Where the two VMs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Place {
    /// On one host.
    OneHost,
    /// On two hosts, with a wire between them.
    TwoHosts,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which programs.
    pub families: Vec<Family>,
    /// Over which device.
    pub device: Device,
    /// The device of the clients' VM, if that is another one.
    pub peer: Option<Device>,
    /// Where.
    pub place: Place,
    /// Only those with one of these in their names; all if there is none.
    pub only: Vec<String>,
    /// Workers of each backend, if the command line says how many.
    pub workers: Option<u32>,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Pyverbs,
        Self::Perftest,
        Self::Cm,
        Self::Storage,
        Self::Mpi,
        Self::Sockets,
        Self::Ai,
        Self::Linux,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Pyverbs => "pyverbs",
            Self::Perftest => "perftest",
            Self::Cm => "cm",
            Self::Storage => "storage",
            Self::Mpi => "mpi",
            Self::Sockets => "sockets",
            Self::Ai => "ai",
            Self::Linux => "linux",
        }
    }

    /// Virtual CPUs of each VM: NVMe has a queue for each.
    fn cpus(self) -> u32 {
        if self == Self::Storage { 2 } else { 1 }
    }

    /// What its VMs must have: processors, and programs of PyPI.
    fn needs(self) -> (u32, bool) {
        (self.cpus(), self == Self::Ai)
    }
}

impl Plan {
    /// The same, with all families that go with the rest of it if it names none.
    pub fn with_all_if_none(mut self) -> Self {
        if self.families.is_empty() {
            self.families = Family::ALL.into();
            let has_linux = linux::goes_with(&self);
            self.families.retain(|family| *family != Family::Linux || has_linux);
        }
        self
    }

    fn column(&self) -> String {
        let place = match self.place {
            Place::OneHost => "one host",
            Place::TwoHosts => "two hosts",
        };
        let name = |device| match device {
            Device::Vrdma => "vrdma",
            Device::Rxe => "rdma_rxe",
            Device::Siw => "siw",
        };
        let device = name(self.device);
        let workers = self.workers.map(|workers| format!(", {workers} workers")).unwrap_or_default();
        match self.peer {
            Some(peer) => format!("{device}, clients on {}, {place}{workers}", name(peer)),
            None => format!("{device}, {place}{workers}"),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// Why this cannot run between these two devices, if it cannot. (Where both are rdma_rxe it
    /// runs, and says so itself.)
    fn lacks(&self, name: &str) -> Option<String> {
        let xrc = ["xsrq", "-c XRC", "-c x"].iter().any(|part| name.contains(part));
        let mixed = self.peer.is_some_and(|peer| peer != self.device);
        (xrc && mixed).then(|| "rdma_rxe has no XRC".to_owned())
    }

    /// VMs for these programs.
    fn boot(&self, family: Family) -> Result<Pair> {
        let devices = [self.device, self.peer.unwrap_or(self.device)];
        let without = if devices == [Device::Rxe; 2] {
            vec![Part::Module, Part::Provider, Part::Backend]
        } else {
            vec![]
        };
        let topology = match self.place {
            Place::OneHost => Topology::OneHost,
            Place::TwoHosts => Topology::Wire(devices),
        };
        ensure!(
            self.peer.is_none() || self.place == Place::TwoHosts,
            "VMs on one host have the same device: --peer wants --topology two-hosts"
        );
        let cpus = family.cpus();
        let pair = Pair::boot(&PairConfig { without, topology, cpus, ..PairConfig::default() })?;
        prepare(&pair, PathMtu::Jumbo)?;
        if family == Family::Ai {
            ai::lay_out(&pair)?;
        }
        for vm in [&pair.a, &pair.b] {
            // For --use_hugepages.
            vm.check("echo 64 >/proc/sys/vm/nr_hugepages", pair.patience(3))?;
        }
        Ok(pair)
    }
}

/// Runs the programs, and writes the results down. An error if one of ours fails.
pub fn run(plan: &Plan) -> Result<()> {
    let mut notes = Notes { results: Results::read()?, column: plan.column(), counts: Counts::default() };
    let mut booted: Option<Vms<'_>> = None;
    for &family in &plan.families {
        let before = notes.counts.sum();
        if family == Family::Linux {
            booted = None;
            linux::run(plan, &mut |name, column, outcome| notes.add_to(family, name, column, outcome))?;
            notes.expect_more_than(before, plan, family)?;
            continue;
        }
        let reusable = booted.take().filter(|vms| vms.family.needs() == family.needs());
        let vms = booted.insert(match reusable {
            Some(vms) => vms,
            None => Vms::boot(plan, family)?,
        });
        let note = &mut |name: &str, outcome: &Outcome| notes.add(family, name, outcome);
        match family {
            Family::Pyverbs => {
                let outcomes = pyverbs::run(vms.pair(), plan.device, |name| plan.wants(name))?;
                outcomes.iter().try_for_each(|(name, outcome)| note(name, outcome))?;
            }
            Family::Perftest => go_through(vms, perftest::cases(), note)?,
            Family::Cm => go_through(vms, cm::cases(), note)?,
            Family::Storage => storage::run(vms, note)?,
            Family::Mpi => go_through(vms, mpi::cases(), note)?,
            Family::Sockets => go_through(vms, sockets::cases(), note)?,
            Family::Ai => go_through(vms, ai::cases(), note)?,
            Family::Linux => unreachable!("it has VMs of its own, above"),
        }
        notes.expect_more_than(before, plan, family)?;
    }
    println!("{}", notes.counts);
    let ours = [Some(plan.device), plan.peer].contains(&Some(Device::Vrdma));
    if ours && notes.counts.failed != 0 {
        bail!("{} programs failed", notes.counts.failed);
    }
    Ok(())
}

/// Takes down how a program went.
type Note<'a> = &'a mut dyn FnMut(&str, &Outcome) -> Result<()>;

/// What is taken down.
struct Notes {
    results: Results,
    column: String,
    counts: Counts,
}

impl Notes {
    /// Writes it at once: a run of an hour may be interrupted.
    fn add(&mut self, family: Family, name: &str, outcome: &Outcome) -> Result<()> {
        let column = self.column.clone();
        self.add_to(family, name, &column, outcome)
    }

    /// Likewise, where the column is not that of all families.
    fn add_to(&mut self, family: Family, name: &str, column: &str, outcome: &Outcome) -> Result<()> {
        self.counts.add(outcome);
        self.results.put(family.name(), name, column, outcome);
        self.results.write()
    }

    /// An error if no program of the family ran since so many had.
    fn expect_more_than(&self, before: u32, plan: &Plan, family: Family) -> Result<()> {
        ensure!(
            self.counts.sum() != before,
            "no program of {} has {:?} in its name",
            family.name(),
            plan.only
        );
        Ok(())
    }
}

/// How many ended how.
#[derive(Debug, Default)]
struct Counts {
    passed: u32,
    skipped: u32,
    failed: u32,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Passed => &mut self.passed,
            Outcome::Skipped(_) => &mut self.skipped,
            Outcome::Failed(_) => &mut self.failed,
        };
        *count += 1;
    }

    fn sum(&self) -> u32 {
        self.passed + self.skipped + self.failed
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The VMs in which programs run, until one breaks them.
struct Vms<'a> {
    plan: &'a Plan,
    family: Family,
    pair: Option<Pair>,
}

impl<'a> Vms<'a> {
    fn boot(plan: &'a Plan, family: Family) -> Result<Self> {
        Ok(Self { plan, family, pair: Some(plan.boot(family)?) })
    }

    fn pair(&mut self) -> &mut Pair {
        self.pair
            .as_mut()
            .expect("there is one but while others are booted, and after that has failed nobody asks")
    }

    /// Boots others. These end before, as the others have the same places for their sockets.
    fn renew(&mut self) -> Result<()> {
        self.pair = None;
        self.pair = Some(self.plan.boot(self.family).context("VMs in place of those that a program broke")?);
        Ok(())
    }
}

/// Runs the cases that are wanted. After one that failed the next gets new VMs, should it have
/// broken these.
fn go_through(vms: &mut Vms<'_>, cases: Vec<Case>, note: Note<'_>) -> Result<()> {
    let wanted: Vec<Case> = cases.into_iter().filter(|case| vms.plan.wants(&case.name)).collect();
    let refusals = cases::refusals(&wanted)?;
    for (index, (case, refusal)) in wanted.iter().zip(refusals).enumerate() {
        // Ports come back only after those of the case before have left TIME_WAIT.
        let port = 20_000 + (index as u16 % 5000);
        let outcome = match refusal.or_else(|| vms.plan.lacks(&case.name)) {
            Some(why) => Outcome::Skipped(why),
            None => ui::unless_quick(&case.name, None, || Ok(run_case(vms.pair(), case, port)))?,
        };
        ui::say(&format!("{:4}/{} {outcome}  {}", index + 1, wanted.len(), case.name));
        if matches!(outcome, Outcome::Failed(_)) && !is_well(vms.pair()) {
            vms.renew()?;
        }
        // Not before: who interrupts this command ends the VMs first, and that is no failure of the
        // program.
        note(&case.name, &outcome)?;
    }
    Ok(())
}

fn run_case(pair: &Pair, case: &Case, port: u16) -> Outcome {
    let Err(error) = case.run(pair, port) else { return Outcome::Passed };
    let said = format!("{error:#}");
    match case.flaw {
        Some(flaw) if flaw.explains(&said) => Outcome::Skipped(flaw.why.to_owned()),
        _ => Outcome::failed(&said),
    }
}

/// Programs that say most about a family, for a test: the first one that fails is an error.
pub fn quick(pair: &Pair, family: Family) -> Result<()> {
    let cases = match family {
        Family::Cm => cm::some(),
        Family::Mpi => mpi::some(),
        Family::Sockets => sockets::some(),
        Family::Ai => {
            ai::lay_out(pair)?;
            ai::some()
        }
        Family::Pyverbs | Family::Perftest | Family::Storage | Family::Linux => {
            bail!("{} has tests of its own", family.name())
        }
    };
    prepare(pair, PathMtu::Jumbo)?;
    // A port that another family's program has had may be in TIME-WAIT, and not every server
    // insists.
    let first = 22_000 + 200 * family as u16;
    for (index, case) in cases.iter().enumerate() {
        case.run(pair, first + index as u16).with_context(|| case.name.clone())?;
    }
    Ok(())
}

/// Whether the VMs answer, and have their devices.
fn is_well(pair: &Pair) -> bool {
    [&pair.a, &pair.b].into_iter().all(|vm| {
        let command = format!("ibv_devinfo -d {} | grep -q PORT_ACTIVE", pair.device(vm).name());
        vm.check(&command, pair.patience(5)).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(device: Device, peer: Option<Device>) -> Plan {
        Plan { families: Vec::new(), device, peer, place: Place::TwoHosts, only: Vec::new(), workers: None }
    }

    #[test]
    fn a_plan_that_names_no_family_has_all_that_go_with_its_devices() {
        let all = |plan: Plan| plan.with_all_if_none().families.len();
        assert_eq!(all(plan(Device::Vrdma, None)), Family::ALL.len());
        assert_eq!(all(plan(Device::Rxe, None)), Family::ALL.len() - 1);
        assert_eq!(all(plan(Device::Vrdma, Some(Device::Rxe))), Family::ALL.len() - 1);
        let named = Plan { families: vec![Family::Cm], ..plan(Device::Rxe, None) };
        assert_eq!(named.with_all_if_none().families, [Family::Cm]);
    }

    #[test]
    fn no_two_programs_of_a_family_have_the_same_name() {
        for cases in [perftest::cases(), cm::cases(), mpi::cases(), sockets::cases(), ai::cases()] {
            let names: std::collections::BTreeSet<&String> = cases.iter().map(|case| &case.name).collect();
            assert_eq!(names.len(), cases.len());
        }
    }

    #[test]
    fn a_column_names_both_devices_if_they_differ() {
        let plan = |peer| plan(Device::Vrdma, peer);
        assert_eq!(plan(None).column(), "vrdma, two hosts");
        assert_eq!(plan(Some(Device::Rxe)).column(), "vrdma, clients on rdma_rxe, two hosts");
    }

    #[test]
    fn programs_with_xrc_do_not_run_where_one_end_alone_is_rxe() {
        let lacking =
            |plan: &Plan| cm::cases().iter().filter(|case| plan.lacks(&case.name).is_some()).count();
        assert_eq!(lacking(&plan(Device::Vrdma, Some(Device::Rxe))), 3);
        assert_eq!(lacking(&plan(Device::Rxe, Some(Device::Vrdma))), 3);
        assert_eq!(lacking(&plan(Device::Rxe, None)), 0);
        assert_eq!(lacking(&plan(Device::Vrdma, Some(Device::Vrdma))), 0);
    }
}
