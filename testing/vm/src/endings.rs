//! How connections of iWARP end that do not end by themselves: each end is told, and all is given
//! back.

use anyhow::{Context, Result, ensure};
use vrdma_lab::vm::addresses::IP;
use vrdma_lab::vm::{Job, Pair, Vm};
use vrdma_lab::watch::{Holdings, said};
use vrdma_vm_macros::vm_test;

use crate::port::rping;

/// What the verbs objects of a VM's device are, as a number of each kind.
const OBJECTS: &str = "rdma resource show | sed -n 's/^[0-9]*: vrdma0: //; T; s/ *$//p'";

/// Each way in which they end. VM b's driver begins anew in some.
#[vm_test("vm-iwarp-endings", lab = Iwarp, long, disturbs)]
fn all(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(9);
    // The first use of anything may leave something in caches.
    killed(pair).context("at first")?;
    begin_anew(pair)?;
    let before = Holdings::settled(pair.backend()?, patience)?.with_new_driver("b");
    let (objects_a, objects_b) =
        (pair.a.check(OBJECTS, pair.patience(2))?, pair.b.check(OBJECTS, pair.patience(2))?);

    refused(pair).context("where nobody listens")?;
    killed(pair).context("killed programs")?;
    unanswered(pair).context("requests that nobody answers")?;
    often(pair).context("one after the other")?;
    removed(pair).context("a driver that is removed")?;
    reset(pair).context("a VM that is reset")?;

    before.expect_return(pair.backend()?, patience)?;
    objects_return(pair, &pair.a, &objects_a)?;
    objects_return(pair, &pair.b, &objects_b)
}

/// The device has as many objects as before as soon as everything is given back.
fn objects_return(pair: &Pair, vm: &Vm, before: &str) -> Result<()> {
    let before = before.trim();
    let command = format!("until [ \"$({OBJECTS})\" = '{before}' ]; do sleep 0.05; done");
    let result = vm.check(&command, pair.patience(5));
    result.map(|_| ()).with_context(|| {
        let now = vm.check(OBJECTS, pair.patience(2)).unwrap_or_default();
        format!("VM {} had {before}, and has {now}", vm.name())
    })
}

/// VM b's device is there and its port up.
fn wait_for_device(pair: &Pair) -> Result<()> {
    let active = "until rdma link show vrdma0/1 2>/dev/null | grep -q 'state ACTIVE'; do sleep 0.05; done";
    pair.b.check(active, pair.patience(5)).map(|_| ()).context("VM b's device does not come back")
}

fn begin_anew(pair: &Pair) -> Result<()> {
    pair.b.check("rmmod vrdma && insmod /lib/vrdma/vrdma.ko", pair.patience(5))?;
    wait_for_device(pair)
}

fn ended(pair: &Pair, job: Job, who: &str) -> Result<String> {
    let output = job.wait(pair.patience(9)).with_context(|| format!("{who} does not end"))?;
    Ok(format!("{}{}", output.text(), String::from_utf8_lossy(&output.stderr)))
}

/// A client where nobody listens is told so.
fn refused(pair: &Pair) -> Result<()> {
    let client = pair.b.spawn(&format!("exec rping -c -a {} -C 1", IP[0]))?;
    let text = ended(pair, client, "the client")?;
    ensure!(text.contains("RDMA_CM_EVENT_REJECTED"), "{text}");
    Ok(())
}

/// One end of a connection is killed; the other is told.
fn killed(pair: &Pair) -> Result<()> {
    let (server, client) = rping(pair, "-C 1000000")?;
    client.signal(9)?;
    ended(pair, client, "the client that is killed")?;
    ended(pair, server, "its server")?;
    let (server, client) = rping(pair, "-C 1000000")?;
    server.signal(9)?;
    ended(pair, server, "the server that is killed")?;
    ended(pair, client, "its client").map(|_| ())
}

