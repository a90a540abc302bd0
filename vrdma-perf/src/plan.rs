//! The plan of a measurement, and the checks of its arguments.

use crate::args::{Atomic, Command, Connection, Figure, LoadArgs, Measure, WindowType};
use crate::host::Transport;
use anyhow::{Result, bail, ensure};
use std::time::Duration;
use vrdma_backend::config::Tcp;
use vrdma_guest::memory::PAGE;

/// Size in bytes of the GRH before a datagram in its receive.
pub const GRH: u32 = 40;
/// Size in bytes of the buffer with `--cold`.
const COLD: u64 = 256 << 20;
/// Size of a cache line in bytes. Messages start at a line.
const LINE: u64 = 64;
const ATOMIC_SIZE: u32 = 8;
const MAX_SIZE: u32 = 8 << 20;
const MAX_DATAGRAM: u32 = 4096;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the operation of that name")]
pub enum Operation {
    Write,
    Read,
    Send,
    Atomic(Atomic),
    Bind,
}

impl Operation {
    /// Returns the operation of a command, if the command measures one.
    pub fn of(command: &Command) -> Option<(Operation, &Measure)> {
        match command {
            Command::Write(args) => Some((Operation::Write, args)),
            Command::Read(args) => Some((Operation::Read, args)),
            Command::Send(args) => Some((Operation::Send, args)),
            Command::Atomic(args) => {
                Some((Operation::Atomic(args.load.atomic.unwrap_or(Atomic::FetchAndAdd)), args))
            }
            Command::Bind(args) => Some((Operation::Bind, args)),
            _ => None,
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Write => "WRITE",
            Operation::Read => "READ",
            Operation::Send => "SEND",
            Operation::Atomic(Atomic::FetchAndAdd) => "FETCH_ADD",
            Operation::Atomic(Atomic::CmpAndSwap) => "CMP_SWAP",
            Operation::Atomic(Atomic::Write) => "ATOMIC WRITE",
            Operation::Bind => "BIND_MW and LOCAL_INV",
        }
    }
}

/// The checked description of what is posted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The operation.
    pub operation: Operation,
    /// Size of a message in bytes.
    pub size: u32,
    /// Transport service.
    pub connection: Connection,
    /// Transport of the connections.
    pub transport: Transport,
    /// Number of QPs in each direction.
    pub qps: u32,
    /// Number of outstanding requests in each direction.
    pub depth: u32,
    /// Whether messages are posted inline.
    pub inlined: bool,
    /// Whether the thread sleeps until an event.
    pub events: bool,
    /// Whether both directions are used at once.
    pub bidirectional: bool,
    /// Number of guests.
    pub guests: u8,
    /// Whether receives come from a shared receive queue.
    pub srq: bool,
    /// One request in this number has a completion.
    pub cq_mod: u32,
    /// Whether WRITEs have immediate data.
    pub imm: bool,
    /// The type of the memory window that names remote memory, if any.
    pub window: Option<WindowType>,
    /// Number of regions that name remote memory, in turn.
    pub regions: u32,
    /// Number of further QPs that are connected and idle.
    pub idle: u32,
    /// Time between two operations whose latency is measured.
    pub pause: Duration,
    /// Size in bytes of each buffer, through which messages go.
    pub span: u64,
    /// Distance between successive messages in bytes. 0 if all have the same address.
    pub stride: u64,
}

impl Plan {
    /// Makes a plan for each requested size.
    ///
    /// # Errors
    /// The arguments are invalid.
    pub fn all(operation: Operation, figure: Figure, args: &LoadArgs) -> Result<Vec<Plan>> {
        let most = if args.connection == Connection::Ud { MAX_DATAGRAM } else { MAX_SIZE };
        let sizes = match (operation, args.all, args.size) {
            (Operation::Atomic(_) | Operation::Bind, false, None | Some(ATOMIC_SIZE)) => vec![ATOMIC_SIZE],
            (Operation::Atomic(_), ..) => bail!("atomic operations have {ATOMIC_SIZE} bytes"),
            (Operation::Bind, ..) => bail!("BIND_MW and LOCAL_INV carry no bytes"),
            (_, true, _) => {
                (1..=MAX_SIZE.ilog2()).map(|power| 1 << power).filter(|size| *size <= most).collect()
            }
            (_, false, Some(size)) => vec![size],
            (_, false, None) if figure == Figure::Bw => vec![65536.min(most)],
            (_, false, None) => vec![8],
        };
        sizes.into_iter().map(|size| Plan::new(operation, figure, args, size)).collect()
    }

