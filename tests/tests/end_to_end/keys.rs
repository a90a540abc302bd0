//! Keys that change.
//!
//! Tests cover memory windows of both types, invalidation by local requests and by peers, and
//! re-registration. A key is valid only at the moment of its use, and only for its owner.

use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::control::{QpState, QpType, ReregMrReq, Status, access, mw_type, rereg};
use vrdma_tests::abi::cqe::{WcOpcode, WcStatus};
use vrdma_tests::abi::wqe::WrOpcode;
use vrdma_tests::control::run;
use vrdma_tests::raw::{self, Bind, RawPoster};
use vrdma_tests::side::{self, Side};
use vrdma_tests::verbs::Remote;
use vrdma_tests::{CableOptions, Lab, LabOptions, Qp, QpOptions, connect, wait};

const RW: u32 = access::REMOTE_WRITE | access::REMOTE_READ;
/// Bytes of each side's region.
const LEN: u64 = 8192;
const AT: u64 = 4096;
const SHOWN: u64 = 64;

/// A process that writes its requests word by word.
struct Process {
    side: Side,
    poster: RawPoster,
}

impl Process {
    fn new(side: Side) -> Process {
        Process { side, poster: RawPoster::default() }
    }

    /// Posts a request, waits for its completion and returns the status.
    fn ends(&mut self, words: &[u64]) -> WcStatus {
        self.poster.post(&mut self.side.process.channel, words);
        self.side.cq.wait().status()
    }

    fn of(&self, id: u32) -> (u32, u32) {
        (self.side.qp.number, id)
    }

    fn window(&self, mw_type: u32) -> u32 {
        self.side.guest().alloc_mw(self.side.process.pd, mw_type).expect("a window")
    }

    /// Returns a bind of a window to [`SHOWN`] bytes of the own region.
    fn bind(&self, rkey: u32) -> Bind {
        let (lkey, addr) = (self.side.mr.key, self.side.mr.iova + AT);
        Bind { rkey, new_rkey: rkey ^ 0x21, lkey, access: RW, addr, length: SHOWN }
    }

    /// Allocates a window and binds it.
    fn bound(&mut self, mw_type: u32) -> Bind {
        let bind = self.bind(self.window(mw_type));
        assert_eq!(self.ends(&raw::bind_mw(self.of(1), &bind)), WcStatus::SUCCESS);
        bind
    }

    /// WRITEs 8 bytes of one value to an address of the peer.
    fn write(&mut self, remote: Remote, byte: u8) -> WcStatus {
        self.side.mr.put(0, &[byte; 8]);
        let sge = Some(self.side.mr.sge(0, 8));
        self.ends(&raw::remote(WrOpcode::RDMA_WRITE, self.of(2), remote, sge))
    }

    fn shown(&self) -> Vec<u8> {
        self.side.mr.get(AT, 8)
    }
}

fn place(bind: &Bind) -> Remote {
    Remote { addr: bind.addr, rkey: bind.new_rkey }
}

fn processes(lab: &Lab, options: &QpOptions) -> [Process; 2] {
    let (a, b) = side::pair(lab, 1, LEN, options);
    [a, b].map(Process::new)
}

/// Resets and reconnects both QPs, and empties the CQs.
fn connect_again(a: &mut Process, b: &mut Process) {
    for process in [&mut *a, &mut *b] {
        process.side.qp.to_state(QpState::RESET).unwrap();
        while process.side.cq.poll().is_some() {}
    }
    connect(&a.side.qp, &b.side.qp);
}

/// Returns a lab on one host, and one on two hosts.
fn labs() -> [Lab; 2] {
    let cable = Some(CableOptions::default());
    [Lab::new(2), Lab::with(2, LabOptions { cable, ..LabOptions::default() })]
}

