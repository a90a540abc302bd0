//! Captures of a running daemon, as tshark reads them.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::SystemTime;
use tempfile::TempDir;
use vrdma_admin::Closer;
use vrdma_admin::capture::{CaptureEnd, CaptureProgress, StartCapture};
use vrdma_admin::guest::{AddGuest, RemoveGuest};
use vrdma_tests::abi::ah::AhEntry;
use vrdma_tests::abi::control::QpType;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::daemon::Stats;
use vrdma_tests::net::{NetGuest, NetOptions, frame, mac};
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{CableOptions, Lab, LabOptions, QpOptions, Setting};
use vrdma_wire::num::Gid;

/// A capture to a file.
struct Capture {
    path: PathBuf,
    closer: Closer,
    replies: JoinHandle<CaptureProgress>,
    /// When it began, in seconds since 1970.
    begun: f64,
    _dir: TempDir,
}

/// What tshark reads of a packet.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    interface: String,
    opcode: Option<u8>,
    psn: Option<u32>,
    qpn: Option<u32>,
    comment: String,
    length: usize,
    kept: usize,
    ends: [String; 2],
}

impl Capture {
    /// Begins a capture. It has begun in all workers when this returns.
    fn begin(lab: &Lab, start: StartCapture) -> Capture {
        let (dir, begun_at) = (TempDir::new().unwrap(), seconds_now());
        let path = dir.path().join("capture.pcapng");
        let file = std::fs::File::create(&path).unwrap();
        let mut client = lab.admin();
        let closer = client.closer().unwrap();
        let (begun, has_begun) = channel();
        let replies = std::thread::spawn(move || {
            let replies = client.follow_with(&start, &[file.as_fd()]).unwrap();
            let mut last = CaptureProgress::default();
            for reply in replies {
                last = reply.unwrap();
                let _ = begun.send(());
            }
            last
        });
        has_begun.recv().expect("it is not refused");
        Capture { path, closer, replies, begun: begun_at, _dir: dir }
    }

    fn all(lab: &Lab) -> Capture {
        Capture::begin(lab, StartCapture::default())
    }

    /// Ends it, and returns what tshark reads.
    ///
    /// Packets that were sent again are there once, if the daemon's counters say that there were
    /// some: a receive was not there in time, or the machine was slow.
    fn end(self, lab: &Lab) -> Vec<Row> {
        self.closer.close().unwrap();
        let last = self.replies.join().unwrap();
        assert_eq!((last.end, last.missed), (Some(CaptureEnd::Asked), 0), "{last:?}");
        let rows = read(&self.path, self.begun);
        assert_eq!(rows.len() as u64, last.packets);
        if are_sent_again(lab) { without_repeats(rows) } else { rows }
    }
}

/// Leaves out packets that were sent again.
fn without_repeats(mut rows: Vec<Row>) -> Vec<Row> {
    let mut seen = HashSet::new();
    rows.retain(|row| row.psn.is_none() || seen.insert((row.qpn, row.psn, row.opcode, row.ends.clone())));
    rows
}

/// Whether a queue pair has sent anything again.
fn are_sent_again(lab: &Lab) -> bool {
    let mut all = vec![lab.stats()];
    all.extend(lab.remote.is_some().then(|| lab.remote_stats()));
    let again = |stats: &Stats, guest| stats.transport(guest, "rnr_naks") + stats.transport(guest, "retries");
    all.iter().any(|stats| (0..stats.guests()).any(|guest| again(stats, guest) != 0))
}

/// Returns the time since 1970 in seconds.
fn seconds_now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

