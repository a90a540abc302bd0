//! A peer that does not answer: requests end after the time that timeout and retry count define
//! (ibv_modify_qp(3), IBTA 9.9.2.1.1).

use crate::connect::{TO_INIT, TO_RTR, TO_RTS};
use crate::link::Faults;
use crate::memory::Mem;
use crate::world::{Guest, OWNER, World};
use vrdma_transport::*;
use vrdma_wire::num::{Lkey, Mtu, Qpn, Rkey};

/// Returns the nanoseconds until a request over a dead link ends, and the number of packets sent
/// until then.
fn time_to_fail(op: SendOp, length: u32, timeout: u8, retry_cnt: u8) -> (u64, u64) {
    let all = Faults { loss: 1_000_000, ..Faults::default() };
    let mut world = World::new(1, &[1, 1], false, all, false);
    let Guest { gid: dgid, mac: dmac, .. } = world.guests[1];
    let Guest { device, pd, .. } = world.guests[0];
    let (host, now) = (&mut world.hosts[0], world.now);
    let init = QpInit {
        owner: OWNER,
        pd: Some(pd),
        qp_type: QpType::Rc,
        send_cq: CqId(0),
        recv_cq: CqId(1),
        receives: Receives::Own,
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
    };
    let qpn = host.engine.create_qp(device, init).unwrap();
    let attr = QpAttr {
        port: 1,
        path_mtu: Mtu::M1024,
        dest_qpn: Qpn::new(0x1234).unwrap(),
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 1,
        timeout,
        retry_cnt,
        rnr_retry: 7,
        dgid,
        dmac,
        hop_limit: 1,
        ..QpAttr::default()
    };
    for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
        let attr = QpAttr { state, ..attr };
        host.engine.modify_qp(now, device, qpn, mask, &attr, &mut host.log).unwrap();
    }
    let memory = Mem::new(vec![0; 8192]);
    let key = host.engine.reg_mr(device, pd, Access::LOCAL_WRITE, 0x1000, 8192, memory).unwrap();
    let sges = [Sge { addr: 0x1000, length, lkey: Lkey(key) }];
    for id in 0..2 {
        let payload = Payload::Sges(&sges);
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
        host.engine.post_send(now, device, OWNER, qpn, &request, &mut host.log).unwrap();
    }
    let start = world.now;
    loop {
        world.settle();
        if !world.hosts[0].log.completions.is_empty() {
            break;
        }
        world.now = world.now.max(world.next().expect("it waits for something"));
    }
    let log = &mut world.hosts[0].log;
    let ends: Vec<_> = log.completions.drain(..).map(|(.., c)| (c.id, c.status)).collect();
    assert_eq!(ends, [(0, WcStatus::RetryExc), (1, WcStatus::Flush)]);
    assert_eq!(world.next(), None);
    (world.now.0 - start.0, world.hosts[0].engine.port_counters().frames_out)
}

#[test]
fn over_a_dead_link_requests_end_in_the_time_that_timeout_and_retry_count_promise() {
    let remote = Remote { addr: 0, rkey: Rkey(1) };
    let scope = FlushScope { placement: Placement::Global, whole: false, length: 8 };
    let operations = [
        (SendOp::Send { imm: None }, 100),
        (SendOp::Write { remote, imm: None }, 5000),
        (SendOp::Read { remote }, 5000),
        (SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }), 8),
        (SendOp::AtomicWrite { remote }, 8),
        (SendOp::Flush { remote, scope }, 0),
    ];
    for (op, length) in operations {
        for timeout in [1, 8, 14, 20] {
            let once = 4096u64 << timeout;
            for retry_cnt in [0, 1, 3, 7] {
                let (took, packets) = time_to_fail(op, length, timeout, retry_cnt);
                let tries = u64::from(retry_cnt) + 1;
                // The specification allows a timer of T to expire between T and 4 T.
                let promised = once * tries..=4 * once * tries;
                assert!(
                    promised.contains(&took),
                    "{op:?}, timeout {timeout}, {retry_cnt} retries: {took} ns"
                );
                assert!(packets >= tries, "{op:?}: {packets} packets in {tries} tries");
            }
        }
    }
}
