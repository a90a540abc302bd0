//! What the exporter shows of a daemon and its guests.

use std::collections::BTreeMap;
use std::time::Duration;
use vrdma_admin::guest::ShowGuest;
use vrdma_exporter::collector::{Collector, Pace};
use vrdma_exporter::exposition::Format;
use vrdma_exporter::families;
use vrdma_exporter::family::Kind;
use vrdma_exporter::snapshot::Scope;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::side::pair;
use vrdma_tests::verbs::{Data, Remote, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, Setting, wait};

/// Starts a collector that asks the daemon for each scrape.
fn collector(lab: &Lab) -> Collector {
    let pace = Pace { patience: wait::PATIENCE, reuse: Duration::ZERO };
    Collector::start(lab.admin_path(), pace).unwrap()
}

/// Returns the numbers by their series.
fn series(collector: &Collector) -> BTreeMap<String, f64> {
    let text = collector.scrape().text(Format::OpenMetrics);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| line.rsplit_once(' ').unwrap());
    series.map(|(name, number)| (name.to_owned(), number.parse().unwrap())).collect()
}

#[test]
fn what_guests_do_is_in_the_series() {
    for setting in [Setting::OneWorker, Setting::TwoWorkers] {
        let lab = Lab::with(2, LabOptions { admin: true, ..setting.options() });
        let collector = collector(&lab);
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
fn some_requests_are_measured_and_peaks_are_told() {
    for setting in [Setting::OneWorker, Setting::TwoWorkers] {
        let lab = Lab::with(2, LabOptions { admin: true, ..setting.options() });
        let collector = collector(&lab);
        let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
        assert!(!series(&collector).keys().any(|name| name.contains("_latency_")));
        // Of so many requests, one at least is measured.
        for id in 0..2048 {
            let payload = [a.mr.sge(0, 1000)];
            a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&payload)).signaled(true));
            a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        }
        let shown = lab.admin().call(&ShowGuest { name: "g0".into() }).unwrap();
        let latency = &shown.counters["latency"];
        let measured = latency["rc"]["requests"].as_u64().unwrap();
        assert!(measured > 0 && latency.as_object().unwrap().len() == 1, "{latency}");
        let bytes = shown.counters["peaks"]["bytes_sent"].as_u64().unwrap();
        assert!((1000..=2_048_000).contains(&bytes), "{bytes}");
        let now = series(&collector);
        let own = "guest=\"g0\",service=\"rc\"";
        let name =
            |end: &str, more: &str| format!("vrdma_guest_request_latency_seconds_{end}{{{more}{own}}}");
        assert_eq!(now[&name("count", "")], measured as f64);
        assert_eq!(now[&name("bucket", "le=\"+Inf\",")], measured as f64);
        assert!(now[&name("sum", "")] >= 0.0);
        let peak = |of: &str, guest: usize, label: &str| {
            let name = format!("vrdma_guest_{of}{{guest=\"g{guest}\",{label}}}");
            move |now: &BTreeMap<String, f64>| now[&name]
        };
        assert!(peak("payload_peak_bytes", 1, "direction=\"rx\"")(&now) >= 1000.0);
        assert_eq!(peak("payload_peak_bytes", 1, "direction=\"tx\"")(&now), 0.0);
        // Three sends wait for receives. They are seen while they wait, and later.
        for id in 0..3 {
            a.post(&Request::send(a.qp.tag(id), Data::Inline(b"waits")).signaled(true));
        }
        let sends = peak("pending_requests_peak", 0, "queue=\"send\"");
        wait::until("sends that wait", || (sends(&series(&collector)) >= 3.0).then_some(()));
        for id in 0..3 {
            b.recv_any(id);
        }
        for id in 0..3 {
            a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        }
        for _ in 0..2 {
            assert!(sends(&series(&collector)) >= 3.0, "to look at it changes nothing");
        }
        (0..2).for_each(|id| b.recv_any(id));
        let receives = peak("pending_requests_peak", 1, "queue=\"receive\"");
        wait::until("receives that wait", || (receives(&series(&collector)) >= 2.0).then_some(()));
    }
}

#[test]
fn the_daemon_tells_all_that_the_exporter_shows() {
    let lab = Lab::with(2, LabOptions { admin: true, ..LabOptions::default() });
    let scrape = collector(&lab).scrape();
    let snapshot = scrape.snapshot();
    for family in families::all() {
        let series = family.samples(snapshot).len();
        let subjects = snapshot.subjects.iter().filter(|subject| subject.scope == family.scope).count();
        let rows = match family.scope {
            // There is no uplink here. Ports of guests have the other rows.
            Scope::Port => family.rows.iter().filter(|row| row.sources[0].starts_with("net.")).count(),
            // Guests that have posted nothing have none.
            _ if family.kind == Kind::Histogram => continue,
            _ => family.rows.len(),
        };
        assert!(series >= subjects * rows && subjects > 0, "{}: {series} series", family.full_name());
    }
}