#[test]
fn a_peer_reaches_a_window_until_it_is_invalidated() {
    for lab in labs() {
        let [mut a, mut b] = processes(&lab, &QpOptions::default());
        for (mw_type, value) in [(mw_type::TYPE_1, 10), (mw_type::TYPE_2B, 20)] {
            let bind = b.bound(mw_type);
            assert_eq!(a.write(place(&bind), value), WcStatus::SUCCESS);
            assert_eq!(b.shown(), [value; 8]);
            // Read the bytes back.
            let sge = Some(a.side.mr.sge(64, 8));
            assert_eq!(
                a.ends(&raw::remote(WrOpcode::RDMA_READ, a.of(3), place(&bind), sge)),
                WcStatus::SUCCESS
            );
            assert_eq!(a.side.mr.get(64, 8), [value; 8]);
            let end = match mw_type {
                mw_type::TYPE_1 => raw::bind_mw(b.of(4), &Bind { rkey: bind.new_rkey, length: 0, ..bind }),
                _ => raw::key(WrOpcode::LOCAL_INV, b.of(4), bind.new_rkey, None),
            };
            assert_eq!(b.ends(&end), WcStatus::SUCCESS);
            assert_eq!(a.write(place(&bind), value + 1), WcStatus::REM_ACCESS_ERR);
            assert_eq!(b.shown(), [value; 8], "not a byte");
            connect_again(&mut a, &mut b);
            b.side.guest().dealloc_mw(bind.rkey).expect("whatever its tag is now");
        }
        assert_eq!(lab.transport(1, "binds"), 3);
        assert_eq!(lab.transport(1, "invalidations"), 1);
    }
}

#[test]
fn a_send_invalidates_and_the_receiver_is_told_which_key() {
    for lab in labs() {
        let [mut a, mut b] = processes(&lab, &QpOptions::default());
        let bind = b.bound(mw_type::TYPE_2B);
        let sge = Some(b.side.mr.sge(0, 16));
        let receive = raw::recv(b.of(5), sge);
        b.poster.post(&mut b.side.process.channel, &receive);
        let sge = Some(a.side.mr.sge(0, 16));
        assert_eq!(
            a.ends(&raw::key(WrOpcode::SEND_WITH_INV, a.of(6), bind.new_rkey, sge)),
            WcStatus::SUCCESS
        );
        let wc = b.side.cq.wait();
        assert_eq!((wc.id(), wc.status(), wc.opcode(), wc.len()), (5, WcStatus::SUCCESS, WcOpcode::RECV, 16));
        assert_eq!((wc.invalidated(), wc.imm()), (Some(bind.new_rkey), None));
        assert_eq!(a.write(place(&bind), 1), WcStatus::REM_ACCESS_ERR);
        assert_eq!(b.shown(), [0; 8]);
        connect_again(&mut a, &mut b);
        // A key that the peer may not invalidate ends both QPs.
        let receive = raw::recv(b.of(7), None);
        b.poster.post(&mut b.side.process.channel, &receive);
        let request = raw::key(WrOpcode::SEND_WITH_INV, a.of(8), b.side.mr.key, None);
        assert_eq!(a.ends(&request), WcStatus::REM_ACCESS_ERR);
        assert_eq!(b.side.cq.wait().status(), WcStatus::REM_INV_REQ_ERR);
        assert_eq!((a.side.qp.state(), b.side.qp.state()), (QpState::ERR, QpState::ERR));
    }
}