/// Returns the packets of a file, whose times are after `begun`.
fn read(path: &Path, begun: f64) -> Vec<Row> {
    // Clocks that differ by less are no fault. A wrong unit differs by years.
    let times = begun - 60.0..=seconds_now() + 60.0;
    const FIELDS: [&str; 11] = [
        "frame.interface_name",
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.bth.destqp",
        "frame.comment",
        "frame.len",
        "frame.cap_len",
        "_ws.malformed",
        "ip.src",
        "ip.dst",
        "frame.time_epoch",
    ];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(path).args(["-T", "fields", "-E", "separator=|"]);
    let output =
        tshark.args(FIELDS.iter().flat_map(|field| ["-e", field])).output().expect("tshark is there");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().map(|line| {
        let fields: Vec<&str> = line.split('|').collect();
        let [interface, opcode, psn, qpn, comment, length, kept, malformed, from, to, at] = fields[..] else {
            panic!("{line}")
        };
        assert_eq!(malformed, "", "{line}");
        assert!(times.contains(&at.parse().unwrap()), "not of {times:?}: {line}");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        Row {
            interface: interface.into(),
            opcode: number(opcode).map(|opcode| opcode as u8),
            psn: number(psn),
            qpn: number(qpn),
            comment: comment.into(),
            length: length.parse().unwrap(),
            kept: kept.parse().unwrap(),
            ends: [from.into(), to.into()],
        }
    });
    rows.collect()
}

fn lab(options: LabOptions) -> Lab {
    Lab::with(2, LabOptions { admin: true, ..options })
}

const LONG: u32 = 2500;

/// Sends a message of each kind, and waits until all have ended.
fn send_all((a, b): (&mut Side, &mut Side)) {
    let own = [a.mr.sge(0, LONG)];
    b.recv(9, &[b.mr.sge(0, 4096)]);
    a.post(&Request::send(a.qp.tag(1), Data::Sges(&own)).signaled(true));
    a.post(&Request::write(a.qp.tag(2), b.mr.remote(0), Data::Sges(&own)).signaled(true));
    a.post(&Request::read(a.qp.tag(3), b.mr.remote(0), &own).signaled(true));
    a.post(&Request::fetch_add(a.qp.tag(4), b.mr.remote(0), 1, &a.mr.sge(0, 8)).signaled(true));
    for id in 1..=4 {
        a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
    }
    b.cq.expect(b.qp.number, 9, WcStatus::SUCCESS);
}

/// The opcodes of [`send_all`] with a path MTU of 1024, of both sides in turn (IBTA table 38).
const REQUESTS: [u8; 8] = [0x00, 0x01, 0x02, 0x06, 0x07, 0x08, 0x0c, 0x14];
const ANSWERS: [u8; 4] = [0x0d, 0x0e, 0x0f, 0x12];
const ACKNOWLEDGE: u8 = 0x11;

/// A queue pair, as packets name it: its guest's address, and its number. On different workers two
/// may have one number.
type Receiver = (String, u32);

fn receiver(side: &Side) -> Receiver {
    let gid = side.guest().gid();
    (format!("{}.{}.{}.{}", gid[12], gid[13], gid[14], gid[15]), side.qp.number)
}

/// Returns the packets to a queue pair.
fn rows_to<'a>(rows: &'a [Row], (address, qpn): &'a Receiver) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.qpn == Some(*qpn) && row.ends[1] == *address)
}

fn opcodes(rows: &[Row], to: &Receiver) -> Vec<u8> {
    rows_to(rows, to).filter_map(|row| row.opcode).collect()
}

fn options() -> QpOptions {
    QpOptions { path_mtu: 3, ..QpOptions::default() }
}

