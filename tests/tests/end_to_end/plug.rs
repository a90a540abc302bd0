//! Guests that come, change and leave while the daemon runs.
//!
//! Shows: plug.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vrdma_admin::guest::{AddGuest, ListGuests, RemoveGuest, SetGuest};
use vrdma_admin::{Client, ClientError, Fault};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::cm::{connected, host_address};
use vrdma_tests::net::{Header, NetGuest, NetOptions, frame, mac};
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::wait::Spell;
use vrdma_tests::{Guest, GuestOptions, GuestTcp, Lab, LabOptions, QpOptions, Rng, proc, wait};

/// Bytes of a message.
const LEN: u64 = 9000;

fn lab(guests: u8, workers: u16) -> Lab {
    Lab::with(guests, LabOptions { admin: true, workers, channels: 3, ..LabOptions::default() })
}

/// Returns the keys of a guest that comes later, with the sockets and the address of `index`.
fn keys(lab: &Lab, name: &str, index: u8) -> String {
    keys_at(&[lab.socket(index), lab.net_socket(index)], name, index)
}

fn keys_at([socket, net]: &[PathBuf; 2], name: &str, index: u8) -> String {
    let host = index + 1;
    let (socket, net) = (socket.display(), net.display());
    format!("name={name},socket={socket},net={net},mac=52:54:00:00:00:{host:02x},any-gid=true,any-vlan=true")
}

fn add(client: &mut Client, keys: String) {
    client.call(&AddGuest { guest: keys }).expect("the guest is taken");
}

fn remove(client: &mut Client, name: &str, force: bool) -> Result<(), ClientError> {
    client.call(&RemoveGuest { name: name.into(), force: Some(force) }).map(drop)
}

/// Waits until a guest that has no front-end any more is removed.
fn remove_unused(client: &mut Client, name: &str) {
    wait::until("the removal of a guest", || match remove(client, name, false) {
        Ok(()) => Some(()),
        Err(ClientError::Refused(Fault::GuestInUse { .. })) => None,
        Err(error) => panic!("{name}: {error}"),
    });
}

/// Transfers a WRITE and a SEND.
fn messages(from: &mut Side, to: &mut Side, rng: &mut Rng) {
    let data = rng.bytes(LEN as usize);
    from.mr.put(0, &data);
    let own = [from.mr.sge(0, LEN as u32)];
    to.recv(1, &[to.mr.sge(LEN, LEN as u32)]);
    from.post(&Request::write(from.qp.tag(2), to.mr.remote(2 * LEN), Data::Sges(&own)).signaled(true));
    from.post(&Request::send(from.qp.tag(3), Data::Sges(&own)).signaled(true));
    from.cq.expect(from.qp.number, 2, WcStatus::SUCCESS);
    from.cq.expect(from.qp.number, 3, WcStatus::SUCCESS);
    // Over iWARP a WRITE is known to have arrived when a later SEND has.
    to.cq.expect(to.qp.number, 1, WcStatus::SUCCESS);
    assert!([LEN, 2 * LEN].iter().all(|at| to.mr.get(*at, LEN) == data), "other bytes came");
}

#[test]
fn a_guest_that_comes_later_talks_to_all_others() {
    for workers in [1, 2, 3] {
        let lab = lab(2, workers);
        let mut client = lab.admin();
        let mut rng = Rng::new(1);
        for life in 0..3 {
            for name in [2, 3] {
                add(&mut client, keys(&lab, &format!("late{name}"), name));
            }
            let late = [lab.connect(2), lab.connect(3)];
            for (one, other) in [(&lab.guests[0], &late[0]), (&late[1], &lab.guests[1]), (&late[0], &late[1])]
            {
                let (mut a, mut b) = pair_between(one, other, 3 * LEN, &QpOptions::default());
                messages(&mut a, &mut b, &mut rng);
                messages(&mut b, &mut a, &mut rng);
                a.close();
                b.close();
            }
            let listed = client.call(&ListGuests {}).unwrap().guests;
            assert_eq!(listed.len(), 4, "life {life}");
            late.iter().for_each(|guest| guest.front_end().disconnect());
            drop(late);
            remove_unused(&mut client, "late2");
            remove_unused(&mut client, "late3");
        }
    }
}

