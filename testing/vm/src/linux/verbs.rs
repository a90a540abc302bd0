//! Verbs as programs use them that other devices had bugs with.

use anyhow::{Context, Result, ensure};
use vrdma_conformance::lineup::{PathMtu, prepare};
use vrdma_lab::device::Device;
use vrdma_lab::vm::addresses::IP;
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

use super::case::{case, python};

/// The end of QPs that share a receive queue: exactly one LAST_WQE_REACHED each, and no receive is
/// lost.
///
/// IBTA 10.3.1, 11.6.3.8; spdk#1697, ceph#25447.
#[vm_test("vm-linux-last-wqe", lab = Usual)]
fn last_wqe(pair: &mut Pair) -> Result<()> {
    in_one_vm(pair, "last_wqe.py")
}

/// Regions of any length and place within memory of huge pages.
///
/// ibv_reg_mr(3); Mooncake#3845, perftest#395.
#[vm_test("vm-linux-odd-regions", lab = Usual)]
fn odd_regions(pair: &mut Pair) -> Result<()> {
    in_one_vm(pair, "odd_regions.py")
}

/// Private data of all lengths, each way, of connections that are accepted and rejected: it comes
/// as it was sent, no stale memory comes behind it, and too much of it is EINVAL.
///
/// rdma_connect(3), rdma_accept(3), rdma_reject(3), RFC 5044 7.1; rpma#184, ucx#5460, ldms#2259.
#[vm_test("vm-linux-private-data", lab = Usual)]
#[vm_test("vm-linux-private-data-iwarp", lab = Iwarp)]
#[vm_test("vm-linux-private-data-own-tcp", lab = IwarpOwnTcp)]
fn private_data(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(20);
    for (server, client, ip) in [(&pair.a, &pair.b, IP[0]), (&pair.b, &pair.a, IP[1])] {
        let serving = server.spawn(&format!("exec vr-private-data server {ip}"))?;
        server.wait_for_cm_listener(patience).with_context(|| said(&serving))?;
        let asked = client.check(&format!("vr-private-data client {ip}"), patience);
        asked.with_context(|| format!("the server in VM {}: {}", server.name(), said(&serving)))?;
        let served = serving.wait(patience)?;
        ensure!(served.success(), "the server in VM {}: {:?}", server.name(), served.exit);
    }
    Ok(())
}

/// A program connects to one port of a server again and again, and has few ports of its own. So it
/// soon takes one again from which it connected a moment ago: that is no reason to refuse it.
///
/// RFC 9293, 3.6.1 (TIME-WAIT); ip(7), ip_local_port_range.
#[vm_test("vm-linux-few-ports", lab = Usual)]
#[vm_test("vm-linux-few-ports-iwarp", lab = Iwarp)]
#[vm_test("vm-linux-few-ports-own-tcp", lab = IwarpOwnTcp)]
fn few_ports(pair: &mut Pair) -> Result<()> {
    const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    let patience = pair.patience(2);
    let usual = pair.a.check(&format!("cat {RANGE}"), patience)?;
    let set = |pair: &Pair, range: &str| {
        let mut vms = [&pair.a, &pair.b].into_iter();
        vms.try_for_each(|vm| vm.check(&format!("echo {range} > {RANGE}"), patience).map(|_| ()))
    };
    set(pair, "50000 50007")?;
    let result = private_data(pair);
    set(pair, usual.trim())?;
    result
}

/// Datagrams are answered by what their completions and headers say of the sender, by IPv4 and by
/// IPv6.
///
/// ibv_create_ah_from_wc(3), IBTA A17.4.5; rdma-core#1740, ucx#10209.
#[vm_test("vm-linux-answers", lab = Usual)]
#[vm_test("vm-linux-answers-two-hosts", lab = TwoHosts)]
fn answers(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Usual)?;
    let patience = pair.patience(10);
    let index = |vm: &Vm, gid: &str| -> Result<String> {
        let found = format!("cd /sys/class/infiniband/vrdma0/ports/1/gids && grep -l {gid} * | tail -n 1");
        Ok(vm.check(&found, patience)?.trim().to_owned())
    };
    for (port, gids) in [(18690, ["0a4d:0001", "0a4d:0002"]), (18691, ["^fd.*0001$", "^fd.*0002$"])] {
        let command = format!("vr-answer -d vrdma0 -p {port}");
        let mut serving = pair.a.spawn(&format!("exec {command} -g {}", index(&pair.a, gids[0])?))?;
        let line = format!("{command} -g {} {}", index(&pair.b, gids[1])?, IP[0]);
        let asked = pair.b.check(&line, patience);
        // It takes what the server wrote.
        let _ = serving.has_ended()?;
        let text = asked.with_context(|| format!("the server of {gids:?}: {}", said(&serving)))?;
        ensure!(text.contains("50 answers"), "no answers: {text}");
        let served = serving.wait(patience)?;
        ensure!(served.success(), "the server of {gids:?}: {:?}", served.exit);
    }
    Ok(())
}

/// Requests whose QP, region, address handle and memory are gone as soon as their completions are
/// there: what was asked for happens all the same.
///
/// IBTA 10.8.5.1, ibv_post_send(3); rxe-dev#35.
#[vm_test("vm-linux-destroyed", lab = Usual)]
#[vm_test("vm-linux-destroyed-two-hosts", lab = TwoHosts)]
fn destroyed(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Usual)?;
    let patience = pair.patience(20);
    for (port, options) in
        [(18700, "ud -n 1000"), (18701, "uc -n 100 --batch 20"), (18702, "rc -n 100 --batch 20")]
    {
        let command = format!("vr-destroyed -d vrdma0 -p {port} --service {options}");
        let mut serving = pair.a.spawn(&format!("exec {command}"))?;
        let asked = pair.b.check(&format!("{command} {}", IP[0]), patience);
        let ended = serving.has_ended();
        asked.with_context(|| format!("the server of {options}: {}", said(&serving)))?;
        ended?;
        let served = serving.wait(patience)?;
        ensure!(served.success(), "the server of {options}: {:?}", served.exit);
    }
    Ok(())
}

/// A program that is written with pyverbs, in VM a. It is told the index of the VM's GID.
fn in_one_vm(pair: &mut Pair, script: &str) -> Result<()> {
    case(pair, |pair| {
        let index = Device::Vrdma.gid_index(&pair.a)?;
        let run = python(pair, script)?;
        pair.a.check("echo 16 >/proc/sys/vm/nr_hugepages", pair.patience(3))?;
        let said = pair.a.check(&format!("{run} {index}"), pair.patience(15));
        pair.a.check("echo 0 >/proc/sys/vm/nr_hugepages", pair.patience(3))?;
        said.with_context(|| script.to_owned()).map(|_| ())
    })
}
