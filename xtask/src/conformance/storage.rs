//! Storage over RDMA: each protocol, as fio uses it, and with a target that is killed.

use anyhow::Result;

use super::results::Outcome;
use super::{Note, Vms, is_well};
use crate::storage::{Load, Protocol, Storage};
use crate::ui;
use crate::vmtest::storage::{both_ways, gives_all_back, killed_target_of};

/// What is done with a target and its initiator.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// This load, and all is given back.
    Load(Load),
    /// This load both ways at once: each VM is a target.
    BothWays(Load),
    /// A small one during which the target is killed.
    KilledTarget,
}

/// A row.
struct Case {
    name: String,
    storage: Storage,
    work: Work,
}

/// How much is read and written.
const SIZE: &str = "64m";

/// All rows. The target is in VM a, and in VM b too where that has another device.
fn cases(devices_differ: bool) -> Vec<Case> {
    let load = |options| Load { size: SIZE, options };
    let mut cases = Vec::new();
    for target in 0..=usize::from(devices_differ) {
        for protocol in Protocol::ALL {
            let mut add = |what: &str, work| {
                let place = ["", ", target in VM b"][target];
                let name = format!("{}, {what}{place}", protocol.name());
                cases.push(Case { name, storage: Storage::new(protocol, target), work });
            };
            add("fio", Work::Load(load(Load::ASYNCHRONOUS)));
            match protocol {
                Protocol::Nvme => add("fio on a polled queue", Work::Load(load(Load::POLLED))),
                Protocol::Nfs => add("fio through the page cache", Work::Load(load(Load::CACHED))),
                Protocol::Iser | Protocol::Srp => {}
            }
            if target == 0 {
                add("both VMs are targets", Work::BothWays(load(Load::ASYNCHRONOUS)));
            }
            add("target killed", Work::KilledTarget);
        }
    }
    cases
}

/// Runs those that are wanted. After one that failed the next gets new VMs: what its target and its
/// initiator still have is not known.
pub fn run(vms: &mut Vms<'_>, note: Note<'_>) -> Result<()> {
    let pair = vms.pair();
    let differ = pair.device(&pair.a) != pair.device(&pair.b);
    let wanted: Vec<Case> = cases(differ).into_iter().filter(|case| vms.plan.wants(&case.name)).collect();
    for (index, Case { name, storage, work }) in wanted.iter().enumerate() {
        let pair = vms.pair();
        let result = ui::unless_quick(name, None, || match work {
            Work::Load(load) => gives_all_back(pair, *storage, load),
            Work::BothWays(load) => both_ways(pair, storage.protocol(), load),
            Work::KilledTarget => killed_target_of(pair, *storage),
        });
        let outcome = match &result {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::failed(&format!("{error:#}")),
        };
        ui::say(&format!("{:4}/{} {outcome}  {name}", index + 1, wanted.len()));
        if result.is_err() || !is_well(pair) {
            vms.renew()?;
        }
        // Not before: who interrupts this command ends the VMs first, and that is no failure of the
        // program.
        note(name, &outcome)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_its_rows_and_each_row_a_name() {
        let (same, differ) = (cases(false), cases(true));
        assert_eq!(differ.len(), 2 * same.len() - Protocol::ALL.len());
        let names: std::collections::BTreeSet<_> = differ.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), differ.len());
        for protocol in Protocol::ALL {
            assert!(same.iter().any(|case| case.storage.protocol() == protocol));
        }
    }
}
