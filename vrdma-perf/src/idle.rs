//! The costs of idle connections: memory, and processor time while the worker sleeps.

use crate::args::DaemonArgs;
use crate::daemon::Daemon;
use crate::flow;
use crate::host::{Host, Uplink, refused};
use crate::missing::missing;
use crate::plan::Plan;
use crate::process::Process;
use crate::stats::Quartiles;
use anyhow::Result;
use std::time::{Duration, Instant};
use vrdma_guest::Qp;
use vrdma_guest::abi::control::{QpType, limit};

/// Number of windows of a measurement of processor time.
const WINDOWS: u32 = 10;
/// Time until the effects of the set-up are over.
const SETTLED: Duration = Duration::from_millis(300);
/// Number of connections before those that count. Memory that all connections share is allocated by
/// then.
const BEFORE: u32 = 1000;
/// Code of the largest path MTU that fits the default link MTU of the uplink.
const MTU_1024: u8 = 3;
/// An address that no guest has.
const ELSEWHERE: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 200];

/// Measures the daemon's processor time with `qps` connected idle QPs, in percent of a processor.
///
/// # Errors
/// This program did not start the daemon, or the daemon refuses a command.
pub fn processor(plan: &Plan, daemon: &DaemonArgs, qps: u32, time: Duration) -> Result<Quartiles> {
    let host = Host::new(daemon, 2, plan.memory(), plan.transport)?;
    let daemon = own(&host)?;
    // Each connection has two QPs.
    let _idle = flow::idle(&host, plan, (0, 1), qps / 2)?;
    std::thread::sleep(SETTLED);
    let window = || {
        let (before, start) = (daemon.processor_time()?, Instant::now());
        std::thread::sleep(time / WINDOWS);
        let used = daemon.processor_time()? - before;
        Ok(100. * used.as_secs_f64() / start.elapsed().as_secs_f64())
    };
    Ok(Quartiles::of((0..WINDOWS).map(|_| window()).collect::<Result<Vec<f64>>>()?))
}

/// Measures the daemon's bytes for each of `qps` connected QPs. Their peers are on this host, or on
/// another over an uplink.
///
/// # Errors
/// This program did not start the daemon, or the daemon refuses a command.
pub fn memory(plan: &Plan, daemon: &DaemonArgs, qps: u32, wire: bool) -> Result<f64> {
    let uplink = wire.then_some(Uplink("net_ring0"));
    let host = Host::with(daemon, 2, 2 * plan.memory(), plan.transport, uplink)?;
    let daemon = own(&host)?;
    let connect = |qps| {
        if wire {
            outwards(&host, plan, qps).map(|process| vec![process])
        } else {
            flow::idle(&host, plan, (0, 1), qps / 2)
        }
    };
    let _first = connect(BEFORE)?;
    std::thread::sleep(SETTLED);
    let before = daemon.memory()?;
    let _others = connect(qps)?;
    std::thread::sleep(SETTLED);
    Ok((daemon.memory()? as f64 - before as f64) / f64::from(qps))
}

/// Returns the daemon, if this program started it. The costs of another one are unknown.
fn own(host: &Host) -> Result<&Daemon> {
    host.daemon().ok_or_else(|| missing("it wants a daemon of our own"))
}

/// Creates a process whose QPs are connected to QPs of another host, which never answers.
fn outwards(host: &Host, plan: &Plan, qps: u32) -> Result<Process> {
    let plan = flow::one_of_each(plan, qps);
    let process = Process::new(&host.guests[0], 64, &plan)?;
    let connect = |qp: &Qp| {
        qp.to_init()?;
        qp.to_rtr(ELSEWHERE, 0x100 + qp.number % 0x10000, 0)?;
        qp.to_rts()
    };
    for mut qp in process.qps(&plan, QpType::RC, limit::NONE, 0)? {
        qp.options.path_mtu = MTU_1024;
        refused(connect(&qp), "a connection to another host")?;
    }
    Ok(process)
}
