//! iWARP over the host's TCP: programs of rdma_cm between two VMs.

use anyhow::{Context, Result, ensure};
use vrdma_lab::programs;
use vrdma_lab::vm::addresses::{IP, IP6};
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

/// A program that listens, the same one that connects, and what the latter says in the end if all
/// went well.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("rping -s -a {server} -v -C 20", "rping -c -a {server} -I {client} -v -C 20", "ping data"),
    (
        "rping -s -a {server} -v -C 5 -S 60000",
        "rping -c -a {server} -I {client} -v -C 5 -S 60000",
        "ping data",
    ),
    ("ucmatose -b {server} -c 4", "ucmatose -s {server} -b {client} -c 4", "test complete"),
    (
        "ib_write_bw -R -F -p {port} -d vrdma0 -n 1000",
        "ib_write_bw -R -F -p {port} -d vrdma0 -n 1000 {server}",
        "65536",
    ),
    (
        "ib_send_lat -R -F -p {port} -d vrdma0 -n 200 -s 64",
        "ib_send_lat -R -F -p {port} -d vrdma0 -n 200 -s 64 {server}",
        "64",
    ),
    (
        "ib_read_bw -R -F -p {port} -d vrdma0 -n 500",
        "ib_read_bw -R -F -p {port} -d vrdma0 -n 500 {server}",
        "65536",
    ),
];

/// Each in both directions; the device says that it is one of iWARP.
#[vm_test("vm-iwarp", lab = Iwarp)]
fn programs(pair: &mut Pair) -> Result<()> {
    for vm in [&pair.a, &pair.b] {
        let devinfo = vm.check("ibv_devinfo -d vrdma0", pair.patience(4))?;
        ensure!(devinfo.contains("iWARP"), "no device of iWARP:\n{devinfo}");
    }
    wait_until_ready(pair)?;
    for program in PROGRAMS {
        for (server, client) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            programs::perftest_by_cm(|attempt| between(pair, server, client, program, 18515 + attempt))
                .with_context(|| format!("{} from VM {}", program.1, client.name()))?;
        }
    }
    Ok(())
}

/// The ports are up.
fn wait_until_ready(pair: &Pair) -> Result<()> {
    let patience = pair.patience(4);
    for vm in [&pair.a, &pair.b] {
        let active = "until rdma link show vrdma0/1 | grep -q 'state ACTIVE'; do sleep 0.1; done";
        vm.check(active, patience).context("the port is not up")?;
    }
    Ok(())
}

/// Between addresses of IPv6, both ways, and with a listener at all addresses.
#[vm_test("vm-iwarp-ipv6", lab = Iwarp)]
fn ipv6(pair: &mut Pair) -> Result<()> {
    const PROGRAMS: [(&str, &str, &str); 2] = [
        ("rping -s -a {server6} -v -C 5", "rping -c -a {server6} -I {client6} -v -C 5", "ping data"),
        ("rping -s -a :: -v -C 5", "rping -c -a {server6} -v -C 5", "ping data"),
    ];
    wait_until_ready(pair)?;
    for vm in [&pair.a, &pair.b] {
        vm.add_ipv6(IP6[pair.index(vm)], pair.patience(4))?;
    }
    for program in PROGRAMS {
        for (server, client) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            between(pair, server, client, program, 0)
                .with_context(|| format!("{} from VM {}", program.1, client.name()))?;
        }
    }
    Ok(())
}

/// A process names the QP of another one when it accepts, and when it connects: neither may be, and
/// the QP's own process connects it then.
#[vm_test("vm-iwarp-foreign-qp", lab = Iwarp)]
fn foreign_qp(pair: &mut Pair) -> Result<()> {
    wait_until_ready(pair)?;
    let server = pair.b.spawn(&format!("exec rping -s -P -a {}", IP[1]))?;
    pair.b.wait_for_cm_listener(pair.patience(4)).with_context(|| said(&server))?;
    let tries = pair.a.spawn(&format!("exec vr-cm-foreign {} 7174 {}", IP[1], IP[0]))?;
    pair.a.wait_for_cm_listener(pair.patience(4)).with_context(|| said(&tries))?;
    let client = pair.b.exec(&format!("rping -c -C 1 -a {}", IP[0]), pair.patience(5))?;
    let tried = tries.wait(pair.patience(9)).context("who names another's QP")?;
    ensure!(tried.success(), "{:?} {}", tried.exit, String::from_utf8_lossy(&tried.stderr));
    let text = format!("{}{}", client.text(), String::from_utf8_lossy(&client.stderr));
    ensure!(text.contains("RDMA_CM_EVENT_REJECTED"), "the client that was not accepted: {text}");
    server.signal(9)?;
    server.wait(pair.patience(4)).map(|_| ())
}