/// On one worker, packets are made for the capture alone.
#[test]
fn messages_are_shown_as_packets_wherever_both_guests_are() {
    for setting in Setting::ALL {
        let lab = lab(setting.options());
        let (mut a, mut b) = pair(&lab, 1, 4096, &options());
        let capture = Capture::all(&lab);
        send_all((&mut a, &mut b));
        let rows = capture.end(&lab);
        assert_eq!(opcodes(&rows, &receiver(&b)), REQUESTS, "{setting:?}");
        let answers = opcodes(&rows, &receiver(&a));
        let others: Vec<u8> = answers.iter().copied().filter(|opcode| *opcode != ACKNOWLEDGE).collect();
        assert_eq!(others, ANSWERS, "{setting:?}");
        let is_local = setting == Setting::OneWorker && lab.workers() == 1;
        if is_local {
            assert_eq!(answers.len(), 2 + ANSWERS.len(), "each message has one acknowledge");
        }
        let places = |to: &Side| {
            let mut places: Vec<_> = rows_to(&rows, &receiver(to)).map(|row| row.interface.clone()).collect();
            places.dedup();
            places
        };
        let (sent, came) = match setting {
            Setting::TwoHosts => ("uplink", "uplink"),
            Setting::OneWorker | Setting::TwoWorkers => ("g0", "g1"),
        };
        assert_eq!((places(&b), places(&a)), (vec![sent.to_owned()], vec![came.to_owned()]));
        for row in &rows {
            assert_eq!(row.comment.contains("same host"), setting != Setting::TwoHosts, "{row:?}");
            assert_eq!(row.length, row.kept);
        }
        // PSNs follow each other, and those of a response belong to its READ.
        let psns: Vec<u32> = rows_to(&rows, &receiver(&b)).filter_map(|row| row.psn).collect();
        let wanted: Vec<u32> = [0, 1, 2, 3, 4, 5, 6, 9].map(|after| (psns[0] + after) & 0xff_ffff).to_vec();
        assert_eq!(psns, wanted, "{setting:?}");
    }
}

/// Returns what a capture without a filter shows of these addresses, in any order.
fn of_addresses(rows: &[Row], addresses: &[&str]) -> Vec<String> {
    let is_one = |row: &&Row| row.ends.iter().any(|end| addresses.contains(&end.as_str()));
    sorted(rows.iter().filter(is_one))
}

fn sorted<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    let mut shown: Vec<String> = rows.map(|row| format!("{row:?}")).collect();
    shown.sort();
    shown
}

/// Two pairs talk. On two hosts, each pair has one guest on either.
#[test]
fn filters_take_a_guest_a_queue_pair_or_an_address_and_nothing_of_others() {
    for setting in Setting::ALL {
        let lab = Lab::with(4, LabOptions { admin: true, ..setting.options() });
        let (mut a, mut b) = pair(&lab, 1, 4096, &options());
        let (mut c, mut d) =
            vrdma_tests::side::pair_between(&lab.guests[2], &lab.guests[3], 4096, &options());
        let of = |guest: Option<&str>, qpn: Option<u32>, peer: Option<&str>| {
            let (guest, peer) = (guest.map(str::to_owned), peer.map(str::to_owned));
            Capture::begin(&lab, StartCapture { guest, qpn, peer, ..StartCapture::default() })
        };
        let captures = [
            of(None, None, None),
            of(Some("g0"), None, None),
            of(Some("g0"), Some(a.qp.number), None),
            of(None, None, Some("10.0.0.2")),
        ];
        send_all((&mut a, &mut b));
        send_all((&mut c, &mut d));
        let [all, by_guest, by_qp, by_peer] = captures.map(|capture| capture.end(&lab));
        let (first, second) =
            (of_addresses(&all, &["10.0.0.1", "10.0.0.2"]), of_addresses(&all, &["10.0.0.3", "10.0.0.4"]));
        // Each pair has its requests and answers, so that a filter has something to leave out.
        for pair in [&first, &second] {
            assert!(pair.len() >= REQUESTS.len() + ANSWERS.len(), "{setting:?}: {pair:?}");
        }
        assert_eq!(first.len() + second.len(), all.len(), "{setting:?}");
        for rows in [by_guest, by_qp, by_peer] {
            assert_eq!(sorted(rows.iter()), first, "{setting:?}");
        }
        let nothing = of(Some("g0"), None, Some("10.0.0.3"));
        let third = of(Some("g2"), None, None);
        send_all((&mut a, &mut b));
        send_all((&mut c, &mut d));
        assert_eq!(nothing.end(&lab), [], "{setting:?}");
        let third = third.end(&lab);
        assert_eq!(third.len(), of_addresses(&third, &["10.0.0.3"]).len(), "{setting:?}");
        assert!(third.len() >= REQUESTS.len() + ANSWERS.len(), "{setting:?}");
    }
}

