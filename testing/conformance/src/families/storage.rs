//! Storage over RDMA: each protocol with fio, also with a target that is killed.

use anyhow::{Context, Result, ensure};
use vrdma_lab::storage::{Disk, Load, Protocol, Storage, expect_sound};
use vrdma_lab::ui;
use vrdma_lab::vm::{Pair, workers};
use vrdma_lab::watch::Holdings;

use super::notes::Note;
use super::results::Outcome;
use super::vms::{Vms, is_well};

/// A test of a target and its initiator.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// This load. Afterwards all objects must be returned.
    Load(Load),
    /// This load in both directions at once: each VM is a target.
    BothWays(Load),
    /// A small load, during which the target is killed.
    KilledTarget,
}

/// A row of the results.
struct Case {
    name: String,
    storage: Storage,
    work: Work,
}

/// Amount of data to read and write.
const SIZE: &str = "64m";

/// Returns all rows. The target is in VM a. If VM b has another device, it is the target as well.
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

/// Runs the wanted rows.
///
/// After a failure the next row gets new VMs, because the state of target and initiator is unknown.
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
        // The outcome is recorded last. If the user interrupts this command, the VMs end first, and
        // that is no failure of the program.
        note(name, &outcome)?;
    }
    Ok(())
}

/// Checks that data is read as written, and that the backends have as many objects as before.
pub fn gives_all_back(pair: &mut Pair, storage: Storage, load: &Load) -> Result<()> {
    // The first use of something leaves objects: the core a pool of CQs, each worker its most
    // memory.
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

/// Kills the target's VM while the initiator reads and writes, and boots it again.
///
/// The initiator has to continue, and to read what it wrote.
pub fn killed_target_of(pair: &mut Pair, storage: Storage) -> Result<()> {
    // The rate limit keeps fio running until the target is killed. Its status lines show when it
    // has begun.
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

/// Kills the target's VM, and boots it again with its device and its MTU.
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

/// Runs a load with each VM as a target of the other one.
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
