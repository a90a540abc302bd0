//! Storage over RDMA: the kernel's own users of fast registration, remote invalidation and QPs of
//! the kernel.

use anyhow::{Context, Result};
use vrdma_conformance::families::{gives_all_back, killed_target_of};
use vrdma_lab::storage::{Disk, Load, Protocol, Storage};
use vrdma_lab::vm::Pair;
use vrdma_lab::wait::until;
use vrdma_lab::watch::Holdings;
use vrdma_vm_macros::vm_test;

/// What the tests of every day read and write.
const LOAD: Load = Load { size: "16m", options: Load::ASYNCHRONOUS };

/// Each protocol, with the target in VM a, and in VM b too where the VMs' devices differ.
#[vm_test("vm-nvme", lab = Usual, long, args(Protocol::Nvme))]
#[vm_test("vm-nvme-two-hosts", lab = TwoHosts, args(Protocol::Nvme))]
#[vm_test("vm-nvme-rxe", lab = Interop, long, args(Protocol::Nvme))]
#[vm_test("vm-iser", lab = Usual, long, args(Protocol::Iser))]
#[vm_test("vm-iser-two-hosts", lab = TwoHosts, long, args(Protocol::Iser))]
#[vm_test("vm-iser-rxe", lab = Interop, long, args(Protocol::Iser))]
#[vm_test("vm-nfs", lab = Usual, long, args(Protocol::Nfs))]
#[vm_test("vm-nfs-two-hosts", lab = TwoHosts, long, args(Protocol::Nfs))]
#[vm_test("vm-nfs-rxe", lab = Interop, long, args(Protocol::Nfs))]
#[vm_test("vm-linux-srp", lab = Usual, args(Protocol::Srp))]
fn all_ways(pair: &mut Pair, protocol: Protocol) -> Result<()> {
    for vm in [&pair.a, &pair.b] {
        pair.device(vm).prepare_in(vm, pair.patience(6))?;
    }
    let differ = pair.device(&pair.a) != pair.device(&pair.b);
    for target in 0..=usize::from(differ) {
        let storage = Storage::new(protocol, target);
        gives_all_back(pair, storage, &LOAD).with_context(|| storage.ends(pair))?;
    }
    Ok(())
}

/// Completions that the kernel has moderated by itself (rdma-dev(8), adaptive-moderation): none is
/// forgotten.
///
/// spdk#3328: I/O whose completion nobody looks at until other traffic comes.
#[vm_test("vm-linux-moderation", lab = Usual)]
fn adaptive_moderation(pair: &mut Pair) -> Result<()> {
    // One request at a time: nothing else brings a completion to notice.
    const LONE: Load = Load { size: "2m", options: "--ioengine=psync --direct=1" };
    let patience = pair.patience(5);
    for vm in [&pair.a, &pair.b] {
        vm.check("rdma dev set vrdma0 adaptive-moderation on", patience)?;
    }
    let storage = Storage::new(Protocol::Nvme, 0);
    storage.serve(pair, Disk::Ram)?;
    let file = storage.connect(pair)?;
    for load in [&LONE, &LOAD, &LONE] {
        storage.load(pair, &file, load)?;
    }
    for vm in [&pair.a, &pair.b] {
        vm.check("rdma dev set vrdma0 adaptive-moderation off", patience)?;
    }
    storage.load(pair, &file, &LONE).context("after moderation was switched off under a connection")?;
    storage.disconnect(pair)?;
    storage.stop(pair)
}

/// A target's VM is killed while the initiator reads and writes, and comes back. The initiator goes
/// on, and reads what it wrote.
#[vm_test("vm-killed-target", lab = Usual, long, disturbs, args(&[Protocol::Nvme]))]
#[vm_test("vm-killed-target-two-hosts", lab = TwoHosts, long, disturbs, args(&Protocol::ALL))]
fn killed_target(pair: &mut Pair, protocols: &[Protocol]) -> Result<()> {
    for protocol in protocols {
        killed_target_of(pair, Storage::new(*protocol, 0)).with_context(|| protocol.name())?;
    }
    Ok(())
}

/// The initiator's VM is killed while it reads and writes: a new one is served, and in the end all
/// that the target's VM had is given back. (Not earlier: targets ask after initiators that say
/// nothing late, and LIO over RDMA never does.)
#[vm_test("vm-killed-initiator", lab = Usual, long, disturbs)]
fn killed_initiator(pair: &mut Pair) -> Result<()> {
    for protocol in Protocol::ALL {
        killed_initiator_of(pair, protocol).with_context(|| protocol.name())?;
    }
    Ok(())
}

fn killed_initiator_of(pair: &mut Pair, protocol: Protocol) -> Result<()> {
    // It goes on until it is killed.
    const LOAD: Load = Load {
        size: "16m",
        options: "--ioengine=libaio --direct=1 --loops=1000 --eta=always --eta-newline=500ms",
    };
    let storage = Storage::new(protocol, 0);
    storage.whole(pair, &Load::SMALL).context("the first time")?;
    let patience = pair.patience(5);
    Holdings::settled(pair.backend()?, patience)?;
    let before = objects_of_target(pair)?;
    storage.serve(pair, Disk::Ram)?;
    let file = storage.connect(pair)?;
    let mut fio = storage.start_load(pair, &file, &LOAD)?;
    fio.wait_for("%]", patience)?;
    pair.reboot("b")?;
    drop(fio);
    let file = storage.connect(pair).context("a new initiator")?;
    storage.load(pair, &file, &Load::SMALL)?;
    storage.disconnect(pair)?;
    storage.stop(pair)?;
    until("as many objects of the target's VM as before", patience, || {
        let now = objects_of_target(pair)?;
        Ok(if now == before { Ok(()) } else { Err(format!("it has {now:?}, and had {before:?}")) })
    })
}

/// How many objects of each kind VM a has.
fn objects_of_target(pair: &mut Pair) -> Result<Vec<(String, u64)>> {
    let mut objects = Holdings::of(pair.backend()?)?.objects;
    objects.retain(|(kind, _)| kind.starts_with("a."));
    Ok(objects)
}
