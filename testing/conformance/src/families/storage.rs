//! Storage over RDMA: each protocol, as fio uses it, and with a target that is killed.

use anyhow::{Context, Result, ensure};
use vrdma_lab::storage::{Disk, Load, Protocol, Storage, expect_sound};
use vrdma_lab::ui;
use vrdma_lab::vm::{Pair, workers};
use vrdma_lab::watch::Holdings;

use super::notes::Note;
use super::results::Outcome;
use super::vms::{Vms, is_well};

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

/// What is written is read, and afterwards the backends have as many objects as before.
pub fn gives_all_back(pair: &mut Pair, storage: Storage, load: &Load) -> Result<()> {
    // The first use of anything leaves something: the core keeps a pool of CQs, and each worker
    // what memory it had most.
    let first = if workers() > 1 { load } else { &Load::SMALL };
    storage.whole(pair, first).context("the first time")?;
    let patience = pair.patience(5);
    let mut before = Vec::new();
    for backend in pair.backends() {
        before.push(Holdings::settled(backend, patience)?);
    }
    storage.whole(pair, load)?;
    for (before, backend) in before.iter().zip(pair.backends()) {
        before.expect_return(backend, patience)?;
    }
    Ok(())
}

/// A target's VM is killed while the initiator reads and writes, and comes back: the initiator goes
/// on, and reads what it wrote.
pub fn killed_target_of(pair: &mut Pair, storage: Storage) -> Result<()> {
    // It goes on until it is told to compare.
    const LOAD: Load = Load {
        size: "16m",
        options: "--ioengine=libaio --direct=1 --rate=1m --eta=always --eta-newline=500ms",
    };
    storage.serve(pair, Disk::File)?;
    let file = storage.connect(pair)?;
    let mut fio = storage.start_load(pair, &file, &LOAD)?;
    fio.wait_for("%]", pair.patience(5))?;
    ensure!(!fio.has_ended()?, "fio ended before the target was killed");
    reboot(pair, storage)?;
    ensure!(!fio.has_ended()?, "fio ended without a target");
    storage.serve(pair, Disk::File)?;
    expect_sound(&fio.wait(pair.patience(30))?)?;
    storage.disconnect(pair)?;
    storage.stop(pair)
}

/// Kills the target's VM, and boots it again with what it had: its device, and the MTU.
fn reboot(pair: &mut Pair, storage: Storage) -> Result<()> {
    let patience = pair.patience(6);
    let vm = storage.target(pair);
    let name = vm.name().to_owned();
    let mtu = vm.check("cat /sys/class/net/eth0/mtu", patience)?;
    pair.reboot(&name)?;
    let vm = storage.target(pair);
    vm.check(&format!("ip link set eth0 mtu {}", mtu.trim()), patience)?;
    pair.device(vm).prepare_in(vm, patience)
}

/// Each VM is the other's target.
pub fn both_ways(pair: &Pair, protocol: Protocol, load: &Load) -> Result<()> {
    let ends = [0, 1].map(|target| Storage::new(protocol, target));
    let mut files = Vec::new();
    for end in ends {
        end.serve(pair, Disk::Ram)?;
    }
    for end in ends {
        files.push(end.connect(pair)?);
    }
    let mut jobs = Vec::new();
    for (end, file) in ends.iter().zip(&files) {
        jobs.push(end.start_load(pair, file, load)?);
    }
    for job in jobs {
        expect_sound(&job.wait(pair.patience(40))?)?;
    }
    for end in ends {
        end.disconnect(pair)?;
    }
    ends.into_iter().try_for_each(|end| end.stop(pair))
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
