//! The figures of lossy and congested links, and their targets.

/// A figure.
#[derive(Clone, Copy, Debug)]
pub struct LossRow {
    /// Its name.
    pub name: &'static str,
    /// LossFigure it measures.
    pub what: LossFigure,
    /// The faults, as the daemon's option `--faults` has them.
    pub faults: &'static str,
    /// The target.
    pub target: &'static str,
}

/// The measurement of a row.
#[derive(Clone, Copy, Debug)]
pub enum LossFigure {
    /// The bandwidth of a command with faults, beside that without, or beside that of a bottleneck.
    Bandwidth(&'static str),
    /// The latencies of a command with faults, beside those without.
    Latency(&'static str),
    /// LossFigure one planned loss costs an operation of a command, of which there is one at a
    /// time. One operation in this number has a loss.
    OneLoss(&'static str, u32),
    /// Processor time of the first daemon while this number of QPs wait for a peer that is not
    /// there.
    Silence(u32),
}

const fn bandwidth(
    name: &'static str,
    command: &'static str,
    faults: &'static str,
    target: &'static str,
) -> LossRow {
    LossRow { name, what: LossFigure::Bandwidth(command), faults, target }
}

const WRITE: &str = "write bw -e -t 32 -Q 8";
const READ: &str = "read bw -e -t 32 -Q 8";
const SEND: &str = "send bw -e -t 32 -Q 8";
const SHORT: &str = "write lat -e";
const THREE_PER_MILLE: &str = "loss=0.001,reorder=0.001,dup=0.001";
const THREE_PERCENT: &str = "loss=0.01,reorder=0.01,dup=0.01";
const LOST_TIME: &str = "99 % <= 3 RTT + 300 us";

/// All rows, in the order of the table.
pub const ROWS: &[LossRow] = &[
    bandwidth("64 KiB WRITE, no faults", WRITE, "", "1"),
    bandwidth("64 KiB WRITE, 0.1 % lost, reordered, doubled", WRITE, THREE_PER_MILLE, ">= 0.95"),
    bandwidth("64 KiB WRITE, 1 % lost, reordered, doubled", WRITE, THREE_PERCENT, ">= 0.75"),
    bandwidth("64 KiB WRITE, 1 % lost", WRITE, "loss=0.01", ""),
    bandwidth("64 KiB WRITE, 1 % reordered", WRITE, "reorder=0.01", ">= 0.95"),
    bandwidth("64 KiB READ, 0.1 % lost, reordered, doubled", READ, THREE_PER_MILLE, ">= 0.9"),
    bandwidth("64 KiB READ, 1 % lost, reordered, doubled", READ, THREE_PERCENT, ">= 0.6"),
    bandwidth("64 KiB READ, 1 % reordered", READ, "reorder=0.01", ">= 0.95"),
    bandwidth("64 KiB SEND, 0.1 % lost, reordered, doubled", SEND, THREE_PER_MILLE, ">= 0.9"),
    bandwidth("64 KiB SEND, 1 % lost, reordered, doubled", SEND, THREE_PERCENT, ">= 0.6"),
    LossRow {
        name: "8 B WRITE, 1 % lost",
        what: LossFigure::Latency(SHORT),
        faults: "loss=0.01",
        target: "p99 <= 5 of without and 1 ms, p99.9 <= 5 ms",
    },
    LossRow {
        name: "8 B WRITE, 1 % lost, reordered, doubled",
        what: LossFigure::Latency(SHORT),
        faults: THREE_PERCENT,
        target: "",
    },
    LossRow {
        name: "16 KiB WRITE, its last packet lost",
        what: LossFigure::OneLoss("write lat -e -s 16384", 20),
        faults: "drop=tail/20",
        target: LOST_TIME,
    },
    LossRow {
        name: "16 KiB WRITE, a packet in its middle lost",
        what: LossFigure::OneLoss("write lat -e -s 16384", 20),
        faults: "drop=middle/60",
        target: LOST_TIME,
    },
    LossRow {
        name: "16 KiB WRITE, its ACK lost",
        what: LossFigure::OneLoss("write lat -e -s 16384", 20),
        faults: "drop=ack/20",
        target: LOST_TIME,
    },
    LossRow {
        name: "16 KiB WRITE, a packet and the NAK lost",
        what: LossFigure::OneLoss("write lat -e -s 16384", 20),
        faults: "drop=middle/60,drop=nak/1",
        target: LOST_TIME,
    },
    LossRow {
        name: "16 KiB WRITE, a packet and its retransmission lost",
        what: LossFigure::OneLoss("write lat -e -s 16384", 20),
        faults: "drop=middle/60,drop=retransmission/2",
        target: LOST_TIME,
    },
    LossRow {
        name: "64 KiB READ, its last response lost",
        what: LossFigure::OneLoss("read lat -e -s 65536", 20),
        faults: "drop=response/20",
        target: LOST_TIME,
    },
    LossRow {
        name: "10,000 QPs that nobody answers",
        what: LossFigure::Silence(10_000),
        faults: "",
        target: "<= 1 %",
    },
    bandwidth(
        "64 KiB WRITE on 4 QPs through 1 Gb/s",
        "write bw -e -t 32 -q 4",
        "rate=125000000,queue=262144,ecn_min=30000,ecn_max=120000",
        ">= 0.9",
    ),
    bandwidth(
        "64 KiB WRITE on 32 QPs through 1 Gb/s",
        "write bw -e -t 128 -q 32",
        "rate=125000000,queue=262144,ecn_min=30000,ecn_max=120000",
        ">= 0.9",
    ),
];
