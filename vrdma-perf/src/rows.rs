//! The standard set: all figures, their references and their targets.

use crate::args::PortKind;

/// A figure of the report.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub what: What,
    /// The target for the ratio or the value.
    pub target: &'static str,
    /// The curve that it is a point of, and the position.
    pub point: Option<(Curve, u32)>,
}

/// The measurement of a row.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A command of this program, beside a reference.
    Command(&'static str, With),
    /// WRITEs of this size in bytes over a port.
    Wire(PortKind, u32),
    /// WRITEs by iWARP over a port with an MTU of 9000. The numbers are bytes, connections, and
    /// outstanding requests on each.
    Iwarp(PortKind, u32, u32, u32),
    /// WRITEs by iWARP over net_memif with an MTU of 9000, between hosts with a processor each. The
    /// numbers are bytes, connections, and outstanding requests on each.
    IwarpApart(u32, u32, u32),
    /// WRITEs of 64 KiB by iWARP over a veth. Gives the driver at both ends, the link's MTU, and
    /// whether each host has its own processor.
    IwarpVeth(PortKind, u16, bool),
    /// WRITEs of 64 KiB over net_ring, by iWARP on one connection with an MTU of 9000. Gives the
    /// number of further connections whose peers take nothing.
    Stalled(u32),
    /// The time from the repair of a gap to the last WRITE, by iWARP over net_ring with an MTU of
    /// 9000. Gives the number of frames that arrived beyond the gap.
    Gap(u32),
    /// Processor time of a sleeping daemon with this number of connected QPs.
    Processor(u32),
    /// Bytes of memory for each of this number of connected QPs. The flag is true for peers on
    /// other hosts.
    Memory(u32, bool),
}

/// The reference that a command stands beside.
#[derive(Clone, Copy, Debug)]
pub enum With {
    /// The best that the machine can do.
    Limit,
    /// Another command, between the same guests, or two of them.
    Command(&'static str),
    /// Another command, through a second daemon of the same kind.
    Apart(&'static str),
    /// The median of the same measurement, which is a 99.9th percentile.
    Median,
    /// The 99.9th percentile of the ring floor, for a measurement of a 99.9th percentile.
    FloorTail,
    /// UCX's put operations over shared memory.
    Ucx,
}

/// A curve that several rows form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// By the number of active QPs.
    Qps,
    /// By the number of regions.
    Regions,
    /// By the number of guests.
    Guests,
}

impl Curve {
    /// All curves.
    pub const ALL: [Curve; 3] = [Curve::Qps, Curve::Regions, Curve::Guests];

    /// Returns the name of its file, its title, and the label of its axis.
    pub fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Curve::Qps => ("qps", "8 B WRITE rate by active QPs, in random order", "active QPs"),
            Curve::Regions => ("regions", "8 B WRITE rate by regions named, in random order", "regions"),
            Curve::Guests => ("guests", "8 B WRITE rate by guests", "guests"),
        }
    }
}

const fn row(name: &'static str, command: &'static str, with: With, target: &'static str) -> Row {
    Row { name, what: What::Command(command, with), target, point: None }
}

const fn other(name: &'static str, what: What, target: &'static str) -> Row {
    Row { name, what, target, point: None }
}

const fn point(
    name: &'static str,
    command: &'static str,
    target: &'static str,
    curve: Curve,
    at: u32,
) -> Row {
    Row { name, what: What::Command(command, WRITE), target, point: Some((curve, at)) }
}

const WRITE: With = With::Command("write rate");