/// A datagram to a group is shown to those that have joined it.
#[test]
fn a_guest_is_shown_packets_to_its_own_groups_alone() {
    for setting in Setting::ALL {
        let lab = Lab::with(4, LabOptions { admin: true, ..setting.options() });
        // On two hosts, the sender is on the other one.
        let sides: Vec<Side> =
            (0..4).map(|guest| Side::new(&lab.guests[guest], 4096, &QpOptions::of(QpType::UD))).collect();
        sides.iter().for_each(|side| side.qp.start().unwrap());
        let mut sides = sides;
        let mgid = Gid::from_ipv4([239, 1, 2, 3]).0;
        for member in [0, 3] {
            sides[member].guest().attach_mcast(sides[member].qp.number, mgid).unwrap();
        }
        let handles = AhTable::new(&lab.guests[1], 64).unwrap();
        let group = entry(sides[1].process.pd, mgid);
        handles.put(3, &AhEntry { dmac: Gid(mgid).group_mac().0, ..group });
        let of = |guest: &str| {
            Capture::begin(&lab, StartCapture { guest: Some(guest.into()), ..StartCapture::default() })
        };
        let captures = [Capture::all(&lab), of("g0"), of("g2")];
        let room = sides[0].mr.sge(0, 4096);
        sides[0].recv(5, &[room]);
        let to = UdTarget { ah: 3, qpn: 0xff_ffff, qkey: sides[1].qp.options.qkey };
        let request = Request::ud_send(sides[1].qp.tag(7), to, Data::Inline(b"hello")).signaled(true);
        sides[1].post(&request);
        let (number, sender) = (sides[0].qp.number, sides[1].qp.number);
        sides[1].cq.expect(sender, 7, WcStatus::SUCCESS);
        sides[0].cq.expect(number, 5, WcStatus::SUCCESS);
        let [all, member, other] = captures.map(|capture| capture.end(&lab));
        let of_group = |rows: &[Row]| {
            rows.iter().filter(|row| row.ends[1] == "239.1.2.3").map(|row| row.opcode).collect::<Vec<_>>()
        };
        assert_eq!(of_group(&all), [Some(0x64)], "{setting:?}");
        assert_eq!(of_group(&member), [Some(0x64)], "{setting:?}: it has joined");
        assert_eq!(of_group(&other), [], "{setting:?}: it has not");
        // Once it joins, it has them, too; and the first one no more when it has left.
        sides[2].guest().attach_mcast(sides[2].qp.number, mgid).unwrap();
        sides[0].guest().detach_mcast(number, mgid).unwrap();
        let captures = [of("g0"), of("g2")];
        let room = sides[2].mr.sge(0, 4096);
        sides[2].recv(6, &[room]);
        let request = Request::ud_send(sides[1].qp.tag(8), to, Data::Inline(b"hello")).signaled(true);
        sides[1].post(&request);
        let number = sides[2].qp.number;
        sides[1].cq.expect(sender, 8, WcStatus::SUCCESS);
        sides[2].cq.expect(number, 6, WcStatus::SUCCESS);
        let [former, member] = captures.map(|capture| capture.end(&lab));
        assert_eq!((of_group(&former), of_group(&member)), (vec![], vec![Some(0x64)]), "{setting:?}");
    }
}