/// A process names the QP of a user in the kernel, which is ready to be connected, when it accepts,
/// and when it connects: neither may be. A user in the kernel that connects in the system call of a
/// process, as 9P does when it is mounted, is connected all the same.
#[vm_test("vm-iwarp-kernel-qp", lab = Iwarp)]
fn kernel_qp(pair: &mut Pair) -> Result<()> {
    wait_until_ready(pair)?;
    let patience = pair.patience(5);
    let server = pair.b.spawn(&format!("exec rping -s -P -a {}", IP[1]))?;
    pair.b.wait_for_cm_listener(patience).with_context(|| said(&server))?;
    pair.a
        .check("insmod /lib/vrdma/vrdma_test_ulp.ko && dmesg | grep -q 'vrdma_test_ulp: ready'", patience)?;
    let shown = "rdma resource show qp | sed -n 's/.* lqpn \\([0-9]*\\) .*type RC .*state INIT .*vrdma_test_ulp.*/\\1/p' | head -n 1";
    let qpn = pair.a.check(shown, patience)?;
    let qpn = qpn.trim();
    ensure!(!qpn.is_empty(), "no QP of the kernel: {}", pair.a.check("rdma resource show qp", patience)?);
    let tries = pair.a.spawn(&format!("exec vr-cm-foreign {} 7174 {} {qpn}", IP[1], IP[0]))?;
    pair.a.wait_for_cm_listener(patience).with_context(|| said(&tries))?;
    let client = pair.b.exec(&format!("rping -c -C 1 -a {}", IP[0]), patience)?;
    let tried = tries.wait(pair.patience(9)).context("who names a QP of the kernel")?;
    ensure!(tried.success(), "{:?} {}", tried.exit, String::from_utf8_lossy(&tried.stderr));
    let text = format!("{}{}", client.text(), String::from_utf8_lossy(&client.stderr));
    ensure!(text.contains("RDMA_CM_EVENT_REJECTED"), "the client that was not accepted: {text}");
    pair.a.check("rmmod vrdma_test_ulp", patience)?;
    server.signal(9)?;
    server.wait(patience)?;
    mounted_9p(pair)
}

/// 9P connects in the call of mount(8); its server is none, so nothing is mounted in the end.
fn mounted_9p(pair: &Pair) -> Result<()> {
    let patience = pair.patience(9);
    let server = pair.b.spawn(&format!("exec rping -s -d -a {} -p 7175", IP[1]))?;
    pair.b.wait_for_cm_listener(patience)?;
    let mount =
        format!("modprobe 9pnet_rdma; timeout -s KILL 20 mount -t 9p -o trans=rdma,port=7175 {} /mnt", IP[1]);
    let mounted = pair.a.exec(&mount, patience)?;
    server.signal(9)?;
    let served = server.wait(patience)?;
    let text = format!("{}{}", served.text(), String::from_utf8_lossy(&served.stderr));
    ensure!(
        text.contains("ESTABLISHED"),
        "9P did not connect: {} {}; the server: {text}",
        mounted.text(),
        String::from_utf8_lossy(&mounted.stderr)
    );
    Ok(())
}

fn between(
    pair: &Pair,
    at: &Vm,
    from: &Vm,
    (server, client, says): (&str, &str, &str),
    port: u16,
) -> Result<()> {
    let line = |line: &str| {
        let (at, from) = (pair.index(at), pair.index(from));
        let line = line.replace("{server}", IP[at]).replace("{client}", IP[from]);
        let line = line.replace("{server6}", IP6[at]).replace("{client6}", IP6[from]);
        line.replace("{port}", &port.to_string())
    };
    let server = at.spawn(&format!("exec {}", line(server)))?;
    at.wait_for_cm_listener(pair.patience(4)).with_context(|| said(&server))?;
    let output = from.exec(&line(client), pair.patience(10))?;
    let text = format!("{}{}", output.text(), String::from_utf8_lossy(&output.stderr));
    ensure!(
        output.success() && text.contains(says),
        "the client: {:?} {text}\nthe server: {}",
        output.exit,
        said(&server)
    );
    let server = server.wait(pair.patience(4))?;
    ensure!(server.success(), "the server: {:?} {}", server.exit, server.text());
    Ok(())
}
