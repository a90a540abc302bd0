//! The kernel module's state table of iWARP connections, run on the host.
//!
//! Whatever the device reports, in whatever order, `iw_cm` gets only events that it accepts. Each
//! connection comes to an end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use vrdma_tests::abi::control::{CmEventKind, CmStatus};

/// `enum vrdma_cm_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Connects,
    Requested,
    Accepted,
    Open,
    Closing,
    Orphaned,
    Over,
}
use State::*;
const STATES: [State; 7] = [Connects, Requested, Accepted, Open, Closing, Orphaned, Over];

/// `enum vrdma_cm_what`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Ignored,
    Connected,
    NotConnected,
    Established,
    Disconnected,
    Closed,
    QpEnded,
    Failed,
}
const WHATS: [What; 8] = [
    What::Ignored,
    What::Connected,
    What::NotConnected,
    What::Established,
    What::Disconnected,
    What::Closed,
    What::QpEnded,
    What::Failed,
];

/// Bits of the events for `iw_cm`, in the order in which they are delivered.
const TELLS: [u32; 4] = [1, 2, 4, 8];

#[derive(Clone, Copy, Debug)]
struct Step {
    next: State,
    tell: u32,
    has_id: bool,
    is_limited: bool,
}

/// The contents of the module's `cmstate.c`.
struct Table {
    steps: BTreeMap<(State, What), Step>,
    events: BTreeMap<(u32, u32), What>,
    errors: BTreeMap<u32, i32>,
}

impl Table {
    fn of_module() -> Table {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let directory = TempDir::new().unwrap();
        let (shim, module) = (root.join("kernel-on-host"), root.join("../guest-driver/kernel"));
        let program = directory.path().join("cmstate");
        let status = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Werror", "-fsanitize=undefined", "-I"])
            .arg(&shim)
            .arg("-I")
            .arg(&module)
            .args([shim.join("cmstate.c"), module.join("cmstate.c")])
            .arg("-o")
            .arg(&program)
            .status();
        assert!(status.expect("there is a C compiler").success());
        let output = Command::new(program).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let mut table = Table { steps: BTreeMap::new(), events: BTreeMap::new(), errors: BTreeMap::new() };
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            table.read(line);
        }
        assert_eq!(table.steps.len(), STATES.len() * WHATS.len());
        table
    }

    fn read(&mut self, line: &str) {
        let (kind, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<i64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let at = |index: usize| numbers[index] as usize;
        match kind {
            "step" => {
                let step = Step {
                    next: STATES[at(2)],
                    tell: at(3) as u32,
                    has_id: at(4) == 1,
                    is_limited: at(5) == 1,
                };
                self.steps.insert((STATES[at(0)], WHATS[at(1)]), step);
            }
            "event" => {
                self.events.insert((at(0) as u32, at(1) as u32), WHATS[at(2)]);
            }
            _ => {
                self.errors.insert(at(0) as u32, numbers[1] as i32);
            }
        }
    }
}

/// The `iw_cm` state of a connection. An event for which `iw_cm` has a `BUG()` panics here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IwCm {
    /// `iw_cm` has passed on a request and knows no connection yet.
    Asked,
    ConnSent,
    ConnRecv,
    Established,
    Closing,
    Idle,
}

impl IwCm {
    fn of(state: State) -> IwCm {
        match state {
            Connects => IwCm::ConnSent,
            Accepted => IwCm::ConnRecv,
            Requested => IwCm::Asked,
            _ => panic!("no connection begins in {state:?}"),
        }
    }

    /// Returns the next state. `connected` says whether a reply reports success.
    fn told(self, tell: u32, connected: bool) -> IwCm {
        match (self, tell) {
            (IwCm::ConnSent, 1) if connected => IwCm::Established,
            (IwCm::ConnSent, 1) => IwCm::Idle,
            (IwCm::ConnRecv, 2) => IwCm::Established,
            (IwCm::Established, 4) => IwCm::Closing,
            (IwCm::Established | IwCm::Closing, 8) => IwCm::Idle,
            _ => panic!("a bug of the kernel: {tell} is told in {self:?}"),
        }
    }
}

