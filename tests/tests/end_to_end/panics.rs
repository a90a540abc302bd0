//! A panic in the daemon itself.
//!
//! If the panicking code handles only one guest's state, that guest's connection ends, and no
//! other.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vrdma_backend::{hooks, panics};
use vrdma_tests::abi::control::{Opcode, QpState, QpType, ReqHeader};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::zerocopy::IntoBytes;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::cm::connected;
use vrdma_tests::lab::over_tcp;
use vrdma_tests::net::{Header, NetGuest, NetOptions, frame, mac};
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Remote, Request, UdTarget};
use vrdma_tests::{CableOptions, Context, Cq, GuestOptions, GuestTcp, Lab, LabOptions, QpOptions, wait};

const LEN: u64 = 4096;

/// WRITEs until told to stop, and counts. Returns the longest time between two completions.
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

/// Stops the loop when dropped, also if a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asserts that two other guests make progress before, during and after `fault`.
fn others_go_on(lab: &Lab, what: &str, fault: impl FnOnce()) {
    let sides = pair_between(&lab.guests[1], &lab.guests[2], LEN, &QpOptions::default());
    these_go_on(sides, what, fault);
}

/// Asserts that these sides make progress before, during and after `fault`.
fn these_go_on((mut a, b): (Side, Side), what: &str, fault: impl FnOnce()) {
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

/// Starts a lab with the program's panic hook, so that an uncontained panic ends this process.
fn lab_of(guests: u8, options: LabOptions) -> Lab {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(panics::end_the_process);
    Lab::with(guests, options)
}

fn lab() -> Lab {
    lab_of(3, LabOptions::default())
}

/// Reconnects guests that a panic in a worker's step ended, and asserts that they work again.
///
/// No other guest had a panic.
fn come_again(lab: &mut Lab, ended: &[usize], rounds: u64) {
    assert!(hooks::have_panicked());
    for index in 0..lab.guests.len() {
        let wanted = if ended.contains(&index) { rounds } else { 0 };
        assert_eq!(lab.stats().device(index, "panics"), wanted, "guest {index}");
    }
    for &index in ended {
        let counts = lab.stats();
        assert_eq!((counts.objects(index, "qps"), counts.objects(index, "mrs")), (0, 0), "guest {index}");
        lab.guests[index] = lab.connect(index as u8);
    }
}

/// Waits until the daemon has ended the connections of these guests.
fn end(lab: &Lab, ended: &[usize]) {
    for &index in ended {
        let front_end = lab.guests[index].front_end();
        wait::until("the connection to end", || front_end.is_closed().then_some(()));
    }
}

#[test]
fn a_panic_in_a_step_of_a_worker_ends_the_guest_that_it_is_about() {
    let mut lab = lab();
    let steps = [("its requests", 64), ("turns of its QPs", 300_000), ("its events", 64)];
    for (round, (step, length)) in (1..).zip(steps) {
        let victim = lab.guests[0].clone();
        let (mut a, b) = pair_between(&victim, &victim, 1 << 20, &QpOptions::default());
        others_go_on(&lab, step, || {
            hooks::panic_at("g0", step);
            let own = [a.mr.sge(0, length)];
            a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Sges(&own)).signaled(true));
            end(&lab, &[0]);
        });
        drop((a, b, victim));
        come_again(&mut lab, &[0], round);
        let (a, b) = pair_between(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        a.close();
        b.close();
    }
}

#[test]
fn a_panic_in_a_worker_over_a_command_ends_the_guest_that_gave_it() {
    let mut lab = lab();
    let victim = lab.guests[0].clone();
    others_go_on(&lab, "its command", || {
        hooks::panic_at("g0", "its command");
        let header = ReqHeader {
            opcode: Opcode::QUERY_DEVICE.0.into(),
            reserved: 0.into(),
            num_runs: 0.into(),
            cookie: 7.into(),
        };
        // The answer, if there is one, reports a broken device.
        let _ = victim.control().exchange(header.as_bytes(), 1024, Duration::from_millis(1));
        end(&lab, &[0]);
    });
    drop(victim);
    come_again(&mut lab, &[0], 1);
}