#[test]
fn frames_reach_a_guest_that_comes_later_and_none_that_left() {
    for workers in [1, 2] {
        let lab = lab(2, workers);
        let mut client = lab.admin();
        for _ in 0..3 {
            add(&mut client, keys(&lab, "late", 2));
            let connect = |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).unwrap();
            let (mut a, mut late) = (connect(0), connect(2));
            let to = |from: u8, to: u8| frame(mac(to + 1), mac(from + 1), 0x88b5, &[0x5a; 64]);
            a.send(&to(0, 2));
            assert_eq!(late.recv().1, to(0, 2));
            late.send(&to(2, 0));
            assert_eq!(a.recv().1, to(2, 0));
            drop(late);
            remove_unused(&mut client, "late");
            let lost = |lab: &Lab| lab.stats().switch("unknown");
            let before = lost(&lab);
            a.send(&to(0, 2));
            wait::until("a frame to nobody", || (lost(&lab) > before).then_some(()));
        }
    }
}

#[test]
fn a_guest_that_is_removed_by_force_is_told_and_its_peer_sees_a_host_that_is_gone() {
    for workers in [1, 2] {
        let lab = lab(3, workers);
        let mut client = lab.admin();
        let bystanders = PingPong::start(&lab.guests[0], &lab.guests[2]);
        add(&mut client, keys(&lab, "late", 3));
        let late = lab.connect(3);
        let options = QpOptions { timeout: 8, retry_cnt: 1, ..QpOptions::default() };
        let (mut a, b) = pair_between(&lab.guests[1], &late, 3 * LEN, &options);
        match remove(&mut client, "late", false) {
            Err(ClientError::Refused(Fault::GuestInUse { pids, reason, .. })) => {
                assert_eq!(pids, [std::process::id()], "{reason}");
            }
            other => panic!("{other:?}"),
        }
        bystanders.expect_another_round();
        // Writes are on their way while it goes.
        let own = [a.mr.sge(0, LEN as u32)];
        for id in 0..8 {
            a.post(&Request::write(a.qp.tag(id), b.mr.remote(LEN), Data::Sges(&own)).signaled(true));
        }
        remove(&mut client, "late", true).unwrap();
        let mut events = late.async_events();
        assert_eq!([events.recv().kind, events.recv().kind], [EventKind::PORT_ERR, EventKind::DEVICE_FATAL]);
        drop(events);
        a.post(&Request::write(a.qp.tag(9), b.mr.remote(LEN), Data::Sges(&own)).signaled(true));
        let failed = wait::until("the end of what nobody answers", || {
            let completion = a.cq.poll()?;
            (completion.status() != WcStatus::SUCCESS).then(|| completion.status())
        });
        assert_eq!(failed, WcStatus::RETRY_EXC_ERR);
        bystanders.expect_another_round();
        // Another guest gets its numbers. It gets nothing that was meant for the first one.
        add(&mut client, keys(&lab, "later", 4));
        let later = lab.connect(4);
        let (mut c, mut d) = pair_between(&lab.guests[1], &later, 3 * LEN, &QpOptions::default());
        let mut rng = Rng::new(7);
        messages(&mut c, &mut d, &mut rng);
        messages(&mut d, &mut c, &mut rng);
        d.cq.expect_nothing(Duration::from_millis(20));
        drop((b, c, d));
        bystanders.stop();
    }
}