    fn new(operation: Operation, figure: Figure, args: &LoadArgs, size: u32) -> Result<Plan> {
        let connection = args.connection;
        let sends = operation == Operation::Send;
        match connection {
            Connection::Ud => ensure!(sends, "UD has SEND alone"),
            Connection::Uc => {
                ensure!(
                    matches!(operation, Operation::Write | Operation::Send),
                    "UC has WRITE and SEND alone"
                );
            }
            Connection::Rc | Connection::Xrc => {}
        }
        let most = if connection == Connection::Ud { MAX_DATAGRAM } else { MAX_SIZE };
        ensure!(size <= most, "messages have {most} bytes at most");
        let imm = args.imm && operation == Operation::Write;
        ensure!(imm == args.imm, "--imm is for WRITE");
        ensure!(
            !args.srq || sends || imm,
            "--srq is for SEND and WRITE with immediate: nothing else takes receives"
        );
        Plan::check_windows(operation, args)?;
        Plan::check_iwarp(operation, args)?;
        Plan::check_use(operation, figure, args)?;
        let (depth, cq_mod) = match figure {
            Figure::Lat => (1, 1),
            Figure::Bw | Figure::Rate => (args.tx_depth, args.cq_mod),
        };
        ensure!(
            u64::from(cq_mod) * u64::from(args.qp) <= u64::from(depth) || cq_mod == 1,
            "with --cq-mod {cq_mod} on {} QPs no request would have a completion: --tx-depth has to be {} at least",
            args.qp,
            cq_mod * args.qp
        );
        let one = u64::from(size + GRH).next_multiple_of(LINE);
        let span = if args.cold { COLD.max(one) } else { one }.next_multiple_of(PAGE);
        Ok(Plan {
            operation,
            size,
            connection,
            transport: match (args.iwarp, args.kernel_tcp) {
                (false, _) => Transport::Roce,
                (true, false) => Transport::Iwarp(Tcp::Own),
                (true, true) => Transport::Iwarp(Tcp::Kernel),
            },
            qps: args.qp,
            depth,
            imm,
            window: args.window,
            regions: args.regions,
            idle: args.idle,
            pause: Duration::from_micros(args.pause.into()),
            inlined: size <= args.inline_size && size > 0,
            events: args.events,
            bidirectional: args.bidirectional,
            guests: args.guests,
            srq: args.srq || connection == Connection::Xrc,
            cq_mod,
            span,
            stride: if args.cold { one } else { 0 },
        })
    }

    /// Checks windows and regions. A window is bound on one QP of RC.
    fn check_windows(operation: Operation, args: &LoadArgs) -> Result<()> {
        let alone = args.qp == 1 && args.connection == Connection::Rc;
        ensure!(args.window.is_none() || alone, "--window wants one QP of RC");
        ensure!(
            args.window.is_none() || !matches!(operation, Operation::Send | Operation::Bind),
            "--window is for what names remote memory"
        );
        ensure!(operation != Operation::Bind || alone, "windows are bound on one QP of RC");
        ensure!(
            args.regions == 1
                || !matches!(operation, Operation::Send | Operation::Bind) && args.window.is_none(),
            "--regions is for what names remote memory, and not by a window"
        );
        Ok(())
    }

    /// Checks for features that iWARP lacks.
    fn check_iwarp(operation: Operation, args: &LoadArgs) -> Result<()> {
        let name = format!("{:?}", args.connection).to_uppercase();
        ensure!(!args.iwarp || args.connection == Connection::Rc, "iWARP has RC alone: no {}", name);
        ensure!(!args.iwarp || operation != Operation::Atomic(Atomic::Write), "iWARP has no ATOMIC WRITE");
        Ok(())
    }

    /// Refuses arguments that the operation or figure would ignore.
    ///
    /// `--tx-depth` and `--cq-mod` are accepted for a latency, as in perftest.
    fn check_use(operation: Operation, figure: Figure, args: &LoadArgs) -> Result<()> {
        let inlines = matches!(operation, Operation::Write | Operation::Send);
        ensure!(args.inline_size == 0 || inlines, "--inline-size is for WRITE and SEND");
        let is_atomic = matches!(operation, Operation::Atomic(_));
        ensure!(args.atomic.is_none() || is_atomic, "--atomic is for atomic operations");
        let is_latency = figure == Figure::Lat;
        ensure!(is_latency || args.pause == 0, "--pause is for lat");
        ensure!(!is_latency || !args.bidirectional, "--bidirectional is for bw and rate");
        Ok(())
    }

    /// Returns whether each operation takes a receive.
    pub fn takes_receives(&self) -> bool {
        self.operation == Operation::Send || self.imm
    }

    /// Returns the pairs of sending and receiving guest.
    pub fn directions(&self) -> Vec<(usize, usize)> {
        let guests = usize::from(self.guests);
        let mut all: Vec<_> = match guests {
            1 => vec![(0, 0)],
            2 => vec![(0, 1)],
            more => (0..more).map(|from| (from, (from + 1) % more)).collect(),
        };
        if self.bidirectional {
            all.extend(all.clone().into_iter().map(|(from, to)| (to, from)));
        }
        all
    }

