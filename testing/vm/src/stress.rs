//! No kick and no event is lost, however long a ping-pong goes on.

use std::time::Duration;

use anyhow::{Context, Result};
use vrdma_lab::vm::Pair;
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

/// How programs get requests to the device and completions from it: environment and option of
/// `vr-pingpong`.
const WAYS: [(&str, &str); 4] =
    [("", ""), ("", "--events"), ("VRDMA_NO_CHANNEL=1", ""), ("VRDMA_NO_CHANNEL=1", "--events")];

/// Who makes no progress for so long lost a kick or an event; a busy machine takes less.
const STALL: Duration = Duration::from_secs(60);

/// A ping-pong of this many seconds in each of the [`WAYS`], between VMs of one processor and over
/// a backend that sleeps whenever it can. Each message is a kick, so whoever publishes without a
/// barrier stalls.
#[vm_test("vm-one-processor", lab = Sleepy, args(6))]
#[vm_test("vm-one-processor-long", lab = Sleepy, long, args(600))]
fn each_way(pair: &mut Pair, seconds: u64) -> Result<()> {
    for (index, (environment, options)) in WAYS.iter().enumerate() {
        let what = format!("{environment} vr-pingpong {options}");
        let command = format!(
            "exec env {environment} vr-pingpong -d vrdma0 -p {} --stall {} {options}",
            18980 + index,
            STALL.as_secs()
        );
        let server = pair.a.spawn(&command)?;
        let client = pair.b.spawn(&format!("{command} -s {seconds} 10.77.0.1"))?;
        let patience = Duration::from_secs(seconds) + pair.patience(10).max(STALL);
        let output =
            client.wait(patience).with_context(|| format!("{what}: the server: {}", said(&server)))?;
        anyhow::ensure!(
            output.success(),
            "{what}: {} {}\nthe server: {}",
            output.text(),
            String::from_utf8_lossy(&output.stderr),
            said(&server)
        );
        let output = server.wait(pair.patience(5))?;
        anyhow::ensure!(output.success(), "{what}: the server: {output:?}");
    }
    Ok(())
}