#[test]
fn a_process_cannot_touch_the_windows_and_regions_of_another() {
    let lab = Lab::new(2);
    let [mut a, mut victim] = processes(&lab, &QpOptions::default());
    let [mut peer, mut thief] = processes(&lab, &QpOptions::default());
    assert_eq!(thief.side.guest().gid(), victim.side.guest().gid(), "of the same guest");
    let one = victim.bound(mw_type::TYPE_1);
    let two = victim.bound(mw_type::TYPE_2B);
    let free = victim.window(mw_type::TYPE_2B);
    let own = thief.window(mw_type::TYPE_2B);
    let mine = thief.bind(own);
    let (lkey, addr) = (victim.side.mr.key, victim.side.mr.iova);
    let of = thief.of(9);
    let inv = |key| raw::key(WrOpcode::LOCAL_INV, of, key, None);
    let attempts = [
        (
            "another's window",
            raw::bind_mw(of, &Bind { rkey: free, new_rkey: free, ..mine }),
            WcStatus::MW_BIND_ERR,
        ),
        (
            "another's bound window",
            raw::bind_mw(of, &Bind { rkey: one.new_rkey, new_rkey: one.rkey, ..mine }),
            WcStatus::MW_BIND_ERR,
        ),
        ("another's region", raw::bind_mw(of, &Bind { lkey, addr, ..mine }), WcStatus::MW_BIND_ERR),
        ("another's key", inv(two.new_rkey), WcStatus::LOC_QP_OP_ERR),
        ("another's key of type 1", inv(one.new_rkey), WcStatus::LOC_QP_OP_ERR),
        ("another's region's key", inv(lkey), WcStatus::LOC_QP_OP_ERR),
        ("the own region's key", inv(thief.side.mr.key), WcStatus::LOC_QP_OP_ERR),
    ];
    for (case, words, status) in attempts {
        assert_eq!(thief.ends(&words), status, "{case}");
        connect_again(&mut peer, &mut thief);
    }
    // The thief's peer cannot access the windows through the thief's QP either.
    for (bind, value) in [(&one, 30), (&two, 40)] {
        assert_eq!(peer.write(place(bind), 99), WcStatus::REM_ACCESS_ERR);
        connect_again(&mut peer, &mut thief);
        assert_eq!(a.write(place(bind), value), WcStatus::SUCCESS, "it is as it was");
        assert_eq!(victim.shown(), [value; 8]);
    }
}

#[test]
fn another_qp_of_the_process_shares_type_1_and_not_type_2b() {
    let lab = Lab::new(2);
    let [mut a, mut b] = processes(&lab, &QpOptions::default());
    let (one, two) = (b.bound(mw_type::TYPE_1), b.bound(mw_type::TYPE_2B));
    let second = |process: &Process| {
        let Side { process, cq, .. } = &process.side;
        process.qp(cq, cq, &QpOptions::default())
    };
    let (qp_a, qp_b): (Qp, Qp) = (second(&a), second(&b));
    connect(&qp_a, &qp_b);
    let first = std::mem::replace(&mut a.side.qp, qp_a);
    assert_eq!(a.write(place(&one), 5), WcStatus::SUCCESS);
    assert_eq!(a.write(place(&two), 6), WcStatus::REM_ACCESS_ERR);
    a.side.qp = first;
    assert_eq!(a.write(place(&two), 7), WcStatus::SUCCESS);
    assert_eq!(b.shown(), [7; 8]);
    // The peer cannot invalidate the window by a SEND to the second QP either: that QP is in ERR.
    // The window is unchanged.
    assert_eq!(a.write(place(&two), 8), WcStatus::SUCCESS);
}

#[test]
fn of_all_tags_one_is_right() {
    let lab = Lab::new(2);
    let [mut a, mut b] = processes(&lab, &QpOptions::of(QpType::UC));
    let bind = b.bound(mw_type::TYPE_2B);
    let mut drops = 0;
    for tag in 0..=0xff {
        let rkey = bind.new_rkey & !0xff | tag;
        assert_eq!(a.write(Remote { addr: bind.addr, rkey }, 3), WcStatus::SUCCESS, "nobody answers");
        let (expected, refused) = match rkey == bind.new_rkey {
            true => ([3; 8], 0),
            false => ([0; 8], 1),
        };
        drops += refused;
        // Between workers, the peer may handle the request later.
        wait::until("the peer to have had it", || {
            (lab.transport(1, "drop_access") == drops && (refused == 1 || b.shown() == expected))
                .then_some(())
        });
        assert_eq!(b.shown(), expected, "tag {tag:#x}");
        b.side.mr.put(AT, &[0; 8]);
    }
    assert_eq!(lab.transport(1, "drop_access"), 255);
}

