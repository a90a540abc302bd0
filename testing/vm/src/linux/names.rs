//! A device that is renamed, and its place in sysfs, where programs look for it.

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::wait_for_device;
use vrdma_lab::paths;
use vrdma_lab::vm::{Pair, Vm};
use vrdma_vm_macros::vm_test;

use super::case::case;
use crate::port;

/// Renames a device under a program, which continues. Programs find it by the new name.
///
/// rdma-dev(8); udev renames devices as Debian 13 does by default (opa-psm2#43, rdma-core#530).
#[vm_test("vm-linux-renamed", lab = Usual)]
pub fn renamed(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(6);
        let (server, client) = port::rping(pair, "-C 100000")?;
        pair.b.check("rdma dev set vrdma0 name rocep0s4", patience)?;
        let mut server = server;
        let turns = server.so_far().stdout.len();
        let goes_on = |server: &mut vrdma_lab::vm::Job| -> Result<bool> {
            Ok(!server.has_ended()? && server.so_far().stdout.len() > turns)
        };
        for _ in 0..100 {
            if goes_on(&mut server)? {
                break;
            }
            pair.b.check("sleep 0.1", patience)?;
        }
        ensure!(goes_on(&mut server)?, "rping stands still after its device was renamed");
        drop(client);
        drop(server);
        pair.b.check("ibv_devinfo -d rocep0s4 | grep -q PORT_ACTIVE", patience)?;
        pair.b
            .check("rdma statistic show link rocep0s4/1 && rdma resource show qp link rocep0s4", patience)?;
        let mut pong = pair.a.spawn("exec ibv_rc_pingpong -d vrdma0 -g 1 -p 18600 -n 100")?;
        pair.a.check("until ss -ltn | grep -q :18600; do sleep 0.1; done", patience)?;
        let ping = "ibv_rc_pingpong -d rocep0s4 -g 1 -p 18600 -n 100 10.77.0.1";
        pair.b.check(ping, patience).context("a program by the new name")?;
        let _ = pong.has_ended()?;
        // If another device has the driver's name, the driver takes the next one.
        pair.b
            .check("rmmod vrdma && modprobe rdma_rxe && rdma link add vrdma0 type rxe netdev lo", patience)?;
        pair.b.check("insmod /lib/vrdma/vrdma.ko", patience)?;
        let other = "until rdma dev show vrdma1; do sleep 0.05; done 2>/dev/null";
        pair.b.check(other, patience).context("no vrdma1 beside another vrdma0")?;
        pair.b.check("rmmod vrdma && rdma link delete vrdma0 && insmod /lib/vrdma/vrdma.ko", patience)?;
        wait_for_device(pair)
    })
}

/// Checks what docs/sysfs.md promises about sysfs (nccl#573, ucx#3463).
#[vm_test("vm-linux-sysfs", lab = Usual)]
fn in_sysfs(pair: &mut Pair) -> Result<()> {
    expect_place_in_sysfs(pair, &pair.b)
}

/// Checks in a VM what docs/sysfs.md promises.
pub fn expect_place_in_sysfs(pair: &Pair, vm: &Vm) -> Result<()> {
    let script = paths::workspace().join("testing/vm/checks/sysfs.sh");
    paths::write(&pair.share().join("sysfs.sh"), paths::read(&script)?)?;
    vm.check("sh /share/sysfs.sh", pair.patience(6)).map(|_| ())
}