/// A capture shows guests that come while it runs.
#[test]
fn a_guest_that_comes_and_leaves_is_captured_meanwhile() {
    for setting in [Setting::OneWorker, Setting::TwoWorkers] {
        let lab = Lab::with(2, LabOptions { admin: true, ..setting.options() });
        let capture = Capture::all(&lab);
        let mut client = lab.admin();
        let keys = format!("name=late,socket={},mac=52:54:00:00:00:03,any-gid=true", lab.socket(2).display());
        client.call(&AddGuest { guest: keys }).unwrap();
        let late = lab.connect(2);
        let of_late =
            Capture::begin(&lab, StartCapture { guest: Some("late".into()), ..StartCapture::default() });
        let (mut a, mut b) = vrdma_tests::side::pair_between(&late, &lab.guests[1], 4096, &options());
        send_all((&mut a, &mut b));
        let (to_late, to_other) = (receiver(&a), receiver(&b));
        a.close();
        b.close();
        late.front_end().disconnect();
        drop(late);
        client.call(&RemoveGuest { name: "late".into(), force: Some(true) }).unwrap();
        // Nobody asked for this end.
        let last = of_late.replies.join().unwrap();
        assert_eq!((last.end, last.missed), (Some(CaptureEnd::GuestRemoved), 0), "{last:?}");
        assert_eq!(read(&of_late.path, of_late.begun).len() as u64, last.packets);
        assert!(last.packets as usize >= REQUESTS.len() + ANSWERS.len());
        // A receive may have come late. The counters that tell have gone with the guest.
        let rows = without_repeats(capture.end(&lab));
        assert_eq!(opcodes(&rows, &to_other), REQUESTS, "{setting:?}");
        let is_late = |row: &&Row| row.interface == "late";
        assert_eq!(rows_to(&rows, &to_other).filter(is_late).count(), REQUESTS.len(), "{setting:?}");
        assert!(!opcodes(&rows, &to_late).is_empty());
    }
}

#[test]
fn a_queue_pair_that_has_nothing_to_do_with_it_is_not_captured() {
    let lab = lab(LabOptions::default());
    let (mut a, mut b) = pair(&lab, 1, 4096, &options());
    let other = a.qp.number + 100;
    let capture = Capture::begin(&lab, StartCapture { qpn: Some(other), ..StartCapture::default() });
    send_all((&mut a, &mut b));
    assert_eq!(capture.end(&lab), []);
}

#[test]
fn datagrams_are_shown_with_their_sender() {
    for setting in Setting::ALL {
        let lab = lab(setting.options());
        let (mut a, mut b) = pair(&lab, 1, 8192, &QpOptions::of(QpType::UD));
        let handles = AhTable::new(&lab.guests[0], 64).unwrap();
        handles.put(3, &entry(a.process.pd, b.guest().gid()));
        let by_sender =
            StartCapture { guest: Some("g0".into()), qpn: Some(a.qp.number), ..StartCapture::default() };
        let capture = Capture::begin(&lab, by_sender);
        b.recv(1, &[b.mr.sge(0, 4096)]);
        let to = UdTarget { ah: 3, qpn: b.qp.number, qkey: b.qp.options.qkey };
        a.post(&Request::ud_send(a.qp.tag(7), to, Data::Inline(b"hello")).signaled(true));
        a.cq.expect(a.qp.number, 7, WcStatus::SUCCESS);
        b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS);
        let rows = capture.end(&lab);
        assert_eq!(opcodes(&rows, &receiver(&b)), [0x64], "{setting:?}");
        assert_eq!(rows.len(), 1);
    }
}

#[test]
fn packets_are_cut_where_that_is_wanted_and_end_when_there_are_enough() {
    let lab = lab(LabOptions::default());
    let (mut a, mut b) = pair(&lab, 1, 4096, &options());
    let start = StartCapture { snap: Some(100), count: Some(3), ..StartCapture::default() };
    let capture = Capture::begin(&lab, start);
    send_all((&mut a, &mut b));
    let last = capture.replies.join().unwrap();
    assert_eq!((last.packets, last.end), (3, Some(CaptureEnd::Count)));
    let rows = read(&capture.path, capture.begun);
    assert!(rows.iter().all(|row| row.kept <= 100) && rows.iter().any(|row| row.length > 1000), "{rows:?}");
}