#[test]
fn a_region_goes_when_the_qp_is_gone_that_bound_windows_to_it() {
    const WINDOWS: u32 = 300;
    let lab = Lab::new(2);
    let [mut a, mut b] = processes(&lab, &QpOptions::default());
    let binds: Vec<_> = (0..WINDOWS).map(|_| b.bound(mw_type::TYPE_2B)).collect();
    let guest = b.side.guest().clone();
    assert_eq!(guest.dereg_mr(b.side.mr.key), Err(Status::BUSY));
    assert_eq!(a.write(place(&binds[7]), 1), WcStatus::SUCCESS);
    connect_again(&mut a, &mut b);
    assert_eq!(a.write(place(&binds[7]), 2), WcStatus::REM_ACCESS_ERR);
    assert_eq!(b.shown(), [1; 8]);
    connect_again(&mut a, &mut b);
    // Windows can be bound again at once.
    let again = Bind { rkey: binds[7].new_rkey, ..binds[7] };
    assert_eq!(b.ends(&raw::bind_mw(b.of(1), &again)), WcStatus::SUCCESS);
    assert_eq!(guest.dereg_mr(b.side.mr.key), Err(Status::BUSY));
    b.side.qp.destroy().unwrap();
    guest.dereg_mr(b.side.mr.key).expect("its windows went with the QP");
    assert_eq!(guest.dealloc_pd(b.side.process.pd), Err(Status::BUSY));
    binds.iter().for_each(|bind| guest.dealloc_mw(bind.rkey).unwrap());
    assert_eq!(guest.dealloc_mw(binds[0].rkey), Err(Status::NOT_FOUND));
    guest.dealloc_pd(b.side.process.pd).expect("nothing is in it any more");
}

