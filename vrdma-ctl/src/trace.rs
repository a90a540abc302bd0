//! `trace`: what happens to a queue pair.

use crate::connection::Connection;
use crate::print;
use crate::sheets::word;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};
use vrdma_admin::qp::{Failure, QpState, ShowQp, WholeQp};
use vrdma_admin::{ClientError, Fault};

/// Follows a queue pair until it ends.
///
/// # Errors
/// There is no such queue pair, or the daemon does not answer.
pub fn trace(
    connection: &Connection,
    json: bool,
    (guest, qpn): (&str, u32),
    interval: Duration,
) -> Result<()> {
    let mut client = connection.to_observe()?;
    let show = ShowQp { guest: guest.to_owned(), qpn };
    let (start, mut before) = (Instant::now(), None);
    loop {
        let now = match client.call(&show) {
            Ok(now) => now,
            Err(ClientError::Refused(Fault::QpNotFound { .. })) if before.is_some() => {
                bail!("it is gone: its driver has destroyed it, or its guest was reset");
            }
            Err(error) => return Err(error.into()),
        };
        if json {
            print::json(&now)?;
        } else if let Some(line) = line(before.as_ref(), &now) {
            print::line(&format!("{:8.1}  {line}", start.elapsed().as_secs_f64()))?;
        }
        if now.qp.state == QpState::Err {
            return if json { Ok(()) } else { print::line(&cause(&now)) };
        }
        before = Some(now);
        std::thread::sleep(interval);
    }
}

/// Returns what there is to say of a queue pair, if it has changed.
fn line(before: Option<&WholeQp>, now: &WholeQp) -> Option<String> {
    let is_new = before.is_none_or(|before| {
        let seen = |whole: &WholeQp| {
            let details = (whole.details.sq_psn, whole.details.rq_psn, whole.details.waits_for);
            (whole.qp.clone(), details, number(&whole.failures))
        };
        seen(before) != seen(now)
    });
    is_new.then(|| {
        let (qp, details) = (&now.qp, &now.details);
        let waits = details.waits_for.map_or(String::new(), |what| format!(", waits for {}", word(what)));
        let peer = match (qp.transport, qp.peer_qpn, &qp.peer_gid) {
            (Some(way), Some(peer), Some(gid)) => format!(", {} to {peer} at {gid}", word(way)),
            (Some(way), ..) => format!(", {}", word(way)),
            (None, ..) => String::new(),
        };
        let psns = match (details.sq_psn, details.rq_psn) {
            (Some(sends), Some(receives)) => format!(", PSNs {sends} and {receives}"),
            _ => String::new(),
        };
        format!(
            "{} {}{peer}: {} sends, {} receives{waits}{psns}, {} errors",
            word(qp.service),
            word(qp.state),
            qp.sends,
            qp.receives,
            number(&now.failures)
        )
    })
}

/// Returns how many errors there were.
fn number(failures: &[Failure]) -> u64 {
    failures.iter().map(|failure| failure.times).sum()
}

/// Says why a queue pair is in ERR.
fn cause(whole: &WholeQp) -> String {
    match &whole.failures[..] {
        [] => "it is in ERR, and no error of it is kept (the last 64 of a guest are): mostly its driver took it there, or its CQ failed".into(),
        failures => {
            let names: Vec<&str> = failures.iter().map(|failure| failure.what.as_str()).collect();
            format!("it is in ERR; its errors, the oldest first: {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn whole(state: &str, sends: u32, failures: &[&str]) -> WholeQp {
        let failures: Vec<_> =
            failures.iter().map(|what| json!({"ago": 5, "what": what, "times": 1})).collect();
        let value = json!({
            "qp": {
                "guest": "vm1", "qpn": 17, "service": "rc", "state": state, "context": 1, "transport": "roce",
                "peer_qpn": 18, "peer_gid": "::1", "sends": sends, "receives": 4,
            },
            "details": {
                "pd": 1, "send_cq": 1, "recv_cq": 1, "srq": null, "max_sends": 8, "max_receives": 8,
                "path_mtu": 1024, "gid": "::2", "vlan": null, "sq_psn": 7, "rq_psn": 9, "timeout": 14,
                "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": 12, "max_rd_atomic": 1,
                "max_dest_rd_atomic": 1, "is_flushing": false,
                "waits_for": if sends == 0 { None } else { Some("answer") }, "rate": null, "peer_holds": null, "held_bytes": 0,
            },
            "failures": failures,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_changed_is_told() {
        let (idle, busy) = (whole("rts", 0, &[]), whole("rts", 2, &[]));
        assert_eq!(
            line(None, &idle).unwrap(),
            "rc rts, roce to 18 at ::1: 0 sends, 4 receives, PSNs 7 and 9, 0 errors"
        );
        assert_eq!(line(Some(&idle), &idle), None);
        let told = line(Some(&idle), &busy).unwrap();
        assert!(told.contains("2 sends") && told.contains("waits for answer"), "{told}");
        // The time since an error is no change.
        let (one, mut same) = (whole("err", 0, &["X"]), whole("err", 0, &["X"]));
        same.failures[0].ago = 99;
        assert_eq!(line(Some(&one), &same), None);
    }

    #[test]
    fn the_cause_is_told() {
        assert!(cause(&whole("err", 0, &["IBV_WC_RETRY_EXC_ERR", "Y"])).ends_with("IBV_WC_RETRY_EXC_ERR, Y"));
        assert!(cause(&whole("err", 0, &[])).contains("its driver took it there"));
    }
}