/// All rows, in the order of the report.
pub const ROWS: &[Row] = &[
    row("8 B WRITE, post to CQE, one outstanding", "write lat", With::Limit, "<= 1.3"),
    row("8 B WRITE, post to CQE, 99.9th percentile", "write lat", With::Median, "<= 3"),
    row("8 B WRITE, 99.9th percentile, beside the floor's", "write lat", With::FloorTail, ""),
    row("8 B WRITE beside UCX's put: latency", "write lat", With::Ucx, ""),
    row("8 B WRITE rate, one QP", "write rate", With::Limit, ">= 0.6"),
    row("8 B WRITE rate beside UCX's put", "write rate", With::Ucx, ">= 1"),
    row("8 B inline WRITE rate", "write rate -I 8", WRITE, ""),
    row("8 B SEND rate", "send rate", WRITE, ">= 0.7"),
    row("8 B SEND rate, shared receives", "send rate --srq", WRITE, ">= 0.7"),
    row("8 B WRITE with immediate, rate", "write rate --imm", WRITE, ">= 0.7"),
    row("FETCH_ADD rate", "atomic rate", WRITE, ">= 0.8"),
    row("CMP_SWAP rate", "atomic rate -A CMP_AND_SWAP", WRITE, ">= 0.8"),
    row("ATOMIC WRITE rate", "atomic rate -A WRITE", WRITE, ">= 0.7"),
    row("8 B WRITE rate, window of type 1", "write rate --window 1", WRITE, ">= 0.7"),
    row("8 B WRITE rate, window of type 2B", "write rate --window 2B", WRITE, ">= 0.7"),
    row("BIND_MW and LOCAL_INV in turn, rate", "bind rate", WRITE, ">= 0.7"),
    row("8 B READ rate", "read rate", WRITE, ""),
    row("8 B UC WRITE rate", "write rate -c UC", WRITE, ""),
    row("8 B UD SEND rate", "send rate -c UD", WRITE, ""),
    row("8 B XRC SEND rate", "send rate -c XRC", WRITE, ""),
    point("8 B WRITE rate, 10 QPs in random order", "write rate -q 10", "", Curve::Qps, 10),
    point("8 B WRITE rate, 100 QPs in random order", "write rate -q 100", "", Curve::Qps, 100),
    point("8 B WRITE rate, 1,000 QPs in random order", "write rate -q 1000", "", Curve::Qps, 1000),
    point("8 B WRITE rate, 10,000 QPs in random order", "write rate -q 10000", ">= 0.8", Curve::Qps, 10_000),
    row(
        "8 B WRITE rate beside 10,000 idle QPs",
        "write rate --idle 10000",
        With::Apart("write rate"),
        ">= 0.98",
    ),
    point(
        "8 B WRITE rate, 1,000 regions in random order",
        "write rate --regions 1000",
        "",
        Curve::Regions,
        1000,
    ),
    point(
        "8 B WRITE rate, 10,000 regions in random order",
        "write rate --regions 10000",
        "",
        Curve::Regions,
        10_000,
    ),
    point(
        "8 B WRITE rate, 100,000 regions in random order",
        "write rate --regions 100000",
        "",
        Curve::Regions,
        100_000,
    ),
    point("8 B WRITE rate, 1 guest", "write rate --guests 1", "", Curve::Guests, 1),
    point("8 B WRITE rate, 4 guests", "write rate --guests 4", "", Curve::Guests, 4),
    point("8 B WRITE rate, 8 guests", "write rate --guests 8", "", Curve::Guests, 8),
    point("8 B WRITE rate, 16 guests", "write rate --guests 16", "", Curve::Guests, 16),
    point("8 B WRITE rate, 64 guests", "write rate --guests 64", "", Curve::Guests, 64),
    row("64 KiB WRITE, hot", "write bw", With::Limit, ">= 0.95"),
    row("1 MiB WRITE, hot", "write bw -s 1048576", With::Limit, ">= 0.95"),
    row("1 MiB WRITE over 256 MiB, cold", "write bw -s 1048576 --cold", With::Limit, ">= 0.95"),
    row("64 KiB READ, hot", "read bw", With::Limit, ">= 0.95"),
    row("1 MiB READ, hot", "read bw -s 1048576", With::Limit, ">= 0.95"),
    row("64 KiB SEND, hot", "send bw", With::Limit, ">= 0.95"),
    row("1 MiB SEND, hot", "send bw -s 1048576", With::Limit, ">= 0.95"),
    row("8 B iWARP SEND, no TCP, beside RoCE: latency", "send lat --iwarp", With::Apart("send lat"), ""),
    row("8 B iWARP READ, no TCP, beside RoCE: latency", "read lat --iwarp", With::Apart("read lat"), ""),
    row("8 B iWARP WRITE, no TCP, beside RoCE: rate", "write rate --iwarp", With::Apart("write rate"), ""),
    row("64 KiB iWARP WRITE, no TCP, beside RoCE", "write bw --iwarp", With::Apart("write bw"), ""),
    row(
        "8 B iWARP SEND, the host's TCP, beside none: latency",
        "send lat --iwarp --kernel-tcp",
        With::Apart("send lat --iwarp"),
        "",
    ),
    row(
        "8 B iWARP SEND, the host's TCP, beside none: rate",
        "send rate --iwarp --kernel-tcp",
        With::Apart("send rate --iwarp"),
        "",
    ),
    row(
        "8 B iWARP SEND, the host's TCP, beside none: rate on 64 connections",
        "send rate --iwarp --kernel-tcp -q 64",
        With::Apart("send rate --iwarp -q 64"),
        "",
    ),
    row(
        "4 KiB iWARP SEND, the host's TCP, beside none",
        "send bw -s 4096 --iwarp --kernel-tcp",
        With::Apart("send bw -s 4096 --iwarp"),
        "",
    ),
    row(
        "64 KiB iWARP SEND, the host's TCP, beside none",
        "send bw --iwarp --kernel-tcp",
        With::Apart("send bw --iwarp"),
        "",
    ),
    row(
        "64 KiB iWARP SEND, the host's TCP, beside none, 64 connections",
        "send bw --iwarp --kernel-tcp -q 64",
        With::Apart("send bw --iwarp -q 64"),
        "",
    ),
    other("64 KiB WRITE over net_memif", What::Wire(PortKind::Memif, 65536), ">= 0.85"),
    other("64 B WRITEs over net_memif, packets", What::Wire(PortKind::Memif, 64), ">= 0.6"),
    other(
        "iWARP WRITE of 64 KiB over net_memif, beside RoCE",
        What::Iwarp(PortKind::Memif, 65536, 1, 128),
        ">= 0.8",
    ),
    other(
        "iWARP WRITE of 64 KiB over net_ring, beside RoCE",
        What::Iwarp(PortKind::Ring, 65536, 1, 128),
        ">= 0.8",
    ),
    other(
        "iWARP WRITE of 4 KiB, 16 outstanding, beside RoCE",
        What::Iwarp(PortKind::Ring, 4096, 1, 16),
        ">= 0.8",
    ),
    other(
        "iWARP WRITE of 64 KiB, 64 connections beside one",
        What::Iwarp(PortKind::Ring, 65536, 64, 2),
        ">= 0.85",
    ),
    other(
        "iWARP WRITE of 64 KiB, 1,000 connections beside one",
        What::Iwarp(PortKind::Ring, 65536, 1000, 2),
        ">= 0.8",
    ),
    other(
        "iWARP WRITE of 64 KiB over net_memif, a processor a host",
        What::IwarpApart(65536, 1, 128),
        "5 GB/s",
    ),
    other(
        "iWARP WRITE of 4 KiB over net_memif, a processor a host",
        What::IwarpApart(4096, 1, 128),
        "> 2.52 GB/s",
    ),
    other(
        "iWARP WRITE of 64 KiB on 64 connections over net_memif, a processor a host",
        What::IwarpApart(65536, 64, 2),
        "> 2.09 GB/s",
    ),
    other("iWARP WRITE of 64 KiB, with 1,000 stalled peers", What::Stalled(1000), ">= 0.95"),
    other("iWARP, from a gap's repair to the last WRITE, 64 frames placed beyond it", What::Gap(64), ""),
    other("64 KiB WRITE over net_af_packet, veth", What::Wire(PortKind::AfPacket, 65536), ">= 0.95"),
    other(
        "iWARP WRITE of 64 KiB over net_packet, veth, MTU of Ethernet",
        What::IwarpVeth(PortKind::Packet, 1500, false),
        ">= 0.9",
    ),
    other(
        "iWARP WRITE of 64 KiB over net_packet, veth, jumbo frames",
        What::IwarpVeth(PortKind::Packet, 9000, false),
        ">= 0.9",
    ),
    other(
        "iWARP WRITE of 64 KiB over net_packet, veth, MTU of Ethernet, a processor a host",
        What::IwarpVeth(PortKind::Packet, 1500, true),
        ">= 0.9",
    ),
    other(
        "iWARP WRITE of 64 KiB over net_packet, veth, jumbo frames, a processor a host",
        What::IwarpVeth(PortKind::Packet, 9000, true),
        ">= 0.9",
    ),
    other(
        "iWARP WRITE of 64 KiB over net_af_packet, veth, MTU of Ethernet",
        What::IwarpVeth(PortKind::AfPacket, 1500, false),
        "",
    ),
    other(
        "iWARP WRITE of 64 KiB over net_af_packet, veth, jumbo frames",
        What::IwarpVeth(PortKind::AfPacket, 9000, false),
        "",
    ),
    other("64 KiB WRITE over net_af_xdp, veth", What::Wire(PortKind::AfXdp, 65536), ">= 0.95"),
    row(
        "8 B WRITE, both asleep: kick and interrupt",
        "write lat -e --pause 200 --poll-us 0",
        With::Limit,
        "<= 1.3",
    ),
    other("idle daemon, 1,000 connected QPs", What::Processor(1000), "< 0.2 % of a processor"),
    other("idle connected QP, same host", What::Memory(10_000, false), "< 512 B"),
    other("idle connected QP, wire", What::Memory(10_000, true), "< 1024 B"),
];