#[test]
fn windows_count_as_regions() {
    let limits = GuestLimits { mrs: 64, ..GuestLimits::default() };
    let lab = Lab::with(1, LabOptions { limits, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let pd = guest.alloc_pd(0).unwrap();
    let key = guest.reg_mr(pd, access::ALL, 0, 4096, &[run(guest.memory.alloc(4096), 4096)]).unwrap();
    for (pdn, kind, status) in
        [(pd, 0, Status::INVALID), (pd, 3, Status::INVALID), (pd + 1, 1, Status::NOT_FOUND)]
    {
        assert_eq!(guest.alloc_mw(pdn, kind), Err(status));
    }
    assert_eq!(guest.dealloc_mw(key.lkey.get()), Err(Status::NOT_FOUND), "a region is no window");
    let most = guest.query_device().unwrap().max_mr.get();
    let windows: Vec<_> = (1..most).map(|n| guest.alloc_mw(pd, 1 + n % 2).unwrap()).collect();
    assert_eq!(guest.alloc_mw(pd, 1), Err(Status::NO_RESOURCES));
    assert_eq!(lab.stats().objects(0, "mws"), u64::from(most) - 1);
    assert_eq!(guest.dereg_mr(windows[0]), Err(Status::NOT_FOUND), "a window is no region");
    guest.dealloc_mw(windows[0]).unwrap();
    guest.alloc_mw(pd, 2).expect("one is free again");
}

#[test]
fn a_region_is_registered_again() {
    let lab = Lab::new(2);
    let [mut a, mut b] = processes(&lab, &QpOptions::default());
    let guest = b.side.guest().clone();
    let page = guest.memory.alloc(4096);
    let own_pd = b.side.process.pd;
    let second_pd = guest.alloc_pd(b.side.process.number).unwrap();
    let foreign_pd = guest.alloc_pd(0).unwrap();
    let request = |lkey: u32, flags: u32| ReregMrReq {
        lkey: lkey.into(),
        flags: flags.into(),
        ..ReregMrReq::default()
    };
    let translated = |lkey: u32, flags: u32| ReregMrReq {
        iova: 0x9000.into(),
        length: 4096.into(),
        ..request(lkey, flags | rereg::TRANSLATION)
    };
    let key = b.side.mr.key;
    let runs = [run(page, 4096)];
    let outside = [run(1 << 50, 4096)];
    let refused = [
        ("nothing", request(key, 0), &[][..], Status::INVALID),
        ("an unknown flag", request(key, 8), &[], Status::INVALID),
        (
            "runs for nothing",
            ReregMrReq { access: 1.into(), ..request(key, rereg::ACCESS) },
            &runs,
            Status::INVALID,
        ),
        (
            "a PD that is not to change",
            ReregMrReq { pdn: own_pd.into(), ..request(key, rereg::ACCESS) },
            &[],
            Status::INVALID,
        ),
        (
            "rights that cannot be",
            ReregMrReq { access: 2.into(), ..request(key, rereg::ACCESS) },
            &[],
            Status::INVALID,
        ),
        ("too few runs", translated(key, 0), &[], Status::INVALID),
        ("no memory", translated(key, 0), &outside, Status::FAULT),
        ("no PD", ReregMrReq { pdn: 0xfff.into(), ..translated(key, rereg::PD) }, &runs, Status::NOT_FOUND),
        (
            "another's PD",
            ReregMrReq { pdn: foreign_pd.into(), ..translated(key, rereg::PD) },
            &runs,
            Status::DENIED,
        ),
        ("no region", translated(key ^ 1, 0), &runs, Status::NOT_FOUND),
    ];
    for (case, req, runs, status) in refused {
        assert_eq!(guest.rereg_mr(&req, runs).err(), Some(status), "{case}");
        assert_eq!(a.write(b.side.mr.remote(AT), 1), WcStatus::SUCCESS, "after {case}");
    }
    let bind = b.bound(mw_type::TYPE_2B);
    let rights = ReregMrReq { access: access::ALL.into(), ..request(key, rereg::ACCESS) };
    assert_eq!(guest.rereg_mr(&rights, &[]).err(), Some(Status::BUSY), "a window is bound to it");
    assert_eq!(b.ends(&raw::key(WrOpcode::LOCAL_INV, b.of(1), bind.new_rkey, None)), WcStatus::SUCCESS);
    // Re-register with other memory.
    let runs_before = lab.stats().objects(1, "runs");
    let moved = guest.rereg_mr(&translated(key, 0), &runs).unwrap().rkey.get();
    assert_ne!(moved, key);
    assert_eq!(lab.stats().objects(1, "runs"), runs_before);
    assert_eq!(a.write(Remote { addr: 0x9008, rkey: moved }, 7), WcStatus::SUCCESS);
    let mut found = [0; 16];
    guest.memory.read(page, &mut found);
    assert_eq!(found, [[0; 8], [7; 8]].concat()[..]);
    assert_eq!(a.write(b.side.mr.remote(AT), 9), WcStatus::REM_ACCESS_ERR, "the old key is gone");
    assert_eq!(b.shown(), [1; 8]);
    connect_again(&mut a, &mut b);
    // First without the right to write, then with another PD.
    let read_only = ReregMrReq { access: access::REMOTE_READ.into(), ..request(moved, rereg::ACCESS) };
    let read_only = guest.rereg_mr(&read_only, &[]).unwrap().rkey.get();
    assert_eq!(a.write(Remote { addr: 0x9008, rkey: read_only }, 8), WcStatus::REM_ACCESS_ERR);
    connect_again(&mut a, &mut b);
    let away = ReregMrReq {
        pdn: second_pd.into(),
        access: access::ALL.into(),
        ..request(read_only, rereg::PD | rereg::ACCESS)
    };
    let away = guest.rereg_mr(&away, &[]).unwrap().rkey.get();
    assert_eq!(a.write(Remote { addr: 0x9008, rkey: away }, 8), WcStatus::REM_ACCESS_ERR);
    connect_again(&mut a, &mut b);
    let back = ReregMrReq { pdn: own_pd.into(), ..request(away, rereg::PD) };
    let back = guest.rereg_mr(&back, &[]).unwrap().rkey.get();
    assert_eq!(a.write(Remote { addr: 0x9008, rkey: back }, 8), WcStatus::SUCCESS);
    guest.dealloc_pd(second_pd).expect("nothing is in it any more");
    guest.dereg_mr(back).unwrap();
}
