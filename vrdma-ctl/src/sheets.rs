//! Makes the tables of guests, queue pairs, regions, workers and ports.

use crate::sheet::{Cell, Sheet};
use serde_json::{Map, Value};
use vrdma_admin::guest::{FunctionKind, Guest, GuestFunction};
use vrdma_admin::mr::Mr;
use vrdma_admin::port::Port;
use vrdma_admin::qp::Qp;
use vrdma_admin::worker::Worker;

/// Returns the word by which the interface names a value of an enumeration.
pub fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Makes the table of guests.
pub fn guests(guests: &[Guest]) -> Sheet {
    let mut sheet = Sheet::new(&["GUEST", "MAC", "WORKER", "RDMA", "ETHERNET", "QPS", "MRS", "PENDING"]);
    for guest in guests {
        let count = |name| Cell::maybe(number(guest.objects.as_ref(), name));
        let find = |is_ethernet| {
            guest.functions.iter().find(|each| (each.kind == FunctionKind::Ethernet) == is_ethernet)
        };
        sheet.add([
            Cell::text(&guest.name),
            Cell::text(&guest.mac),
            Cell::count(guest.worker),
            front_end(find(false)),
            front_end(find(true)),
            count("qps"),
            count("mrs"),
            count("pending_requests"),
        ]);
    }
    sheet
}

fn front_end(function: Option<&GuestFunction>) -> Cell {
    match function {
        None => Cell::Unknown,
        Some(GuestFunction { connected: false, .. }) => Cell::text("waits"),
        Some(GuestFunction { pid: Some(pid), .. }) => Cell::text(format!("pid {pid}")),
        Some(_) => Cell::text("connected"),
    }
}

/// Returns a counter by name, if it is there.
pub fn number(counters: Option<&Map<String, Value>>, name: &str) -> Option<u64> {
    counters?.get(name)?.as_u64()
}

/// Makes the table of queue pairs.
pub fn qps(qps: &[Qp]) -> Sheet {
    let columns = ["QPN", "SERVICE", "STATE", "PROCESS", "WAY", "PEER", "PEER QPN", "SENDS", "RECEIVES"];
    let mut sheet = Sheet::new(&columns);
    for qp in qps {
        sheet.add([
            Cell::count(qp.qpn.into()),
            Cell::text(word(qp.service)),
            Cell::text(word(qp.state)),
            Cell::count(qp.context.into()),
            qp.transport.map_or(Cell::Unknown, |way| Cell::text(word(way))),
            qp.peer_gid.as_ref().map_or(Cell::Unknown, Cell::text),
            Cell::maybe(qp.peer_qpn.map(u64::from)),
            Cell::count(qp.sends.into()),
            Cell::count(qp.receives.into()),
        ]);
    }
    sheet
}

/// Makes the table of memory regions.
pub fn mrs(mrs: &[Mr]) -> Sheet {
    let mut sheet = Sheet::new(&["KEY", "PROCESS", "ADDRESS", "BYTES", "RIGHTS"]);
    for mr in mrs {
        sheet.add([
            Cell::text(mr.key.map_or("-".to_owned(), |key| format!("{key:#010x}"))),
            Cell::count(mr.context.into()),
            Cell::text(&mr.address),
            mr.length.map_or(Cell::text("all"), Cell::count),
            Cell::text(rights(mr)),
        ]);
    }
    sheet
}

fn rights(mr: &Mr) -> String {
    let fast = mr.is_fast.then_some("(fast)").into_iter();
    let all: Vec<&str> = mr.access.iter().map(String::as_str).chain(fast).collect();
    if all.is_empty() { "local_read".into() } else { all.join(",") }
}

/// Makes the table of workers.
pub fn workers(workers: &[Worker]) -> Sheet {
    let columns = [
        "WORKER",
        "CPU",
        "BUSY S",
        "IDLE S",
        "ASLEEP S",
        "LONGEST MS",
        "SLEEPS",
        "TURNS",
        "REQUESTS",
        "GUESTS",
    ];
    let mut sheet = Sheet::new(&columns);
    for worker in workers {
        let seconds = |time: Option<u64>| {
            time.map_or(Cell::Unknown, |us| Cell::Number(us as f64, format!("{:.1}", us as f64 / 1e6)))
        };
        let guests = worker.guests.join(",");
        sheet.add([
            Cell::count(worker.number),
            Cell::maybe(worker.processor),
            seconds(worker.busy),
            seconds(worker.idle),
            seconds(worker.asleep),
            milliseconds(worker.longest_turn),
            Cell::maybe(worker.sleeps),
            Cell::maybe(worker.busy_turns.zip(worker.idle_turns).map(|(busy, idle)| busy + idle)),
            Cell::maybe(worker.requests),
            Cell::text(if worker.stuck { format!("STUCK: {guests}") } else { guests }),
        ]);
    }
    sheet
}

/// Makes a cell of a time in microseconds, shown in milliseconds.
pub fn milliseconds(time: Option<u64>) -> Cell {
    time.map_or(Cell::Unknown, |us| Cell::Number(us as f64, format!("{:.2}", us as f64 / 1e3)))
}

/// Makes the table of ports.
pub fn ports(ports: &[Port]) -> Sheet {
    let columns = ["PORT", "KIND", "STATE", "MTU", "FRAMES IN", "FRAMES OUT", "BYTES IN", "BYTES OUT"];
    let mut sheet = Sheet::new(&columns);
    for port in ports {
        let [frames_in, frames_out, bytes_in, bytes_out] = traffic(port).map(Cell::maybe);
        sheet.add([
            Cell::text(&port.name),
            Cell::text(word(port.kind)),
            Cell::text(if port.up { "up" } else { "down" }),
            Cell::maybe(port.mtu),
            frames_in,
            frames_out,
            bytes_in,
            bytes_out,
        ]);
    }
    sheet
}

/// Returns frames into the switch and out of it, then bytes. A guest sends into the switch.
pub fn traffic(port: &Port) -> [Option<u64>; 4] {
    let names = match port.kind {
        vrdma_admin::port::PortKind::Uplink => {
            ["frames_received", "frames_sent", "bytes_received", "bytes_sent"]
        }
        vrdma_admin::port::PortKind::Guest => ["tx_frames", "rx_frames", "tx_bytes", "rx_bytes"],
    };
    names.map(|name| number(port.counters.as_ref(), name))
}
