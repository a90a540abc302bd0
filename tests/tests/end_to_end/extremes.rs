//! Values at the limits of their ranges.
//!
//! Regions are empty or end at the last address, and QP attributes are wider than their meaning.
//!
//! Shows: manual-pages.

use vrdma_tests::abi::control::{QpAttr, QpState, Status, access, limit, qp_attr};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::control::run;
use vrdma_tests::guest::Guest;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Remote, Request, Sge};
use vrdma_tests::{CableOptions, Lab, LabOptions, QpOptions};

/// Returns a lab on one host, and one with a cable between the guests.
fn labs() -> [Lab; 2] {
    [None, Some(CableOptions::default())]
        .map(|cable| Lab::with(2, LabOptions { cable, ..LabOptions::default() }))
}

fn write(side: &mut Side, id: u32, remote: Remote, data: Data<'_>) -> WcStatus {
    side.post(&Request::write(side.qp.tag(id), remote, data).signaled(true));
    side.cq.wait().status()
}

#[test]
fn a_region_can_end_where_addresses_do() {
    for lab in labs() {
        let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
        let guest = &lab.guests[1];
        let page = guest.memory.alloc(8192);
        let iova = u64::MAX - 8191;
        let key = guest.reg_mr(b.process.pd, access::ALL, iova, 8192, &[run(page, 8192)]).unwrap().rkey.get();
        // A write longer than a packet, and one to the last byte.
        let data = [0x5a; 4096];
        a.mr.put(0, &data);
        let whole = [a.mr.sge(0, 4096)];
        assert_eq!(
            write(&mut a, 1, Remote { addr: iova + 4096, rkey: key }, Data::Sges(&whole)),
            WcStatus::SUCCESS
        );
        assert_eq!(
            write(&mut a, 2, Remote { addr: u64::MAX, rkey: key }, Data::Inline(b"!")),
            WcStatus::SUCCESS
        );
        assert_eq!(guest.memory.bytes(page + 4096, 4096), [&data[..4095], b"!"].concat());
        // The same address as local buffer of a WRITE and of a READ.
        let local = [Sge { addr: u64::MAX - 4095, length: 4096, lkey: key }];
        assert_eq!(write(&mut b, 3, a.mr.remote(0), Data::Sges(&local)), WcStatus::SUCCESS);
        assert_eq!(a.mr.get(4095, 1), b"!");
        b.post(&Request::read(b.qp.tag(4), a.mr.remote(0), &local).signaled(true));
        assert_eq!(b.cq.wait().status(), WcStatus::SUCCESS);
        // The address after the last one wraps to 0, which is not in the region.
        let remote = Remote { addr: u64::MAX, rkey: key };
        assert_eq!(write(&mut a, 5, remote, Data::Inline(b"..")), WcStatus::REM_ACCESS_ERR);
    }
}

#[test]
fn a_region_can_have_no_byte() {
    for lab in labs() {
        let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
        let guest = &lab.guests[1];
        let empty = guest.reg_mr(b.process.pd, access::ALL, 0x1000, 0, &[]).unwrap();
        let remote = Remote { addr: 0x1000, rkey: empty.rkey.get() };
        assert_eq!(write(&mut a, 1, remote, Data::EMPTY), WcStatus::SUCCESS);
        assert_eq!(write(&mut a, 2, remote, Data::Inline(b"x")), WcStatus::REM_ACCESS_ERR);
        guest.dereg_mr(empty.lkey.get()).unwrap();
    }
}

fn modify(guest: &Guest, qp: u32, mask: u32, attr: QpAttr) -> Result<(), Status> {
    guest.modify_qp(qp, mask, attr)
}

#[test]
fn of_wide_attributes_the_low_bits_count() {
    for lab in labs() {
        let options = QpOptions { sq_psn: 0x7654_3210, ..QpOptions::default() };
        let (mut a, b) = (Side::new(&lab.guests[0], 64, &options), Side::new(&lab.guests[1], 64, &options));
        for (own, peer) in [(&a, &b), (&b, &a)] {
            own.qp.to_init().unwrap();
            let attr = QpAttr {
                state: QpState::RTR.0 as u8,
                path_mtu: 5,
                dest_qpn: (peer.qp.number | 0xab00_0000).into(),
                rq_psn: (0x0054_3210 | 0xcd00_0000).into(),
                max_dest_rd_atomic: 16,
                min_rnr_timer: 0xe1,
                sl: 0xf3,
                dgid: peer.guest().gid(),
                dmac: [0x52, 0x54, 0, 0, 0, peer.guest().gid()[15]],
                hop_limit: 64,
                flow_label: u32::MAX.into(),
                vlan: 0xffff.into(),
                ..QpAttr::default()
            };
            use qp_attr as M;
            let mask = M::STATE
                | M::AV
                | M::PATH_MTU
                | M::DEST_QPN
                | M::RQ_PSN
                | M::MAX_DEST_RD_ATOMIC
                | M::MIN_RNR_TIMER;
            modify(own.guest(), own.qp.number, mask, attr).unwrap();
            let attr = QpAttr {
                state: QpState::RTS.0 as u8,
                sq_psn: options.sq_psn.into(),
                max_rd_atomic: 16,
                timeout: 14,
                retry_cnt: 0xff,
                rnr_retry: 0x0e,
                ..QpAttr::default()
            };
            let mask = M::STATE | M::SQ_PSN | M::MAX_RD_ATOMIC | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY;
            let endless = QpAttr { timeout: 32, ..attr };
            assert_eq!(modify(own.guest(), own.qp.number, mask, endless), Err(Status::INVALID));
            modify(own.guest(), own.qp.number, mask, attr).unwrap();
            let found = own.guest().query_qp(own.qp.number).unwrap();
            assert_eq!(
                (found.dest_qpn.get(), found.rq_psn.get(), found.sq_psn.get()),
                (peer.qp.number, 0x54_3210, 0x54_3210)
            );
            assert_eq!((found.min_rnr_timer, found.sl, found.flow_label.get()), (1, 3, 0xf_ffff));
            assert_eq!((found.retry_cnt, found.rnr_retry), (7, 6));
        }
        let remote = b.mr.remote(0);
        assert_eq!(write(&mut a, 1, remote, Data::Inline(b"wide")), WcStatus::SUCCESS);
    }
}

#[test]
fn rights_that_a_qp_cannot_have_are_refused() {
    let lab = Lab::new(1);
    let side = Side::new(&lab.guests[0], 64, &QpOptions::default());
    let attr = QpAttr {
        state: QpState::INIT.0 as u8,
        port: 1,
        access: (access::ALL | 16).into(),
        ..QpAttr::default()
    };
    let mask = qp_attr::STATE | qp_attr::PKEY_INDEX | qp_attr::PORT | qp_attr::ACCESS_FLAGS;
    assert_eq!(modify(&lab.guests[0], side.qp.number, mask, attr), Err(Status::INVALID));
    modify(&lab.guests[0], side.qp.number, mask, QpAttr { access: access::ALL.into(), ..attr }).unwrap();
}

/// A list longer than a region allows gives another status than an exhausted quota.
#[test]
fn a_list_of_too_many_runs_is_too_large() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let pd = guest.alloc_pd(limit::KERNEL_CONTEXT).unwrap();
    let most = guest.query_device().unwrap().max_mr_runs.get() as usize;
    let page = guest.memory.alloc(4096);
    let runs = vec![run(page, 4096); most + 1];
    assert_eq!(guest.reg_mr(pd, 1, 0, 4096 * (most as u64 + 1), &runs).err(), Some(Status::TOO_LARGE));
}