/// Tries all events in all orders, in every reachable state.
#[test]
fn whatever_the_device_says_iw_cm_takes_what_it_is_told() {
    let table = Table::of_module();
    for begin in [Connects, Requested, Accepted] {
        // `told` counts the events for `iw_cm`, which has room for a fixed number. That is four for
        // a connection that it initiated, and three for one that it accepted.
        let mut todo = vec![(begin, IwCm::of(begin), 0)];
        let mut seen = BTreeSet::new();
        while let Some((state, iw_cm, told)) = todo.pop() {
            if !seen.insert((state, iw_cm, told)) {
                continue;
            }
            for what in WHATS {
                let step = table.steps[&(state, what)];
                let (mut iw_cm, mut told) = (iw_cm, told);
                for tell in TELLS.into_iter().filter(|tell| step.tell & tell != 0) {
                    iw_cm = iw_cm.told(tell, what == What::Connected);
                    told += 1;
                }
                assert!(told <= if begin == Connects { 4 } else { 3 }, "{state:?} {what:?}");
                // A `cm_id` is kept exactly as long as `iw_cm` waits for an event.
                let waits = !matches!(iw_cm, IwCm::Asked | IwCm::Idle);
                assert_eq!(step.has_id, waits, "{state:?} {what:?} {step:?} {iw_cm:?}");
                if step.next == state {
                    assert_eq!(step.tell, 0, "nothing is told of what changes nothing");
                }
                todo.push((step.next, iw_cm, told));
            }
        }
        let reached: BTreeSet<State> = seen.iter().map(|(state, ..)| *state).collect();
        assert!(reached.contains(&Over));
    }
}

#[test]
fn each_connection_comes_to_an_end() {
    let table = Table::of_module();
    for state in STATES {
        assert_eq!(table.steps[&(state, What::Failed)].next, Over, "{state:?}: the driver can give it up");
        assert_eq!(table.steps[&(state, What::Closed)].next, Over, "{state:?}: it is the last event");
        assert_eq!(table.steps[&(state, What::Ignored)].next, state);
        let of_qp = table.steps[&(state, What::QpEnded)];
        assert!(!of_qp.has_id, "{state:?}: a QP that goes waits for nobody");
        if state != Requested {
            let then = table.steps[&(of_qp.next, What::Closed)];
            assert_eq!((then.next, then.tell), (Over, 0), "{state:?}: and the device's end is the end");
        }
        for what in WHATS {
            let step = table.steps[&(state, what)];
            assert_eq!(step.is_limited, !matches!(step.next, Open | Over), "{state:?} {what:?}");
            assert!(state != Over || step.next == Over, "nothing comes back: {what:?}");
        }
    }
}

/// Checks the usual lives of connections.
#[test]
fn a_connection_lives_as_iw_cm_has_it() {
    let table = Table::of_module();
    let live = |mut state: State, whats: &[What]| -> Vec<u32> {
        let mut told = Vec::new();
        for what in whats {
            let step = table.steps[&(state, *what)];
            told.push(step.tell);
            state = step.next;
        }
        assert_eq!(state, Over, "{whats:?}");
        told
    };
    use What::*;
    assert_eq!(live(Connects, &[Connected, Disconnected, Closed]), [1, 4, 8]);
    assert_eq!(live(Accepted, &[Established, Disconnected, Closed]), [2, 4, 8]);
    assert_eq!(live(Connects, &[NotConnected]), [1]);
    assert_eq!(live(Accepted, &[Closed]), [2 | 8], "no end before the beginning");
    assert_eq!(live(Connects, &[Connected, QpEnded, Disconnected, Closed]), [1, 8, 0, 0]);
    assert_eq!(live(Requested, &[Failed]), [0]);
    for (state, nonsense) in [
        (Connects, &[Established, Disconnected][..]),
        (Requested, &[Connected, NotConnected, Established, Disconnected]),
        (Accepted, &[Connected, NotConnected, Disconnected]),
        (Open, &[Connected, NotConnected, Established]),
        (Closing, &[Connected, NotConnected, Established, Disconnected]),
        (Orphaned, &[Connected, Established, Disconnected]),
    ] {
        for what in nonsense {
            assert_eq!(table.steps[&(state, *what)].next, state, "{state:?} {what:?}: nothing happens");
        }
    }
}

#[test]
fn events_and_statuses_mean_what_the_abi_says() {
    let table = Table::of_module();
    for (&(kind, status), &what) in &table.events {
        let expected = match CmEventKind(kind) {
            CmEventKind::CONNECT_REPLY if CmStatus(status) == CmStatus::OK => What::Connected,
            CmEventKind::CONNECT_REPLY => What::NotConnected,
            CmEventKind::ESTABLISHED => What::Established,
            CmEventKind::DISCONNECT => What::Disconnected,
            CmEventKind::CLOSE => What::Closed,
            _ => What::Ignored,
        };
        assert_eq!(what, expected, "event {kind}, status {status}");
    }
    for (&status, &error) in &table.errors {
        let expected = match CmStatus(status) {
            CmStatus::OK => 0,
            CmStatus::REFUSED => libc::ECONNREFUSED,
            CmStatus::TIMED_OUT => libc::ETIMEDOUT,
            CmStatus::UNREACHABLE => libc::EHOSTUNREACH,
            CmStatus::PROTOCOL => libc::EPROTO,
            CmStatus::IN_USE => libc::EADDRINUSE,
            _ => libc::ECONNRESET,
        };
        assert_eq!(error, -expected, "status {status}");
    }
}
