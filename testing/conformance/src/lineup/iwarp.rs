//! The test matrix of iWARP devices: programs that connect by rdma_cm, without datagrams.

use anyhow::{Context, Result};
use vrdma_lab::device::Device;
use vrdma_lab::vm::addresses::{IP, IP6, mac};
use vrdma_lab::vm::{Pair, Tcp};

use super::{IpFamily, Ready, Row, Sizes};

/// Gives the VMs addresses of both families, their devices, and neighbour entries if necessary.
pub fn prepare(pair: &Pair) -> Result<()> {
    let patience = pair.patience(6);
    for (index, vm) in [&pair.a, &pair.b].into_iter().enumerate() {
        vm.add_ipv6(IP6[index], patience)?;
        let device = pair.device(vm);
        if device == Device::Vrdma && pair.devices().contains(&Device::Siw) && pair.tcp() == Some(Tcp::Kernel)
        {
            // Only the host's TCP reaches the other VM, the VM's Ethernet device does not. But
            // rdma_cm needs a route with a neighbour.
            let (other, mac) = (1 - index, mac(1 - index));
            for address in [IP[other], IP6[other]] {
                let neighbour = format!("ip neighbour replace {address} lladdr {mac} dev eth0 nud permanent");
                vm.check(&neighbour, patience)?;
            }
        }
        device.prepare_in(vm, patience)?;
        let active =
            format!("until rdma link show {}/1 | grep -q 'state ACTIVE'; do sleep 0.1; done", device.name());
        vm.check(&active, patience)
            .with_context(|| format!("the port of {} in VM {} is not up", device.name(), vm.name()))?;
    }
    Ok(())
}

/// Returns the rows for servers that have this device.
pub fn rows(server: Device, family: IpFamily, sizes: Sizes) -> Vec<Row> {
    let rping = |size: u32, count: u32| {
        let options = format!("-v -C {count} -S {size} -a @a -p @p");
        cm(
            &format!("rping, {size} bytes"),
            &format!("rping -s {options}"),
            &format!("rping -c {options} -I @o"),
            &format!("rdma-ping-{}:", count - 1),
        )
    };
    let mut rows = vec![
        rping(64, 20),
        rping(60_000, 5),
        cm("ucmatose", "ucmatose -c 4 -b @a -p @p", "ucmatose -c 4 -s @a -b @o -p @p", "return status 0"),
        perftest(family, "send latency", "ib_send_lat -n 100 -s 64", 64),
        perftest(family, "write latency", "ib_write_lat -n 1000 -s 8", 8),
    ];
    for verb in ["write", "read", "send"] {
        rows.push(match sizes {
            Sizes::All => {
                let command = format!("ib_{verb}_bw -a -n 5");
                perftest(family, &format!("{verb}, sizes to 8 MiB"), &command, 8_388_608).takes(12)
            }
            Sizes::One => perftest(family, verb, &format!("ib_{verb}_bw -n 50 -s 65536"), 65_536),
        });
    }
    // rstream's server ends the connection after its last SEND. siw then resets TCP if it has not
    // read all that came from the peer, e.g. credit updates. What siw had not sent yet is lost, and
    // rstream waits for it forever.
    if server != Device::Siw {
        let stream = "rstream -p @p -S 65536 -I 20 -C 5 -T v";
        rows.push(
            cm("rstream", &format!("{stream} -b @a"), &format!("{stream} -s @a"), "custom    64k").takes(12),
        );
    }
    rows
}

fn cm(what: &str, server: &str, client: &str, expected: &str) -> Row {
    Row::new(what, Ready::Cm, server, client, expected)
}

fn perftest(family: IpFamily, what: &str, command: &str, last: u32) -> Row {
    let v6 = if family == IpFamily::V6 { " --ipv6-addr" } else { "" };
    // `-F`: ignore a CPU frequency that cannot be read.
    let line = format!("{command} -R -F -d @d -p @p{v6}");
    cm(what, &line, &format!("{line} @a"), &format!(" {last} "))
}
