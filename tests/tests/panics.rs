//! A fault of the daemon itself: where only one guest's state is at hand, that guest's connection ends, and nobody else's.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vrdma_backend::{hooks, panics};
use vrdma_tests::abi::control::{Opcode, ReqHeader};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::zerocopy::IntoBytes;
use vrdma_tests::net::{NetGuest, NetOptions};
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Remote, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, wait};

const LEN: u64 = 4096;

/// Writes until it is told to stop, and counts; the longest time between two that completed.
fn go_on(a: &mut Side, remote: Remote, count: &AtomicU64, stop: &AtomicBool) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let own = [a.mr.sge(0, LEN as u32)];
        a.post(&Request::write(a.qp.tag(1), remote, Data::Sges(&own)).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        longest = longest.max(last.elapsed());
        last = Instant::now();
        count.fetch_add(1, Ordering::Relaxed);
    }
    longest
}

/// Stops it when it goes, also where a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two guests go on before, while and after `fault` happens.
fn others_go_on(lab: &Lab, what: &str, fault: impl FnOnce()) {
    let (mut a, b) = pair_between(&lab.guests[1], &lab.guests[2], LEN, &QpOptions::default());
    let (remote, count, stop) = (b.mr.remote(0), AtomicU64::new(0), AtomicBool::new(false));
    let longest = std::thread::scope(|scope| {
        let others = scope.spawn(|| go_on(&mut a, remote, &count, &stop));
        let stop = Stop(&stop);
        let some_more = || {
            let wanted = count.load(Ordering::Relaxed) + 20;
            wait::until("requests of others", || (count.load(Ordering::Relaxed) >= wanted).then_some(()));
        };
        some_more();
        fault();
        some_more();
        drop(stop);
        others.join().expect("nobody else's requests fail")
    });
    println!("{what}: {count:?} requests of others, at most {longest:?} apart");
    a.close();
    b.close();
}

/// The hook of the program is in place: what is not contained ends this process.
fn lab() -> Lab {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(panics::end_the_process);
    Lab::with(3, LabOptions::default())
}

#[test]
fn a_panic_over_a_command_ends_its_guest_alone() {
    let mut lab = lab();
    for (round, step) in (1..).zip(["command", "queue"]) {
        let victim = lab.guests[0].clone();
        others_go_on(&lab, step, || {
            hooks::panic_at("RDMA g0", step);
            // Nobody answers it.
            let header = ReqHeader {
                opcode: Opcode::QUERY_DEVICE.0.into(),
                reserved: 0.into(),
                num_runs: 0.into(),
                cookie: 7.into(),
            };
            let none = victim.control().exchange(header.as_bytes(), 1024, Duration::from_millis(1));
            assert_eq!(none, None);
            wait::until("the connection to end", || victim.front_end().is_closed().then_some(()));
        });
        assert_eq!(lab.stats().device(0, "panics"), round);
        // Its front-end may come again, and finds all as ever.
        lab.guests[0] = lab.connect(0);
        let (a, b) = pair_between(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        drop(victim);
        a.close();
        b.close();
    }
    assert_eq!((lab.stats().device(1, "panics"), lab.stats().device(2, "panics")), (0, 0));
}

#[test]
fn a_panic_over_a_message_ends_its_connection_alone() {
    let lab = lab();
    let connect = || NetGuest::connect(&lab.net_socket(0), NetOptions::default());
    others_go_on(&lab, "message", || {
        hooks::panic_at("Ethernet g0", "message");
        assert!(connect().is_err());
    });
    assert_eq!(lab.stats().net(0, "panics"), 1);
    connect().expect("the next one is served");
    assert_eq!(lab.stats().net(0, "panics"), 1);
}

/// Set in the process that is to end.
const VICTIM: &str = "VRDMA_TEST_VICTIM";

#[test]
fn a_panic_in_what_guests_share_ends_the_process() {
    let name = "a_panic_in_what_guests_share_ends_the_process";
    if std::env::var_os(VICTIM).is_some() {
        let lab = lab();
        hooks::panic_at("Ethernet g0", "mapping");
        let _ = NetGuest::connect(&lab.net_socket(0), NetOptions::default());
        wait::until("the end of this process", || None::<()>);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name]).env(VICTIM, "1").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", String::from_utf8_lossy(&output.stderr));
}