/// A server in VM a that answers nobody, and a client in VM b that waits for its answer.
fn waiting(pair: &Pair) -> Result<(Job, Job)> {
    let server = pair.a.spawn(&format!("exec rping -s -a {} -C 1", IP[0]))?;
    pair.a.wait_for_cm_listener(pair.patience(3)).with_context(|| said(&server))?;
    server.signal(19)?;
    let client = pair.b.spawn(&format!("exec rping -c -a {} -C 1", IP[0]))?;
    let asks = "until rdma resource show cm_id | grep -qw 'state CONNECT'; do sleep 0.05; done";
    pair.b.check(asks, pair.patience(3)).with_context(|| said(&client))?;
    Ok((server, client))
}

/// A listener goes while a request waits for it; a client is killed that waits.
fn unanswered(pair: &Pair) -> Result<()> {
    let (server, client) = waiting(pair)?;
    server.signal(9)?;
    ended(pair, server, "the server")?;
    let text = ended(pair, client, "a client whose server has gone")?;
    ensure!(text.contains("RDMA_CM_EVENT_REJECTED"), "{text}");

    let (server, client) = waiting(pair)?;
    client.signal(9)?;
    // Nobody can kill a process that waits for the answer of its device: the answer comes by
    // itself, or its QP goes first.
    let output = client.wait(pair.patience(40)).context("a client that is killed while it waits")?;
    ensure!(!output.success());
    server.signal(9)?;
    ended(pair, server, "the server").map(|_| ())
}

/// Two hundred connections, one after the other, to a server that stays.
fn often(pair: &Pair) -> Result<()> {
    let server = pair.a.spawn(&format!("exec rping -s -P -a {}", IP[0]))?;
    pair.a.wait_for_cm_listener(pair.patience(3)).with_context(|| said(&server))?;
    let clients = format!(
        "for i in $(seq 200); do rping -c -a {} -C 1 || {{ echo in round $i; exit 1; }}; done 2>&1",
        IP[0]
    );
    let output = pair.b.exec(&clients, pair.patience(60))?;
    ensure!(output.success(), "{:?} {}\nthe server: {}", output.exit, output.text(), said(&server));
    server.signal(9)?;
    ended(pair, server, "the server").map(|_| ())
}

/// VM b's driver is removed under a client that is connected, one that waits for an answer, and
/// under a listener.
fn removed(pair: &Pair) -> Result<()> {
    let rmmod = |when: &str| {
        let result = pair.b.check("rmmod vrdma", pair.patience(9));
        result.with_context(|| format!("rmmod under {when}"))
    };
    let insmod = || {
        pair.b.check("insmod /lib/vrdma/vrdma.ko", pair.patience(3))?;
        wait_for_device(pair)
    };
    let (server, client) = rping(pair, "-C 1000000")?;
    rmmod("a connection")?;
    ended(pair, client, "the client")?;
    ended(pair, server, "the server")?;
    insmod()?;

    let (server, client) = waiting(pair)?;
    rmmod("a client that waits")?;
    ended(pair, client, "the client that waits")?;
    server.signal(9)?;
    ended(pair, server, "the server that answers nobody")?;
    insmod()?;

    let server = pair.b.spawn(&format!("exec rping -s -a {} -C 1", IP[1]))?;
    pair.b.wait_for_cm_listener(pair.patience(3)).with_context(|| said(&server))?;
    rmmod("a listener")?;
    server.signal(9)?;
    ended(pair, server, "the server that listens")?;
    insmod()
}

/// VM b is reset while it is connected: its peer is told, and it connects again.
fn reset(pair: &mut Pair) -> Result<()> {
    let (server, client) = rping(pair, "-C 1000000")?;
    pair.b.reset()?;
    drop(client);
    let text = ended(pair, server, "the peer of a VM that is reset")?;
    ensure!(text.contains("DISCONNECT"), "{text}");
    wait_for_device(pair)?;
    killed(pair)
}