/// Returns the keys of a guest with an iWARP function that comes later.
fn iwarp_keys(lab: &Lab, tcp: GuestTcp, index: u8) -> String {
    let (socket, host, address) = (lab.socket(index), index + 1, host_address(index));
    let of_tcp = match tcp {
        GuestTcp::Own => format!("gid=10.0.0.{host},gid=fe80::{host:x}"),
        GuestTcp::Kernel => format!("any-gid=true,host-address={address}"),
    };
    let socket = socket.display();
    format!("name=late,socket={socket},mac=52:54:00:00:00:{host:02x},any-vlan=true,transport=iwarp,{of_tcp}")
}

#[test]
fn iwarp_guests_come_and_leave_amid_their_connections() {
    for (tcp, workers) in
        [(GuestTcp::Kernel, 1), (GuestTcp::Kernel, 2), (GuestTcp::Own, 1), (GuestTcp::Own, 2)]
    {
        for tcp_between_guests in [false, true] {
            let options = LabOptions { admin: true, workers, tcp_between_guests, ..LabOptions::default() };
            let lab = Lab::of_tcp_with(tcp, 1, options);
            let mut client = lab.admin();
            let ((mut c, of_c), (mut d, of_d)) =
                connected(&lab.guests[0], &lab.guests[1], 3 * LEN, &QpOptions::default());
            let mut rng = Rng::new(5);
            for is_forced in [true, false, true] {
                add(&mut client, iwarp_keys(&lab, tcp, 2));
                let late = lab.connect(2);
                let ((mut a, of_a), (mut b, of_b)) =
                    connected(&lab.guests[1], &late, 3 * LEN, &QpOptions::default());
                messages(&mut a, &mut b, &mut rng);
                messages(&mut b, &mut a, &mut rng);
                messages(&mut c, &mut d, &mut rng);
                if is_forced {
                    let own = [a.mr.sge(0, LEN as u32)];
                    for id in 0..8 {
                        a.post(&Request::write(a.qp.tag(id), b.mr.remote(LEN), Data::Sges(&own)));
                    }
                    remove(&mut client, "late", true).unwrap();
                    drop(b);
                } else {
                    a.guest().cm_disconnect(a.qp.number).unwrap();
                    late.cm_expect_end(of_b);
                    late.front_end().disconnect();
                    remove_unused(&mut client, "late");
                }
                a.guest().cm_expect_end(of_a);
                a.guest().cm_release(of_a).unwrap();
                a.close();
                messages(&mut d, &mut c, &mut rng);
            }
            for (side, of) in [(c, of_c), (d, of_d)] {
                side.guest().cm_disconnect(side.qp.number).ok();
                side.guest().cm_expect_end(of);
            }
        }
    }
}

#[test]
fn a_guest_with_two_rdma_functions_comes_and_leaves_as_one() {
    let lab = Lab::of_tcp_with(GuestTcp::Kernel, 1, LabOptions { admin: true, ..LabOptions::default() });
    let mut client = lab.admin();
    let second = lab.socket(2).with_extension("iwarp");
    let keys = iwarp_keys(&lab, GuestTcp::Kernel, 2).replace("transport=iwarp", "transport=both");
    let names = |client: &mut Client| -> Vec<String> {
        let guests = client.call(&ListGuests {}).unwrap().guests;
        guests.into_iter().map(|guest| guest.name).collect()
    };
    for _ in 0..2 {
        add(&mut client, format!("{keys},iwarp={}", second.display()));
        assert_eq!(names(&mut client), ["g0", "g1", "late", "late-iwarp"]);
        client.call(&SetGuest { name: "late".into(), keys: "weight=9".into() }).unwrap();
        let late = lab.connect_iwarp(2);
        assert!(remove(&mut client, "late-iwarp", true).is_err(), "it is no guest by itself");
        match remove(&mut client, "late", false) {
            Err(ClientError::Refused(Fault::GuestInUse { .. })) => {}
            other => panic!("{other:?}"),
        }
        late.front_end().disconnect();
        remove_unused(&mut client, "late");
        assert_eq!(names(&mut client), ["g0", "g1"]);
        assert!(!second.exists() && !lab.socket(2).exists());
    }
}

