//! What administrators see of guests' objects.

use vrdma_admin::daemon::{Drain, GetDaemon, Resume};
use vrdma_admin::qp::{ListQps, QpService, QpState, QpTransport, QpWait, ShowQp};
use vrdma_admin::{Client, mr};
use vrdma_tests::abi::control::{QpState as State, access};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::side::pair;
use vrdma_tests::verbs::{Data, Remote, Request};
use vrdma_tests::{CableOptions, Lab, LabOptions, Qp, QpOptions, Setting, wait};

fn all_qps(client: &mut Client, guest: &str) -> Vec<vrdma_admin::qp::Qp> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page = client.call(&ListQps { guest: guest.into(), from }).unwrap();
        all.extend(page.qps);
        from = page.next;
        if from.is_none() {
            return all;
        }
    }
}

fn lab(options: LabOptions) -> Lab {
    Lab::with(2, LabOptions { admin: true, ..options })
}

#[test]
fn queue_pairs_are_listed_with_their_peers_and_requests() {
    for setting in [Setting::OneWorker, Setting::TwoWorkers] {
        let lab = lab(setting.options());
        let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
        let mut client = lab.admin();
        let qps = all_qps(&mut client, "g0");
        let own = qps.iter().find(|qp| qp.qpn == a.qp.number).unwrap();
        assert_eq!((own.service, own.state, own.guest.as_str()), (QpService::Rc, QpState::Rts, "g0"));
        assert_eq!(own.peer_qpn, Some(b.qp.number));
        assert_eq!(own.peer_gid.as_deref(), Some("::ffff:10.0.0.2"));
        assert_eq!(own.context, a.process.number);
        let way = if setting == Setting::OneWorker { QpTransport::Copy } else { QpTransport::Roce };
        assert_eq!(own.transport, Some(way));
        assert_eq!((own.sends, own.receives), (0, 0));
        a.recv_any(1);
        a.post(&Request::send(a.qp.tag(2), Data::Inline(b"no receive is there")));
        let show = ShowQp { guest: "g0".into(), qpn: a.qp.number };
        let whole = wait::until("the send that waits", || {
            let whole = client.call(&show).unwrap();
            (whole.qp.sends == 1 && whole.qp.receives == 1 && whole.details.waits_for.is_some())
                .then_some(whole)
        });
        assert!(matches!(whole.details.waits_for, Some(QpWait::Receive | QpWait::Answer)), "{whole:?}");
        assert_eq!((whole.details.gid.as_str(), whole.details.vlan), ("::ffff:10.0.0.1", None));
        assert_eq!(whole.failures, []);
    }
}

#[test]
fn a_queue_pair_tells_why_it_ended() {
    let cable = Some(CableOptions::default());
    for lab in [lab(LabOptions::default()), lab(LabOptions { cable, ..LabOptions::default() })] {
        let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
        let wrong = Remote { rkey: b.mr.key ^ 0x55, ..b.mr.remote(0) };
        a.post(&Request::write(a.qp.tag(1), wrong, Data::Sges(&[a.mr.sge(0, 8)])));
        a.post(&Request::write(a.qp.tag(2), wrong, Data::Sges(&[a.mr.sge(0, 8)])));
        a.cq.expect(a.qp.number, 1, WcStatus::REM_ACCESS_ERR);
        a.cq.expect(a.qp.number, 2, WcStatus::WR_FLUSH_ERR);
        assert_eq!(a.qp.state(), State::ERR);
        let whole = lab.admin().call(&ShowQp { guest: "g0".into(), qpn: a.qp.number }).unwrap();
        assert_eq!(whole.qp.state, QpState::Err);
        let failures: Vec<_> = whole.failures.iter().map(|each| (each.what.as_str(), each.times)).collect();
        assert_eq!(failures, [("IBV_WC_REM_ACCESS_ERR", 1)]);
    }
}

#[test]
fn thousands_of_queue_pairs_are_listed_in_parts() {
    let lab = lab(LabOptions::default());
    let (a, _b) = pair(&lab, 1, 4096, &QpOptions::default());
    let options = QpOptions { send_wr: 4, recv_wr: 4, ..QpOptions::default() };
    let made: Vec<_> = (0..600).map(|_| a.process.qp(&a.cq, &a.cq, &options)).collect();
    let mut client = lab.admin();
    let first = client.call(&ListQps { guest: "g0".into(), from: None }).unwrap();
    assert!(first.qps.len() <= 256 && first.next.is_some(), "{} at once", first.qps.len());
    let listed = all_qps(&mut client, "g0");
    assert!(made.iter().all(|qp| listed.iter().any(|seen| seen.qpn == qp.number)));
    let before = listed.len();
    made.iter().for_each(|qp| qp.destroy().unwrap());
    assert_eq!(all_qps(&mut client, "g0").len(), before - made.len());
}

#[test]
fn memory_regions_are_listed_with_their_rights() {
    let lab = lab(LabOptions::default());
    let (a, _b) = pair(&lab, 1, 4096, &QpOptions::default());
    let own = a.process.mr_with(8192, access::LOCAL_WRITE | access::REMOTE_READ);
    let page = lab.admin().call(&mr::ListMrs { guest: "g0".into(), from: None }).unwrap();
    let seen = page.mrs.iter().find(|mr| mr.key == Some(own.key)).unwrap();
    assert_eq!((seen.length, seen.context, seen.is_fast), (Some(8192), a.process.number, false));
    assert_eq!(seen.address, format!("{:#x}", own.iova));
    assert_eq!(seen.access, ["local_write", "remote_read"]);
}

#[test]
fn a_daemon_that_drains_lets_nothing_new_in_and_tells_who_is_busy() {
    let lab = lab(LabOptions::default());
    let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
    let mut client = lab.admin();
    a.post(&Request::send(a.qp.tag(1), Data::Inline(b"no receive is there")).signaled(true));
    wait::until("a guest that is busy", || (client.call(&Drain {}).unwrap().busy == ["g0"]).then_some(()));
    assert!(client.call(&GetDaemon {}).unwrap().draining);
    let options = QpOptions::default();
    assert!(
        Qp::create(a.guest(), a.process.number, a.process.pd, a.cq.number, a.cq.number, &options).is_err(),
        "there is no new one"
    );
    // Another administrator may end it while this one waits.
    let mut waiting = lab.admin();
    let mut replies = waiting.follow(&Drain {}).unwrap();
    assert_eq!(replies.next().unwrap().unwrap().busy, ["g0"]);
    client.call(&Resume {}).unwrap();
    assert!(replies.all(|found| found.unwrap().busy == ["g0"]), "its answers end");
    assert!(!client.call(&GetDaemon {}).unwrap().draining);
    // What is there goes on until it ends.
    b.recv_any(2);
    a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
    wait::until("guests that are idle", || client.call(&Drain {}).unwrap().busy.is_empty().then_some(()));
    client.call(&Resume {}).unwrap();
    assert!(!client.call(&GetDaemon {}).unwrap().draining);
    let qp = a.process.qp(&a.cq, &a.cq, &options);
    qp.destroy().unwrap();
}