#[test]
fn a_panic_amid_a_request_ends_both_guests_that_it_is_about() {
    let mut lab = lab_of(4, LabOptions { workers: 1, ..LabOptions::default() });
    let (mut a, b) = pair_between(&lab.guests[0], &lab.guests[3], LEN, &QpOptions::default());
    others_go_on(&lab, "a request to a peer", || {
        hooks::panic_at("g0", "its requests");
        a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Inline(b"inline")).signaled(true));
        end(&lab, &[0, 3]);
    });
    drop((a, b));
    come_again(&mut lab, &[0, 3], 1);
    let (a, b) = pair_between(&lab.guests[0], &lab.guests[3], LEN, &QpOptions::default());
    a.close();
    b.close();
}

#[test]
fn a_panic_over_a_packet_ends_the_guest_that_it_is_for_and_its_peer_elsewhere_finds_nobody() {
    let mut lab = lab_of(5, LabOptions { workers: 2, ..LabOptions::default() });
    // These guests are on both workers.
    let others = pair_between(&lab.guests[2], &lab.guests[3], LEN, &QpOptions::default());
    let (mut a, mut b) = pair_between(&lab.guests[1], &lab.guests[0], LEN, &QpOptions::default());
    these_go_on(others, "a packet", || {
        b.recv_any(5);
        b.process.channel.drain();
        hooks::panic_at("g0", "a packet to it");
        // Long enough to use pinned regions.
        let own = [a.mr.sge(0, LEN as u32)];
        a.qp.gives_up_soon().unwrap();
        a.post(&Request::send(a.qp.tag(1), Data::Sges(&own)).signaled(true));
        end(&lab, &[0]);
        a.cq.expect(a.qp.number, 1, WcStatus::RETRY_EXC_ERR);
    });
    // The pinned memory is released: regions can be deregistered at once.
    a.close();
    drop(b);
    come_again(&mut lab, &[0], 1);
}

#[test]
fn a_panic_over_a_packet_of_the_uplink_ends_the_guest_that_it_is_for() {
    let mut lab = lab_of(5, LabOptions { cable: Some(CableOptions::default()), ..LabOptions::default() });
    // Guests with odd numbers are on the remote host.
    let others = pair_between(&lab.guests[2], &lab.guests[3], LEN, &QpOptions::default());
    let (mut a, mut b) = pair_between(&lab.guests[1], &lab.guests[0], LEN, &QpOptions::default());
    these_go_on(others, "a packet of the uplink", || {
        b.recv_any(5);
        b.process.channel.drain();
        hooks::panic_at("g0", "a packet to it");
        a.qp.gives_up_soon().unwrap();
        a.post(&Request::send(a.qp.tag(1), Data::Inline(b"a message")).signaled(true));
        end(&lab, &[0]);
        a.cq.expect(a.qp.number, 1, WcStatus::RETRY_EXC_ERR);
    });
    a.close();
    drop(b);
    assert!(hooks::have_panicked());
    // The local host's guests are 0, 2 and 4.
    assert_eq!([0, 1, 2].map(|index| lab.stats().device(index, "panics")), [1, 0, 0]);
    lab.guests[0] = lab.connect(0);
    let (a, b) = pair_between(&lab.guests[1], &lab.guests[0], LEN, &QpOptions::default());
    a.close();
    b.close();
}

#[test]
fn a_panic_over_a_look_for_receives_ends_both_guests_of_the_message() {
    let mut lab = lab_of(4, LabOptions { workers: 1, ..LabOptions::default() });
    let options = QpOptions { rnr_retry: 0, ..QpOptions::default() };
    let (mut a, b) = pair_between(&lab.guests[0], &lab.guests[3], LEN, &options);
    others_go_on(&lab, "a look for its receives", || {
        hooks::panic_at("g3", "a look for its receives");
        // There is no receive, so the sender has to be told.
        a.post(&Request::send(a.qp.tag(1), Data::Inline(b"a message")).signaled(true));
        end(&lab, &[0, 3]);
    });
    drop((a, b));
    come_again(&mut lab, &[0, 3], 1);
}

#[test]
fn a_panic_over_a_failed_cq_ends_its_guest() {
    let mut lab = lab();
    let mut process = Context::open(&lab.guests[0]).unwrap();
    let cq = Cq::create(&lab.guests[0], process.number, 4, 0).unwrap();
    let [qp, other] = [0, 1].map(|_| process.qp(&cq, &cq, &QpOptions::default()));
    other.to_init().unwrap();
    qp.to_init().unwrap();
    qp.to_state(QpState::ERR).unwrap();
    others_go_on(&lab, "its failed CQ", || {
        hooks::panic_at("g0", "its failed CQ");
        // Each receive completes at once, and there are more than the CQ holds.
        (0..16).for_each(|id| process.post(&Request::recv(qp.tag(id), &[])));
        end(&lab, &[0]);
    });
    drop((qp, other, cq, process));
    come_again(&mut lab, &[0], 1);
}