#[test]
fn a_netdev_loses_its_port_by_force_and_gets_another_one() {
    for workers in [1, 2] {
        let lab = lab(2, workers);
        let mut client = lab.admin();
        let connect = |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).unwrap();
        let (mut a, mut b) = (connect(0), connect(1));
        let to = |from: u8, to: u8| frame(mac(to + 1), mac(from + 1), 0x88b5, &[0x5a; 64]);
        for _ in 0..3 {
            add(&mut client, keys(&lab, "late", 2));
            let mut late = connect(2);
            late.send(&to(2, 1));
            assert_eq!(b.recv().1, to(2, 1));
            remove(&mut client, "late", true).unwrap();
            a.send(&to(0, 2));
            a.send(&to(0, 1));
            assert_eq!(b.recv().1, to(0, 1));
            // Its frames have nobody who takes them.
            late.try_send(Header::default(), &to(2, 1));
            b.expect_nothing();
        }
    }
}

#[test]
fn a_guest_that_runs_gets_what_is_set() {
    let lab = lab(2, 1);
    let mut client = lab.admin();
    let beside = PingPong::start(&lab.guests[0], &lab.guests[1]);
    for weight in [1, 100, 7] {
        let keys = format!("weight={weight},tx_bytes=2000000000,rx_messages=1000000");
        client.call(&SetGuest { name: "g0".into(), keys }).unwrap();
        beside.expect_another_round();
    }
    // What is over the rate is held back.
    client.call(&SetGuest { name: "g0".into(), keys: "tx_bytes=1000000,burst_ms=1".into() }).unwrap();
    wait::until("something that is held back", || (lab.stats().transport(0, "tx_held") != 0).then_some(()));
    client.call(&SetGuest { name: "g0".into(), keys: "tx_bytes=0".into() }).unwrap();
    beside.stop();
}

/// How many guests come and leave at random.
const MANY: u8 = 100;

/// What threads have to know of a lab.
#[derive(Debug)]
struct Places {
    admin: PathBuf,
    /// The sockets of each guest.
    sockets: Vec<[PathBuf; 2]>,
}

impl Places {
    fn of(lab: &Lab) -> Places {
        let sockets = |index| [lab.socket(index), lab.net_socket(index)];
        Places { admin: lab.admin_path(), sockets: (0..4 + MANY).map(sockets).collect() }
    }

    fn keys(&self, name: &str, index: u8) -> String {
        keys_at(&self.sockets[usize::from(index)], name, index)
    }

    fn admin(&self) -> Client {
        let client = Client::connect(&self.admin).expect("the daemon listens");
        client.set_timeout(Some(wait::PATIENCE)).expect("a time that is not zero");
        client
    }
}

/// Lets the guests `range` come, talk, change and leave at random. Returns how often one left.
fn plug(places: &Places, range: std::ops::Range<u8>, resident: &Arc<Guest>, spell: Spell) -> u32 {
    let mut rng = Rng::new(range.start.into());
    let mut client = places.admin();
    let mut here: Vec<u8> = Vec::new();
    let mut left = 0;
    while spell.lasts_until(left > 5) {
        let index = range.start + rng.below(u64::from(range.end - range.start)) as u8;
        let name = format!("late{index}");
        match (here.iter().position(|other| *other == index), rng.below(4)) {
            (None, _) => {
                add(&mut client, places.keys(&name, index));
                here.push(index);
            }
            (Some(_), 0) => {
                let keys = format!("weight={},tx_bytes={}", 1 + rng.below(100), rng.below(2) * 1_000_000_000);
                client.call(&SetGuest { name, keys }).unwrap();
            }
            (Some(_), 1) => visit(places, index, resident, &mut rng, None),
            (Some(at), 2) => {
                visit(places, index, resident, &mut rng, Some((&mut client, &name)));
                here.swap_remove(at);
                left += 1;
            }
            (Some(at), _) => {
                remove_unused(&mut client, &name);
                here.swap_remove(at);
                left += 1;
            }
        }
    }
    here.iter().for_each(|index| remove_unused(&mut client, &format!("late{index}")));
    left
}

