//! `cargo xtask conformance`: runs other people's programs one after another between two VMs.
//!
//! They run over vrdma or over `rdma_rxe`. The outcomes are stored in `docs/conformance.json`, from
//! which `docs/conformance.md` is made. A row is a program. A column is a device, and the place of
//! its VMs.

mod ai;
mod cases;
mod cm;
mod mpi;
mod notes;
mod perftest;
mod plan;
mod pyverbs;
mod results;
mod sockets;
mod storage;
mod vms;

use anyhow::{Context, Result, bail};
use vrdma_lab::device::Device;
use vrdma_lab::ui;
use vrdma_lab::vm::Pair;

use crate::lineup::{PathMtu, prepare};
use cases::Case;
use notes::{Note, Notes};
pub use plan::{Family, Place, Plan};
pub use results::Outcome;
pub use storage::{both_ways, gives_all_back, killed_target_of};
use vms::{Vms, is_well};

/// Records the outcome of a test in VMs: its case, its column, the outcome.
pub type NoteCase<'a> = &'a mut dyn FnMut(&str, &str, &Outcome) -> Result<()>;

/// Runs the tests of the family `linux`, which are tests in VMs, that the plan wants.
pub type RunLinux<'a> = &'a dyn Fn(&Plan, NoteCase<'_>) -> Result<()>;

/// Runs the programs, and writes the results. Fails if a program with vrdma failed.
pub fn run(plan: &Plan, linux: RunLinux<'_>) -> Result<()> {
    let mut notes = Notes::new(plan)?;
    let mut booted: Option<Vms<'_>> = None;
    for &family in &plan.families {
        let before = notes.counts.sum();
        if family == Family::Linux {
            booted = None;
            linux(plan, &mut |name, column, outcome| notes.add_to(family, name, column, outcome))?;
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

/// Runs the wanted cases. If a failure broke the VMs, the next case gets new ones.
fn go_through(vms: &mut Vms<'_>, cases: Vec<Case>, note: Note<'_>) -> Result<()> {
    let wanted: Vec<Case> = cases.into_iter().filter(|case| vms.plan.wants(&case.name)).collect();
    let refusals = cases::refusals(&wanted)?;
    for (index, (case, refusal)) in wanted.iter().zip(refusals).enumerate() {
        // A port is used again only after the last case's connections have left `TIME_WAIT`.
        let port = 20_000 + (index as u16 % 5000);
        let outcome = match refusal.or_else(|| vms.plan.lacks(&case.name)) {
            Some(why) => Outcome::Skipped(why),
            None => ui::unless_quick(&case.name, None, || Ok(run_case(vms.pair(), case, port)))?,
        };
        ui::say(&format!("{:4}/{} {outcome}  {}", index + 1, wanted.len(), case.name));
        if matches!(outcome, Outcome::Failed(_)) && !is_well(vms.pair()) {
            vms.renew()?;
        }
        // The outcome is recorded last. If the user interrupts this command, the VMs end first, and
        // that is no failure of the program.
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

/// Runs a family's most significant programs, for a test. The first failure is an error.
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
    // Each family has its own ports. A port of another family may be in `TIME_WAIT`, and not every
    // server can bind it then.
    let first = 22_000 + 200 * family as u16;
    for (index, case) in cases.iter().enumerate() {
        case.run(pair, first + index as u16).with_context(|| case.name.clone())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(device: Device, peer: Option<Device>) -> Plan {
        Plan { families: Vec::new(), device, peer, place: Place::TwoHosts, only: Vec::new(), workers: None }
    }

    #[test]
    fn no_two_programs_of_a_family_have_the_same_name() {
        for cases in [perftest::cases(), cm::cases(), mpi::cases(), sockets::cases(), ai::cases()] {
            let names: std::collections::BTreeSet<&String> = cases.iter().map(|case| &case.name).collect();
            assert_eq!(names.len(), cases.len());
        }
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
