//! What the exporter shows of a daemon and its guests.

use std::collections::BTreeMap;
use vrdma_exporter::collector::Collector;
use vrdma_exporter::exposition::{Format, text};
use vrdma_exporter::families;
use vrdma_exporter::snapshot::Scope;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::side::pair;
use vrdma_tests::verbs::{Data, Remote, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, Setting, wait};

/// Returns the numbers by their series.
fn series(collector: &Collector) -> BTreeMap<String, f64> {
    let text = text(collector.scrape(), Format::OpenMetrics);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| line.rsplit_once(' ').unwrap());
    series.map(|(name, number)| (name.to_owned(), number.parse().unwrap())).collect()
}

#[test]
fn what_guests_do_is_in_the_series() {
    for setting in [Setting::OneWorker, Setting::TwoWorkers] {
        let lab = Lab::with(2, LabOptions { admin: true, ..setting.options() });
        let collector = Collector::start(lab.admin_path(), wait::PATIENCE).unwrap();
        let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
        let before = series(&collector);
        b.recv_any(1);
        // A SEND from another worker may arrive before the device has taken the receive.
        b.process.channel.drain();
        let payload = [a.mr.sge(0, 1000)];
        a.post(&Request::send(a.qp.tag(2), Data::Sges(&payload)).signaled(true));
        a.post(&Request::write(a.qp.tag(3), b.mr.remote(0), Data::Sges(&payload)).signaled(true));
        let back = [a.mr.sge(0, 300)];
        a.post(&Request::read(a.qp.tag(4), b.mr.remote(0), &back).signaled(true));
        for id in 2..=4 {
            a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        }
        b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS);
        let wrong = Remote { rkey: b.mr.key ^ 0x55, ..b.mr.remote(0) };
        a.post(&Request::write(a.qp.tag(5), wrong, Data::Sges(&payload)));
        a.cq.expect(a.qp.number, 5, WcStatus::REM_ACCESS_ERR);
        let after = series(&collector);
        for (name, labels, more) in [
            ("guest_payload_bytes_total", "guest=\"g0\",direction=\"sent\"", 2000.0),
            ("guest_payload_bytes_total", "guest=\"g0\",direction=\"read\"", 300.0),
            ("guest_payload_bytes_total", "guest=\"g1\",direction=\"received\"", 2000.0),
            ("guest_payload_bytes_total", "guest=\"g1\",direction=\"served\"", 300.0),
            ("guest_messages_sent_total", "guest=\"g0\",operation=\"send\"", 1.0),
            ("guest_messages_sent_total", "guest=\"g0\",operation=\"write\"", 1.0),
            ("guest_messages_sent_total", "guest=\"g0\",operation=\"read\"", 1.0),
            ("guest_messages_received_total", "guest=\"g1\"", 1.0),
            ("guest_failed_requests_total", "guest=\"g0\"", 1.0),
            ("guest_errors_total", "guest=\"g1\",kind=\"nak_sent\"", 1.0),
        ] {
            let name = format!("vrdma_{name}{{{labels}}}");
            assert_eq!(after[&name] - before[&name], more, "{name}");
        }
        assert_eq!(after["vrdma_up"], 1.0);
        assert!(after["vrdma_guest_objects{guest=\"g0\",kind=\"qp\"}"] >= 1.0);
        let limit = f64::from(LabOptions::default().limits.qps);
        assert_eq!(after["vrdma_guest_objects_limit{guest=\"g0\",kind=\"qp\"}"], limit);
        assert_eq!(after["vrdma_guest_connected{guest=\"g1\",function=\"roce\"}"], 1.0);
        assert_eq!(after["vrdma_worker_stuck{worker=\"0\"}"], 0.0);
    }
}

#[test]
fn the_daemon_tells_all_that_the_exporter_shows() {
    let lab = Lab::with(2, LabOptions { admin: true, ..LabOptions::default() });
    let snapshot = Collector::start(lab.admin_path(), wait::PATIENCE).unwrap().scrape();
    for family in families::all() {
        let series = family.samples(&snapshot).len();
        let subjects = snapshot.subjects.iter().filter(|subject| subject.scope == family.scope).count();
        let rows = match family.scope {
            // There is no uplink here. Ports of guests have the other rows.
            Scope::Port => family.rows.iter().filter(|row| row.sources[0].starts_with("net.")).count(),
            _ => family.rows.len(),
        };
        assert!(series >= subjects * rows && subjects > 0, "{}: {series} series", family.full_name());
    }
}