/// Has a guest talk to the resident. If it is to be removed, that happens amid its messages.
fn visit(
    places: &Places,
    index: u8,
    resident: &Arc<Guest>,
    rng: &mut Rng,
    removal: Option<(&mut Client, &str)>,
) {
    let options =
        GuestOptions { memory: vec![(0x1000, 1 << 20)], host: index + 1, ..GuestOptions::default() };
    let guest = connect(&places.sockets[usize::from(index)][0], options);
    let (mut a, mut b) = pair_between(&guest, resident, 3 * LEN, &QpOptions::default());
    messages(&mut a, &mut b, rng);
    messages(&mut b, &mut a, rng);
    if let Some((client, name)) = removal {
        let own = [b.mr.sge(0, LEN as u32)];
        for id in 0..8 {
            b.post(&Request::write(b.qp.tag(id), a.mr.remote(LEN), Data::Sges(&own)));
        }
        remove(client, name, true).unwrap();
        // Nobody answers a guest that has no device.
        drop(a);
    } else {
        a.close();
    }
    b.close();
}

/// Connects a guest. Its front-end may find the last one's session still busy with its end.
fn connect(socket: &Path, options: GuestOptions) -> Arc<Guest> {
    let guest = wait::until("a session that is free", || Guest::connect(socket, options.clone()).ok());
    guest.set_gid();
    guest
}

fn soak(time: Duration) {
    let helper = Path::new(env!("CARGO_BIN_EXE_vrdma-test-daemon")).to_owned();
    for workers in [1, 3] {
        let program = Some(helper.clone());
        let options = LabOptions { admin: true, workers, channels: 3, program, ..LabOptions::default() };
        let lab = &Lab::with(4, options);
        let (pid, places) = (lab.daemon.pid(), &Places::of(lab));
        let bystanders = PingPong::start(&lab.guests[0], &lab.guests[1]);
        // Some memory, threads and descriptors come with the first guest, and stay.
        plug(places, 4..4 + MANY, &lab.guests[2], Spell::of(Duration::ZERO));
        let open = || (proc::threads(pid), proc::descriptors(pid), proc::guest_mappings(pid));
        let before = wait::until("a moment of rest", || {
            let first = open();
            wait::pause(Duration::from_millis(50), "what ends meanwhile is not counted");
            (open() == first).then_some(first)
        });
        let memory = proc::anonymous(pid);
        let spell = Spell::of(time / 2);
        let left: Vec<u32> = thread::scope(|scope| {
            let halves = [(4..4 + MANY / 2, 2), (4 + MANY / 2..4 + MANY, 3)];
            let threads = halves.map(|(range, resident)| {
                let resident = &lab.guests[resident];
                scope.spawn(move || plug(places, range, resident, spell))
            });
            threads.into_iter().map(|thread| thread.join().expect("all went as it should")).collect()
        });
        println!("{workers} workers: guests that left: {left:?}");
        bystanders.stop();
        let same = wait::within(wait::PATIENCE, || {
            let now = open();
            (now.0 <= before.0 && now.1 <= before.1 && now.2 <= before.2).then_some(())
        });
        assert!(same.is_some(), "{:?} threads, descriptors and mappings, not {before:?}", open());
        let more = proc::anonymous(pid).saturating_sub(memory);
        println!("{more} more bytes of memory than {memory}");
        assert!(more < 32 << 20, "{more} more bytes of memory");
    }
}

#[test]
fn guests_come_change_and_leave_at_random_beside_others() {
    soak(Duration::from_secs(16));
}

#[test]
#[ignore = "long"]
fn guests_come_change_and_leave_at_random_for_ten_minutes() {
    soak(Duration::from_secs(600));
}