#[test]
fn frames_are_captured_once_in_both_directions_of_the_uplink_and_between_guests() {
    let cable = Some(CableOptions { held: true, ..CableOptions::default() });
    let mut lab = Lab::without_guests(2, LabOptions { cable, admin: true, ..LabOptions::default() });
    let mut guests: Vec<NetGuest> = (0..2)
        .map(|index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).unwrap())
        .collect();
    let mut outside = lab.outside.take().unwrap();
    let far = [2, 0, 0, 0, 0, 77];
    let mut send = |frame: &[u8]| {
        let mut room = outside.transmit(frame.len()).expect("room");
        room.buf()[..frame.len()].copy_from_slice(frame);
        room.commit(frame.len());
        outside.flush();
    };
    // The switch learns where the other host is.
    send(&frame(mac(1), far, 0x88b5, &[1; 100]));
    guests[0].recv();
    let capture = Capture::all(&lab);
    send(&frame(mac(1), far, 0x88b5, &[1; 101]));
    guests[0].recv();
    guests[0].send(&frame(far, mac(1), 0x88b5, &[2; 102]));
    guests[0].send(&frame(mac(2), mac(1), 0x88b5, &[3; 103]));
    guests[1].recv();
    let rows = capture.end(&lab);
    let seen: Vec<_> = rows.iter().map(|row| (row.interface.as_str(), row.length - 14)).collect();
    assert_eq!(seen, [("uplink", 101), ("uplink", 102), ("g0", 103)]);
}

/// Each worker has a copy of it.
#[test]
fn a_frame_to_all_is_captured_once_however_many_workers_there_are() {
    for workers in [1, 3] {
        let cable = Some(CableOptions { held: true, ..CableOptions::default() });
        let options = LabOptions { cable, admin: true, workers, ..LabOptions::default() };
        let mut lab = Lab::without_guests(3, options);
        let mut guests: Vec<NetGuest> = (0..3)
            .map(|index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).unwrap())
            .collect();
        let mut outside = lab.outside.take().unwrap();
        let of = |guest: Option<&str>| {
            let guest = guest.map(str::to_owned);
            Capture::begin(&lab, StartCapture { guest, ..StartCapture::default() })
        };
        let captures = [of(None), of(Some("g0")), of(Some("g2"))];
        let from_far = frame([0xff; 6], [2, 0, 0, 0, 0, 77], 0x88b5, &[1; 101]);
        let mut room = outside.transmit(from_far.len()).expect("room");
        room.buf()[..from_far.len()].copy_from_slice(&from_far);
        room.commit(from_far.len());
        outside.flush();
        guests.iter_mut().for_each(|guest| _ = guest.recv());
        guests[1].send(&frame([0xff; 6], mac(2), 0x88b5, &[2; 102]));
        for guest in [0, 2] {
            guests[guest].recv();
        }
        let wanted = [("uplink".to_owned(), 101), ("g1".to_owned(), 102)];
        for capture in captures {
            let rows = capture.end(&lab);
            let seen: Vec<_> = rows.iter().map(|row| (row.interface.clone(), row.length - 14)).collect();
            assert_eq!(seen, wanted, "{workers} workers");
        }
    }
}

#[test]
fn a_capture_that_fails_or_stalls_disturbs_no_guest() {
    let lab = lab(LabOptions::default());
    let (mut a, mut b) = pair(&lab, 1, 4096, &options());
    let read_only = std::fs::File::open("/proc/self/exe").unwrap();
    let mut client = lab.admin();
    let replies: Vec<_> =
        client.follow_with(&StartCapture::default(), &[read_only.as_fd()]).unwrap().collect();
    let last = replies.last().unwrap().as_ref().unwrap();
    assert_eq!((last.end, last.reason.as_deref()), (Some(CaptureEnd::Failed), Some("Bad file descriptor")));
    // Nobody reads this pipe.
    let (_reader, writer) = io::pipe().unwrap();
    let mut client = lab.admin();
    let mut replies = client.follow_with(&StartCapture::default(), &[writer.as_fd()]).unwrap();
    assert_eq!(replies.next().unwrap().unwrap().end, None);
    let capture = Capture::all(&lab);
    for _ in 0..100 {
        send_all((&mut a, &mut b));
    }
    let rows = capture.end(&lab);
    assert_eq!(opcodes(&rows, &receiver(&b)).len(), 100 * REQUESTS.len());
}
