//! Where programs look for a device and its place in the machine.

use anyhow::Result;
use vrdma_lab::paths;
use vrdma_lab::vm::Pair;
use vrdma_vm_macros::vm_test;

/// What docs/sysfs.md promises of sysfs (nccl#573, ucx#3463).
#[vm_test("vm-linux-sysfs", lab = Usual)]
fn in_sysfs(pair: &mut Pair) -> Result<()> {
    let script = paths::workspace().join("testing/vm/checks/sysfs.sh");
    paths::write(&pair.share().join("sysfs.sh"), paths::read(&script)?)?;
    pair.b.check("sh /share/sysfs.sh", pair.patience(6)).map(|_| ())
}
