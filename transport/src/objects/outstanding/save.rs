//! Outstanding requests in the record.

use super::{OutstandingSend, Requests, Scratch, Work};
use crate::base::id::PdId;
use crate::collections::pool::{At, List};
use crate::save::{Violation, record, to_qpn};
use crate::verbs::attr::QpType;
use crate::verbs::caps::Caps;
use crate::verbs::completion::WcStatus;
use crate::verbs::op::SendOp;
use crate::verbs::request::{Destination, Payload, SendRequest, Sge};
use crate::verbs::work::Flags;
use vrdma_wire::num::{Gid, Lkey, Mac, Qkey, Srqn};

impl Requests {
    /// Returns the record of a send queue.
    pub(crate) fn save_sends(&self, queue: &List) -> Vec<record::Send> {
        let mut scratch = Scratch::default();
        let mut sends = Vec::new();
        let mut next = queue.head();
        while let Some(at) = next {
            let destination = self.destination_at(at).as_ref().map(save_destination);
            let (send, payload) = self.send_at(at, &mut scratch);
            let OutstandingSend { ref op, id, length: _, error, flags, srqn } = send;
            let payload = match (error, payload) {
                (Some(WcStatus::LocLen), _) => record::Payload::WrongLength,
                (Some(_), _) => record::Payload::NotUnderstood,
                (None, Payload::Inline(data)) => record::Payload::Inline(data.to_vec()),
                (None, Payload::Sges(sges)) => record::Payload::Sges(save_sges(sges)),
            };
            let operation = op.into();
            let srqn = srqn.map(Srqn::number);
            sends.push(record::Send {
                id,
                signaled: flags.signaled(),
                solicited: flags.solicited(),
                fence: flags.fence(),
                operation,
                payload,
                srqn,
                destination,
            });
            next = self.send_after(at);
        }
        sends
    }

    /// Restores a send from a record, to the queue of a QP of this service and these capabilities.
    pub(crate) fn restore_send(
        &mut self,
        queue: &mut List,
        send: &record::Send,
        service: QpType,
        caps: &Caps,
    ) -> Result<(), Violation> {
        let to = send.destination.as_ref().map(to_destination).transpose()?;
        let record::Send { id, signaled, solicited, fence, ref operation, ref payload, .. } = *send;
        let op = SendOp::from(operation);
        let sges;
        let (payload, error) = match payload {
            record::Payload::Inline(data) => (Payload::Inline(data), None),
            record::Payload::Sges(list) => {
                sges = to_sges(list);
                (Payload::Sges(&sges), None)
            }
            record::Payload::NotUnderstood => (Payload::Sges(&[]), Some(WcStatus::LocQpOp)),
            record::Payload::WrongLength => (Payload::Sges(&[]), Some(WcStatus::LocLen)),
        };
        let request = SendRequest { id, signaled, solicited, fence, op, payload };
        let srqn = send.srqn.map(|number| Srqn::new(number).ok_or(Violation::Psn)).transpose()?;
        let work = match error {
            // A request that is wrong in itself names a shared queue if its service and operation
            // need one.
            Some(_) => Work::plain(&op, id, Flags::new(signaled, solicited, fence)),
            None => Work::new(&request, caps),
        };
        let mut named = work;
        named.name_queue(srqn, service);
        let work = match error {
            Some(_) => Work { error, srqn: named.srqn, ..work },
            None => named,
        };
        if work.error != error || work.srqn != srqn {
            return Err(Violation::Request);
        }
        self.push_to(queue, &work, to.as_ref(), payload);
        Ok(())
    }

    /// Returns the record of a receive queue.
    pub(crate) fn save_receives(&self, queue: &List) -> Vec<record::Receive> {
        let mut scratch = Scratch::default();
        let slots = self.receives.iter(queue);
        slots
            .map(|slot| {
                let sges = save_sges(self.elements(slot, &mut scratch));
                record::Receive { id: slot.id, sges, not_understood: false }
            })
            .collect()
    }

    /// Restores a receive from a record, to a queue whose receives have at most `max_sge` elements.
    pub(crate) fn restore_receive(
        &mut self,
        queue: &mut List,
        receive: &record::Receive,
        max_sge: usize,
    ) -> Result<(), Violation> {
        if receive.sges.len() > max_sge {
            return Err(Violation::Request);
        }
        self.push_receive(queue, receive.id, &to_sges(&receive.sges));
        Ok(())
    }

    /// Returns how many sends of a queue are before this one.
    pub(crate) fn send_position(&self, queue: &List, at: Option<At>) -> u32 {
        self.sends.position(queue, at)
    }

    /// Returns the send with `position` sends before it.
    pub(crate) fn send_at_position(&self, queue: &List, position: u32) -> Option<At> {
        self.sends.at_position(queue, position)
    }

    /// Iterates over the sends of a queue in order, without their payload.
    pub(crate) fn sends(&self, queue: &List) -> impl Iterator<Item = Work<'_>> {
        self.sends.iter(queue).map(|slot| slot.send.work())
    }
}

fn save_sges(sges: &[Sge]) -> Vec<record::Sge> {
    let save = |sge: &Sge| record::Sge { addr: sge.addr, length: sge.length, lkey: sge.lkey.0 };
    sges.iter().map(save).collect()
}

fn to_sges(sges: &[record::Sge]) -> Vec<Sge> {
    let restore = |sge: &record::Sge| Sge { addr: sge.addr, length: sge.length, lkey: Lkey(sge.lkey) };
    sges.iter().map(restore).collect()
}

fn save_destination(to: &Destination) -> record::Destination {
    let Destination {
        pd,
        qpn,
        qkey,
        dgid,
        dmac,
        sgid_index,
        sl,
        hop_limit,
        traffic_class,
        flow_label,
        udp_sport,
        vlan,
    } = *to;
    let (dgid, dmac) = (dgid.0, dmac.0);
    let av = record::AddressVector {
        sl,
        sgid_index,
        dgid,
        dmac,
        hop_limit,
        traffic_class,
        flow_label,
        udp_sport,
        vlan,
    };
    record::Destination { pd: pd.0, qpn: qpn.number(), qkey: qkey.0, av }
}

fn to_destination(to: &record::Destination) -> Result<Destination, Violation> {
    let record::AddressVector { sl, sgid_index, dgid, dmac, hop_limit, .. } = to.av;
    let record::AddressVector { traffic_class, flow_label, udp_sport, vlan, .. } = to.av;
    Ok(Destination {
        pd: PdId(to.pd),
        qpn: to_qpn(to.qpn)?,
        qkey: Qkey(to.qkey),
        dgid: Gid(dgid),
        dmac: Mac(dmac),
        sgid_index,
        sl,
        hop_limit,
        traffic_class,
        flow_label,
        udp_sport,
        vlan,
    })
}