#[test]
fn a_panic_over_what_a_guest_sends_ends_that_guest() {
    let mut lab = lab_of(5, LabOptions { workers: 2, ..LabOptions::default() });
    let others = pair_between(&lab.guests[2], &lab.guests[3], LEN, &QpOptions::default());
    let options = QpOptions::of(QpType::UD);
    let (mut a, b) = pair_between(&lab.guests[0], &lab.guests[1], LEN, &options);
    let handles = AhTable::new(&lab.guests[0], 64).unwrap();
    these_go_on(others, "a packet that is sent", || {
        handles.put(0, &entry(a.process.pd, b.guest().gid()));
        let to = UdTarget { ah: 0, qpn: b.qp.number, qkey: b.qp.options.qkey };
        hooks::panic_at("g0", "packets of it");
        a.post(&Request::ud_send(a.qp.tag(1), to, Data::Inline(b"a message")).signaled(true));
        end(&lab, &[0]);
    });
    b.close();
    drop((a, handles));
    come_again(&mut lab, &[0], 1);
}

#[test]
fn a_panic_over_a_connection_of_iwarp_ends_its_guest() {
    let guest = GuestOptions { tcp: GuestTcp::Kernel, ..GuestOptions::default() };
    let mut lab = lab_of(4, LabOptions { workers: 1, host_says: over_tcp, guest, ..LabOptions::default() });
    let ((c, _), (d, _)) = connected(&lab.guests[1], &lab.guests[2], LEN, &QpOptions::default());
    let ((mut a, number), (b, _)) = connected(&lab.guests[3], &lab.guests[0], LEN, &QpOptions::default());
    these_go_on((c, d), "a connection", || {
        hooks::panic_at("g0", "a connection of it");
        a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Inline(b"inline")).signaled(true));
        end(&lab, &[0]);
        // The sockets of the panicked guest are closed.
        lab.guests[3].cm_expect_end(number);
    });
    drop((a, b));
    assert_eq!(lab.stats().objects(0, "connections"), 0);
    come_again(&mut lab, &[0], 1);
    let ((a, _), (b, _)) = connected(&lab.guests[3], &lab.guests[0], LEN, &QpOptions::default());
    a.close();
    b.close();
}

#[test]
fn a_panic_over_a_frame_ends_the_netdev_that_it_is_about() {
    let lab = lab_of(4, LabOptions { workers: 1, ..LabOptions::default() });
    let net =
        |index: u8| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).expect("to be served");
    let [mut a, mut b, mut c] = [0, 1, 2].map(net);
    let to = |to: u8, from: u8| frame(mac(to), mac(from), 0x88b5, b"a frame");
    for (round, (step, victim)) in
        [("a frame that it sent", 0), ("a frame for it", 1)].into_iter().enumerate()
    {
        others_go_on(&lab, step, || {
            hooks::panic_at(&format!("g{victim}"), step);
            match victim {
                // The frame's buffer is not returned to the guest.
                0 => assert!(a.try_send(Header::default(), &to(2, 1))),
                _ => a.send(&to(2, 1)),
            }
            wait::until("the panic", || hooks::have_panicked().then_some(()));
            wait::until("its count", || (lab.stats().net(victim, "panics") == 1).then_some(()));
        });
        // Other netdevs continue, also with the netdev that returns.
        if round == 0 {
            a = net(0);
        } else {
            a.send(&to(3, 1));
            assert_eq!(c.recv().1[..6], mac(3));
            b = net(1);
        }
        a.send(&to(2, 1));
        assert_eq!(b.recv().1[..6], mac(2));
    }
    assert_eq!([0, 1, 2].map(|index| lab.stats().net(index, "panics")), [1, 1, 0]);
}

#[test]
fn a_panic_over_a_command_ends_its_guest_alone() {
    let mut lab = lab();
    for (round, step) in (1..).zip(["command", "queue"]) {
        let victim = lab.guests[0].clone();
        others_go_on(&lab, step, || {
            hooks::panic_at("RDMA g0", step);
            // The command gets no answer.
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
        // Its front-end may reconnect, and everything works.
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

/// Environment variable, set in the process that is to end.
const VICTIM: &str = "VRDMA_TEST_VICTIM";

#[test]
fn a_panic_in_what_guests_share_ends_the_process() {
    let name = "panics::a_panic_in_what_guests_share_ends_the_process";
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