    /// Returns the largest size of all buffers of one guest, in bytes.
    pub fn memory(&self) -> u64 {
        // The largest number of directions that have a guest at one end.
        let ends = if self.guests == 2 { 1 } else { 2 } * if self.bidirectional { 2 } else { 1 };
        self.span * ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    fn plans(line: &str) -> Result<Vec<Plan>> {
        let cli = Cli::try_parse_from(format!("vrdma-perf {line}").split(' '))?;
        let (operation, args) = Operation::of(&cli.command).expect("an operation");
        Plan::all(operation, args.figure, &args.load)
    }

    #[test]
    fn sizes_are_those_that_are_asked_for() {
        let sizes = |line| plans(line).unwrap().iter().map(|plan| plan.size).collect::<Vec<_>>();
        assert_eq!(sizes("write lat"), [8]);
        assert_eq!(sizes("read bw"), [65536]);
        assert_eq!(sizes("send bw -c UD"), [4096]);
        assert_eq!(sizes("write rate -s 100"), [100]);
        assert_eq!(sizes("write bw -a")[..3], [2, 4, 8]);
        assert_eq!(sizes("write bw -a").last(), Some(&(8 << 20)));
        assert_eq!(sizes("send rate --all -c ud").last(), Some(&4096));
        assert_eq!(sizes("atomic rate -A cmp_and_swap"), [8]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refusals = [
            ("write lat -c UD", "UD has SEND alone"),
            ("read lat -c UC", "UC has WRITE and SEND alone"),
            ("write lat --iwarp -c UC", "iWARP has RC alone: no UC"),
            ("send lat --iwarp -c UD", "iWARP has RC alone: no UD"),
            ("read lat --iwarp -c XRC", "iWARP has RC alone: no XRC"),
            ("atomic lat --iwarp -A WRITE", "iWARP has no ATOMIC WRITE"),
            ("send lat -c UD -s 4097", "4096 bytes at most"),
            ("write lat --srq", "--srq is for SEND"),
            ("read lat --imm", "--imm is for WRITE"),
            ("write lat --window 2B -q 2", "--window wants one QP"),
            ("send lat --window 1", "--window is for what names remote memory"),
            ("bind rate -q 2", "windows are bound on one QP of RC"),
            ("send rate --regions 2", "--regions is for what names remote memory"),
            ("write rate --regions 2 --window 1", "--regions is for what names remote memory"),
            ("write rate --regions 0", "1..=120000"),
            ("bind rate -s 16", "carry no bytes"),
            ("atomic lat -s 16", "atomic operations have 8 bytes"),
            ("write rate -q 100 -Q 4 -t 128", "has to be 400 at least"),
            ("write rate -A CMP_AND_SWAP", "--atomic is for atomic operations"),
            ("read lat -I 8", "--inline-size is for WRITE and SEND"),
            ("atomic rate -A WRITE -I 8", "--inline-size is for WRITE and SEND"),
            ("write rate --pause 10", "--pause is for lat"),
            ("write lat -b", "--bidirectional is for bw and rate"),
            ("write rate -s 8 -a", "cannot be used with"),
            ("write rate --cpus 1,1", "processor of its own"),
            ("write rate -D 0", "seconds from"),
            ("write rate --guests 65", "1..=64"),
        ];
        for (line, message) in refusals {
            let error = plans(line).expect_err(line).to_string();
            assert!(error.contains(message), "{line}: {error}");
        }
    }

    #[test]
    fn guests_send_around() {
        let directions = |line| plans(line).unwrap()[0].directions();
        assert_eq!(directions("write bw"), [(0, 1)]);
        assert_eq!(directions("write bw --guests 1"), [(0, 0)]);
        assert_eq!(directions("write bw -b"), [(0, 1), (1, 0)]);
        assert_eq!(directions("write bw --guests 3"), [(0, 1), (1, 2), (2, 0)]);
        for line in [
            "write bw --guests 1",
            "write bw",
            "write bw -b",
            "write bw --guests 4",
            "write bw --guests 4 -b",
        ] {
            let plan = &plans(line).unwrap()[0];
            let most = (0..4).map(|guest| {
                let ends =
                    |&(from, to): &(usize, usize)| usize::from(from == guest) + usize::from(to == guest);
                plan.directions().iter().map(ends).sum::<usize>()
            });
            assert_eq!(plan.memory(), plan.span * most.max().unwrap() as u64, "{line}");
        }
    }

    #[test]
    fn latencies_have_one_request_at_a_time() {
        let plan = &plans("write lat -t 64 -I 8").unwrap()[0];
        assert_eq!((plan.depth, plan.cq_mod, plan.inlined), (1, 1, true));
        assert!(!plans("write lat -I 7").unwrap()[0].inlined);
        assert_eq!(plans("write lat --cold").unwrap()[0].stride, 64);
    }
}
