//! Translation of verbs requests to requests of the device.

use std::ffi::c_int;
use std::slice;

use vrdma_verbs::{Data, Gather, Remote, Request, Sge, Tag, UdTarget};

use crate::ah::Ah;
use crate::errno::Errno;
use crate::ffi;
use crate::flush;
use crate::keys;
use crate::qp::{Kind, Qp};

/// Flags of send requests that are supported.
const SEND_FLAGS: u32 =
    ffi::IBV_SEND_FENCE | ffi::IBV_SEND_SIGNALED | ffi::IBV_SEND_SOLICITED | ffi::IBV_SEND_INLINE;

impl ffi::ibv_send_wr {
    /// Translates a send request for `qp`.
    ///
    /// # Safety
    /// As for [`super::Queue::translate`].
    #[inline]
    pub unsafe fn translate(&self, qp: &Qp, wqe_id: u32) -> Result<Request<'_>, Errno> {
        if !qp.takes_sends() || self.send_flags & !SEND_FLAGS != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: `sg_list` has `num_sge` elements (ibv_post_send(3), ibv_post_recv(3)).
        let sges = unsafe { elements(self.sg_list, self.num_sge, qp.max_send_sge) }?;
        let inline = self.send_flags & ffi::IBV_SEND_INLINE != 0;
        let data = if inline {
            // SAFETY: with this flag the SGEs name memory that this process can read
            // (ibv_post_send(3), `IBV_SEND_INLINE`).
            let gather = unsafe { Gather::new(sges) };
            if gather.len() > qp.max_inline as usize {
                return Err(libc::EINVAL);
            }
            Data::Gather(gather)
        } else {
            Data::Sges(sges)
        };
        let tag = Tag { qpn: qp.qpn, wqe_id };
        let request = match qp.kind {
            // SAFETY: on a UD QP `wr.ud` is the field that counts.
            Kind::Ud => unsafe { self.datagram(tag, data) },
            Kind::XrcSend => {
                // SAFETY: by this function's own contract; on an XRC QP `xrc` is the field that
                // counts.
                let (request, xrc) =
                    unsafe { (self.connected(qp, tag, sges, data, inline), self.qp_type.xrc) };
                // Requests about the requester's own keys go to no queue of the peer.
                let is_local = matches!(self.opcode, ffi::IBV_WR_LOCAL_INV | ffi::IBV_WR_BIND_MW);
                request.map(|request| if is_local { request } else { request.xrc(xrc.remote_srqn) })
            }
            // SAFETY: by this function's own contract.
            _ => unsafe { self.connected(qp, tag, sges, data, inline) },
        }?;
        Ok(request
            .signaled(qp.signal_all || self.send_flags & ffi::IBV_SEND_SIGNALED != 0)
            .solicited(self.send_flags & ffi::IBV_SEND_SOLICITED != 0)
            .fence(self.send_flags & ffi::IBV_SEND_FENCE != 0))
    }

    /// Translates a request of a connected QP.
    ///
    /// # Safety
    /// As for [`keys::translate`].
    #[inline]
    unsafe fn connected<'a>(
        &self,
        qp: &Qp,
        tag: Tag,
        sges: &'a [Sge],
        data: Data<'a>,
        inline: bool,
    ) -> Result<Request<'a>, Errno> {
        // SAFETY: all fields are integers, whichever one counts.
        let remote = unsafe { Remote { addr: self.wr.rdma.remote_addr, rkey: self.wr.rdma.rkey } };
        let is_rc = qp.kind.is_reliable();
        match self.opcode {
            ffi::IBV_WR_RDMA_WRITE => Ok(Request::write(tag, remote, data)),
            ffi::IBV_WR_RDMA_WRITE_WITH_IMM => Ok(Request::write_imm(tag, remote, self.imm(), data)),
            ffi::IBV_WR_SEND => Ok(Request::send(tag, data)),
            ffi::IBV_WR_SEND_WITH_IMM => Ok(Request::send_imm(tag, self.imm(), data)),
            ffi::IBV_WR_RDMA_READ if is_rc && !inline => Ok(Request::read(tag, remote, sges)),
            ffi::IBV_WR_ATOMIC_WRITE if is_rc => Ok(Request::atomic_write(tag, remote, data)),
            ffi::IBV_WR_ATOMIC_CMP_AND_SWP | ffi::IBV_WR_ATOMIC_FETCH_AND_ADD if is_rc && !inline => {
                let [result] = sges else { return Err(libc::EINVAL) };
                // SAFETY: for these opcodes `wr.atomic` is the field that counts.
                let atomic = unsafe { self.wr.atomic };
                let remote = Remote { addr: atomic.remote_addr, rkey: atomic.rkey };
                Ok(if self.opcode == ffi::IBV_WR_ATOMIC_CMP_AND_SWP {
                    Request::compare_swap(tag, remote, atomic.compare_add, atomic.swap, result)
                } else {
                    Request::fetch_add(tag, remote, atomic.compare_add, result)
                })
            }
            flush::OPCODE => flush::translate(self, qp, tag),
            // SAFETY: by this function's own contract.
            _ => unsafe { keys::translate(self, qp, tag, data) },
        }
    }

    /// Translates a request of a UD QP.
    ///
    /// # Safety
    /// `wr.ud` is the field that counts, and its address handle is alive.
    #[inline]
    unsafe fn datagram<'a>(&self, tag: Tag, data: Data<'a>) -> Result<Request<'a>, Errno> {
        // SAFETY: by this function's own contract, `wr.ud` was written, and its address handle is
        // not destroyed yet.
        let to = unsafe {
            let ud = self.wr.ud;
            let ah = Ah::index_of(ud.ah).ok_or(libc::EINVAL)?;
            UdTarget { ah, qpn: ud.remote_qpn, qkey: ud.remote_qkey }
        };
        match self.opcode {
            ffi::IBV_WR_SEND => Ok(Request::ud_send(tag, to, data)),
            ffi::IBV_WR_SEND_WITH_IMM => Ok(Request::ud_send_imm(tag, to, self.imm(), data)),
            _ => Err(libc::EINVAL),
        }
    }

    /// Returns the immediate data in network byte order.
    #[inline]
    fn imm(&self) -> [u8; 4] {
        // SAFETY: any bytes are a valid integer.
        unsafe { self.__bindgen_anon_1.imm_data }.to_ne_bytes()
    }
}

/// Returns the SGEs of a request. Fails with EINVAL if `count` is negative or more than `max`.
///
/// # Safety
/// `list` has `count` elements, unless that is negative or more than `max`.
#[inline]
pub unsafe fn elements<'a>(list: *const ffi::ibv_sge, count: c_int, max: u32) -> Result<&'a [Sge], Errno> {
    match u32::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: `list` has `count` elements by this function's own contract. The layouts are
        // equal (see `ffi`).
        Ok(count) if count <= max => Ok(unsafe { slice::from_raw_parts(list.cast(), count as usize) }),
        _ => Err(libc::EINVAL),
    }
}
