//! A guest without a VM as the client of libibverbs' ping-pong programs.
//!
//! These are `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong`. The server, on another
//! host, sends back what it receives, so each byte is checked. Standard input and output are the
//! server's TCP connection, over which both exchange addresses. The input ends when the server has
//! ended.
//!
//! The QP lives as long as the server. If an ACK arrives while `rdma_rxe` resends the message,
//! `rdma_rxe` completes nothing. It then waits forever for the ACK of the duplicate.

use crate::abi::control::QpType;
use crate::ah::{AhTable, entry};
use crate::side::Side;
use crate::verbs::{Data, Request, UdTarget};
use crate::{Guest, GuestOptions, QpOptions, Rng};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::path::Path;

/// What to play.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// QP type.
    pub service: QpType,
    /// Number of messages in each direction.
    pub messages: u32,
    /// Bytes of each message.
    pub size: u32,
    /// Path MTU, as `enum ibv_mtu`.
    pub mtu: u8,
}

/// Length of a side's address in the servers' protocol.
///
/// It consists of LID, QPN, PSN and GID as hexadecimal digits, and a zero.
const ADDRESS: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
/// `Q_Key` of the servers' datagram QPs.
const QKEY: u32 = 0x1111_1111;
/// Bytes of the GRH, which precede the data in a datagram's receive.
const GRH: u32 = 40;
/// Page size. The servers check the first byte of each page.
const PAGE: usize = 4096;
/// Index of the server's address handle.
const SERVER: u32 = 0;

/// Plays until all messages are back, tells the server, and stays until the server has ended.
///
/// # Errors
/// The daemon or the server fails.
///
/// # Panics
/// A message comes back changed or not at all.
pub fn play(socket: &Path, plan: Plan) -> Result<()> {
    let Plan { service, messages, size, mtu } = plan;
    let guest = Guest::connect(socket, GuestOptions::default())?;
    guest.set_gid();
    let options = QpOptions { path_mtu: mtu, qkey: QKEY, ..QpOptions::of(service) };
    let back = u64::from(size).next_multiple_of(PAGE as u64);
    let mut side = Side::new(&guest, 2 * back + PAGE as u64, &options);
    let server = meet(&side)?;
    let handles = AhTable::new(&guest, 1).expect("a table of address handles");
    if service == QpType::UD {
        handles.put(SERVER, &entry(side.process.pd, server.gid));
        side.qp.start().expect("RTS");
    } else {
        side.qp.to_init().expect("INIT");
        side.qp.to_rtr(server.gid, server.qpn, server.psn).expect("RTR");
        side.qp.to_rts().expect("RTS");
    }
    send(b"done\0")?;
    let mut rng = Rng::new(77);
    let header = if service == QpType::UD { GRH } else { 0 };
    for round in 0..messages {
        let mut sent = rng.bytes(size as usize);
        sent.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
        side.mr.fill(0xee);
        side.mr.put(0, &sent);
        side.recv(2 * round, &[side.mr.sge(back, size + header)]);
        let data = [side.mr.sge(0, size)];
        let tag = side.qp.tag(2 * round + 1);
        let to = UdTarget { ah: SERVER, qpn: server.qpn, qkey: QKEY };
        let request = match service {
            QpType::UD => Request::ud_send(tag, to, Data::Sges(&data)),
            _ => Request::send(tag, Data::Sges(&data)),
        };
        side.post(&request.signaled(true));
        for _ in 0..2 {
            let wc = side.cq.expect_success();
            ensure!(!wc.is_recv() || wc.len() == size + header, "{} bytes came back", wc.len());
        }
        let found = side.mr.get(back + u64::from(header), u64::from(size) + 1);
        assert!(found[..size as usize] == sent && found[size as usize] == 0xee, "message {round} is another");
    }
    eprintln!("{messages} messages of {size} bytes are back as they were");
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    side.close();
    Ok(())
}

struct Server {
    qpn: u32,
    psn: u32,
    gid: [u8; 16],
}

/// Exchanges addresses with the server.
fn meet(side: &Side) -> Result<Server> {
    let gid: String = side.guest().gid().iter().map(|byte| format!("{byte:02x}")).collect();
    let address = format!("{:04x}:{:06x}:{:06x}:{gid}\0", 0, side.qp.number, side.qp.options.sq_psn);
    assert_eq!(address.len(), ADDRESS);
    send(address.as_bytes())?;
    let mut answer = [0; ADDRESS];
    std::io::stdin().lock().read_exact(&mut answer)?;
    parse(&answer).with_context(|| format!("the server says {:?}", String::from_utf8_lossy(&answer)))
}

fn parse(answer: &[u8; ADDRESS]) -> Option<Server> {
    let text = std::str::from_utf8(answer).ok()?.trim_end_matches('\0');
    let mut parts = text.split(':').skip(1);
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    let (qpn, psn) = (number()?, number()?);
    let gid = u128::from_str_radix(parts.next()?, 16).ok()?;
    Some(Server { qpn, psn, gid: gid.to_be_bytes() })
}

fn send(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_address_is_read() {
        let text = b"0000:000011:00abcd:00000000000000000000ffff0a000002\0";
        let Server { qpn, psn, gid } = parse(text).unwrap();
        assert_eq!((qpn, psn, gid), (0x11, 0xabcd, crate::guest::gid(2)));
        assert!(parse(&[b'x'; ADDRESS]).is_none());
    }
}
