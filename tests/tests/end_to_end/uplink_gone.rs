//! The uplink's interface disappears and returns, under traffic between two hosts.
//!
//! It is also renamed, taken down, given a shorter MTU, and moved to another namespace. The tests
//! need root.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vrdma_backend::port::{Eal, UplinkDevice};
use vrdma_tests::abi::control::{QpType, port_state};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::cm::connected;
use vrdma_tests::lab::{over_own_tcp, with_both};
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::side::pair;
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{GuestOptions, GuestTcp, Lab, LabOptions, QpOptions, wait};

/// Drivers that share an interface with the kernel.
const DRIVERS: [&str; 3] = ["net_packet", "net_af_packet", "net_af_xdp"];
/// How long the interface is gone.
const AWAY: Duration = Duration::from_secs(1);

/// Creates a network namespace with a veth for this thread and threads that it starts later.
///
/// Those include the daemons' threads. Returns false without root.
fn namespace() -> bool {
    // SAFETY: a plain system call.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        eprintln!("not tried: there is no network of its own without root");
        return false;
    }
    make_veth();
    true
}

fn make_veth() {
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
}

#[track_caller]
fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip starts");
    assert!(output.status.success(), "ip {arguments}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Continuous traffic between the hosts: RC, UD, and iWARP over the daemon's own TCP.
struct Traffic {
    rc: PingPong,
    others: [Loop; 2],
}

/// An action that a thread of its own repeats and counts.
struct Loop {
    what: &'static str,
    shared: Arc<(AtomicBool, AtomicU64)>,
    thread: Option<JoinHandle<()>>,
}

impl Loop {
    fn start(
        what: &'static str,
        mut turn: impl FnMut(&mut dyn FnMut() -> bool) -> bool + Send + 'static,
    ) -> Loop {
        let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
        let theirs = shared.clone();
        let thread = std::thread::spawn(move || {
            let mut is_over = || theirs.0.load(Ordering::Relaxed);
            while !is_over() {
                theirs.1.fetch_add(turn(&mut is_over).into(), Ordering::Relaxed);
                wait::pause(Duration::from_millis(1), "leaves the processor to the daemons");
            }
        });
        Loop { what, shared, thread: Some(thread) }
    }

    fn count(&self) -> u64 {
        self.shared.1.load(Ordering::Relaxed)
    }

    fn stop(mut self) {
        self.shared.0.store(true, Ordering::Relaxed);
        self.thread.take().expect("not stopped yet").join().expect(self.what);
    }
}

/// Starts datagrams, which may get lost. Only those that arrive count.
fn datagrams(lab: &Lab) -> Loop {
    let (mut a, mut b) = pair(lab, 1, 8192, &QpOptions { path_mtu: 3, ..QpOptions::of(QpType::UD) });
    let handles = AhTable::new(&lab.guests[0], 64).unwrap();
    handles.put(3, &entry(a.process.pd, b.guest().gid()));
    let to = UdTarget { ah: 3, qpn: b.qp.number, qkey: b.qp.options.qkey };
    let mut has_receive = false;
    Loop::start("datagrams", move |is_over| {
        let _keep = &handles;
        if !std::mem::replace(&mut has_receive, true) {
            b.recv_any(1);
        }
        a.post(&Request::ud_send(a.qp.tag(7), to, Data::Inline(b"hello")).signaled(true));
        while a.cq.poll().is_none() && !is_over() {
            std::thread::yield_now();
        }
        let came = wait::within(Duration::from_millis(20), || b.cq.poll());
        has_receive = came.is_none();
        came.is_some()
    })
}

/// Starts SENDs of 64 KiB by iWARP, which have to arrive.
fn streams(lab: &Lab) -> Loop {
    const LEN: u64 = 1 << 16;
    let second = [0, 1].map(|index| lab.connect_iwarp(index));
    let ((mut a, _), (mut b, _)) =
        connected(&second[0], &second[1], LEN, &QpOptions { path_mtu: 3, ..QpOptions::default() });
    let mut round = 0u8;
    Loop::start("streams", move |is_over| {
        round = round.wrapping_add(1);
        a.mr.fill(round);
        b.recv_any(1);
        let own = [a.mr.sge(0, LEN as u32)];
        a.post(&Request::send(a.qp.tag(2), Data::Sges(&own)).signaled(true));
        for (cq, of) in [(&mut a.cq, "the SEND"), (&mut b.cq, "the receive")] {
            let ended = wait::until(of, || if is_over() { Some(None) } else { cq.poll().map(Some) });
            let Some(wc) = ended else { return false };
            assert_eq!(wc.status(), WcStatus::SUCCESS, "{of}");
        }
        assert!(b.mr.get(0, LEN).iter().all(|byte| *byte == round), "bytes of round {round}");
        true
    })
}

impl Traffic {
    fn start(lab: &Lab) -> Traffic {
        // Typical of programs that survive such outages: a timeout of 1 s at first, and seven
        // retries.
        let options = QpOptions { path_mtu: 3, timeout: 18, retry_cnt: 7, ..QpOptions::default() };
        let rc = PingPong::start_with(&lab.guests[0], &lab.guests[1], &options);
        let traffic = Traffic { rc, others: [datagrams(lab), streams(lab)] };
        traffic.expect_progress("at first");
        traffic
    }

    fn counts(&self) -> [u64; 3] {
        [self.rc.rounds(), self.others[0].count(), self.others[1].count()]
    }

    /// Waits until each kind of traffic has progressed from here on. Returns how long each took.
    #[track_caller]
    fn expect_progress(&self, when: &str) -> [Duration; 3] {
        let (before, start) = (self.counts(), Instant::now());
        let mut took = [None; 3];
        for (at, what) in ["RC", "UD", "iWARP"].into_iter().enumerate() {
            wait::until(&format!("{what} {when}"), || {
                let now = self.counts();
                for at in 0..3 {
                    if took[at].is_none() && now[at] >= before[at] + 2 {
                        took[at] = Some(start.elapsed());
                    }
                }
                took[at]
            });
        }
        took.map(|took| took.expect("each was waited for"))
    }

    fn stop(self) {
        self.others.into_iter().for_each(Loop::stop);
        self.rc.stop();
    }
}

/// Starts two hosts with a guest each, at the two ends of the veth.
fn lab(driver: &str, workers: u16) -> Lab {
    // DPDK identifies devices by name, across all tests of this process.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(2, Ordering::Relaxed);
    let uplinks: Option<[UplinkDevice; 2]> =
        Some([(number, "va"), (number + 1, "vb")].map(|(number, iface)| {
            let queues = if driver == "net_af_packet" && workers > 1 {
                format!(",qpairs={workers}")
            } else {
                String::new()
            };
            format!("{driver}{number},iface={iface}{queues}").parse().expect("a device")
        }));
    // Buffers are never freed, and all tests of this process share the memory.
    let first = &uplinks.as_ref().expect("just made")[0];
    Eal::start("--no-huge -m 2048", first).expect("DPDK starts");
    let guest = GuestOptions { tcp: GuestTcp::Own, ..GuestOptions::default() };
    let host_says = |index, guest| with_both(over_own_tcp(index, guest));
    Lab::with(2, LabOptions { uplinks, guest, host_says, workers, ..LabOptions::default() })
}

/// Waits until both hosts and their guests see this state of the link.
#[track_caller]
fn expect_link(lab: &Lab, up: bool) {
    let wanted = if up { port_state::ACTIVE } else { port_state::DOWN };
    wait::until(&format!("the link to be up: {up}"), || {
        let links = [lab.daemon.stats(), lab.remote.as_ref().unwrap().stats()]
            .map(|stats| stats.unwrap().is_link_up());
        let ports = lab.guests.iter().map(|guest| guest.query_port().unwrap().state);
        (links == [up; 2] && ports.into_iter().all(|state| state == wanted)).then_some(())
    });
}

/// Returns the frames sent and received by both hosts. A link that is down carries none.
fn frames(lab: &Lab) -> [u64; 4] {
    let [a, b] = [lab.stats(), lab.remote_stats()];
    [&a, &b]
        .map(|stats| ["frames_sent", "frames_received"].map(|counter| stats.uplink(counter)))
        .concat()
        .try_into()
        .unwrap()
}

/// Deletes the veth with both ends and creates it again, `rounds` times.
fn gone_and_made_again(driver: &str, rounds: u64, workers: u16) {
    if !namespace() {
        return;
    }
    let lab = lab(driver, workers);
    expect_link(&lab, true);
    let changes = || [lab.stats(), lab.remote_stats()].map(|stats| stats.uplink("link_changes"));
    let before = changes();
    let traffic = Traffic::start(&lab);
    let mut slowest = [Duration::ZERO; 3];
    for round in 1..=rounds {
        ip("link del va");
        expect_link(&lab, false);
        let (still, away) = (frames(&lab), wait::Spell::of(AWAY));
        while away.lasts() {
            assert_eq!(frames(&lab), still, "nothing comes or goes by an interface that is gone");
            wait::pause(AWAY / 10, "looks now and then, however often");
        }
        make_veth();
        let took = traffic.expect_progress("after the interface is there again");
        expect_link(&lab, true);
        assert_eq!(changes(), before.map(|before| before + 2 * round), "round {round}");
        slowest = [0, 1, 2].map(|at| slowest[at].max(took[at]));
    }
    println!("{driver}, {workers} workers: RC, UD and iWARP went on within {slowest:?} of {rounds} returns");
    traffic.stop();
}

/// Makes the other changes that administrators make to an interface.
fn renamed_shortened_and_moved(driver: &str) {
    if !namespace() {
        return;
    }
    let lab = lab(driver, 1);
    expect_link(&lab, true);
    let changes = || lab.stats().uplink("link_changes");
    let traffic = Traffic::start(&lab);
    let before = changes();
    // Since 6.2, Linux renames interfaces that are up.
    if Command::new("ip").args(["link", "set", "va", "name", "renamed"]).status().unwrap().success() {
        traffic.expect_progress("after it was renamed");
        expect_link(&lab, true);
        assert_eq!(changes(), before, "a name is no link");
        // Another interface with the old name makes no difference.
        ip("link add va type veth peer name other");
        traffic.expect_progress("beside one with its name");
        ip("link del va");
        traffic.expect_progress("after one with its name went");
        assert_eq!(changes(), before);
        ip("link set renamed down");
        expect_link(&lab, false);
        ip("link set renamed name va");
        ip("link set va up");
        expect_link(&lab, true);
        traffic.expect_progress("after it was renamed back");
    }
    for _ in 0..3 {
        ip("link set va down");
        expect_link(&lab, false);
        ip("link set va up");
        expect_link(&lab, true);
        traffic.expect_progress("after it was taken down and up");
    }
    if driver != "net_af_xdp" {
        ip("link set va mtu 1300");
        // Longer packets are lost meanwhile, and nothing else.
        expect_link(&lab, true);
        ip("link set va mtu 1500");
        traffic.expect_progress("after its MTU was changed and changed back");
    }
    let before = changes();
    let elsewhere = Elsewhere::new();
    ip(&format!("link set va netns {}", elsewhere.0.id()));
    wait::until("the link to be down", || (!lab.stats().is_link_up()).then_some(()));
    elsewhere.run(&format!("ip link set va netns {}", this_thread()));
    ip("link set va up");
    expect_link(&lab, true);
    traffic.expect_progress("after it was moved to another namespace and back");
    assert!(changes() >= before + 2);
    traffic.stop();
}

/// A process in a network namespace of its own, which ends when this is dropped.
struct Elsewhere(Child);

impl Elsewhere {
    fn new() -> Elsewhere {
        let child = Command::new("unshare").args(["-n", "sleep", "1000"]).spawn().expect("unshare starts");
        let here = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let there = format!("/proc/{}/ns/net", child.id());
        wait::until("the other namespace", || (std::fs::read_link(&there).ok()? != here).then_some(()));
        Elsewhere(child)
    }

    fn run(&self, command: &str) {
        let target = self.0.id().to_string();
        let status = Command::new("nsenter").args(["-n", "-t", &target]).args(command.split(' ')).status();
        assert!(status.unwrap().success(), "{command}");
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let ended = self.0.wait().expect("it ends");
        assert!(ended.signal().is_some() || std::thread::panicking());
    }
}

/// Returns the kernel's number of this thread.
fn this_thread() -> i32 {
    // SAFETY: a plain system call.
    unsafe { libc::gettid() }
}

macro_rules! of_each_driver {
    ($($name:ident $other:ident $long:ident $driver:expr;)*) => {
        $(
            #[test]
            fn $name() {
                gone_and_made_again($driver, 2, 1);
            }

            #[test]
            fn $other() {
                renamed_shortened_and_moved($driver);
            }

            #[test]
            #[ignore = "long"]
            fn $long() {
                gone_and_made_again($driver, 20, 1);
            }
        )*
    };
}

of_each_driver! {
    an_interface_of_our_packet_sockets_goes_and_comes_back an_interface_of_our_packet_sockets_is_renamed_and_moved an_interface_of_our_packet_sockets_goes_twenty_times DRIVERS[0];
    an_interface_of_af_packet_goes_and_comes_back an_interface_of_af_packet_is_renamed_and_moved an_interface_of_af_packet_goes_twenty_times DRIVERS[1];
    an_interface_of_af_xdp_goes_and_comes_back an_interface_of_af_xdp_is_renamed_and_moved an_interface_of_af_xdp_goes_twenty_times DRIVERS[2];
}

#[test]
fn an_interface_with_a_queue_for_each_worker_goes_and_comes_back() {
    gone_and_made_again("net_af_packet", 2, 2);
}
