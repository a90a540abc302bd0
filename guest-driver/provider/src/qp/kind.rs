//! The kinds of queue pairs.

use vrdma_verbs::abi::control::device_cap;

use crate::batch;
use crate::context::Context;
use crate::errno::Errno;
use crate::ffi;

/// Transport service of a QP, and the send requests that it supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reliable connection: all requests.
    Rc,
    /// Unreliable connection: SEND and WRITE.
    Uc,
    /// Unreliable datagram: SEND.
    Ud,
    /// XRC initiator: all requests, as for reliable connections.
    XrcSend,
    /// XRC target: no requests.
    XrcRecv,
}

impl Kind {
    /// Whether the QP supports all requests.
    #[inline]
    pub fn is_reliable(self) -> bool {
        matches!(self, Kind::Rc | Kind::XrcSend)
    }

    /// Returns the kind that the attributes ask for, if the provider supports such QPs in this
    /// context.
    pub fn asked(attr: &ffi::ibv_qp_init_attr_ex, context: &Context) -> Result<Kind, Errno> {
        let kind = match attr.qp_type {
            ffi::IBV_QPT_RC => Kind::Rc,
            ffi::IBV_QPT_UC => Kind::Uc,
            ffi::IBV_QPT_UD => Kind::Ud,
            ffi::IBV_QPT_XRC_SEND if has_xrc(context) => Kind::XrcSend,
            ffi::IBV_QPT_XRC_RECV if has_xrc(context) => Kind::XrcRecv,
            _ => return Err(libc::EOPNOTSUPP),
        };
        // No creation flag is supported. The field may be present, but must be 0. libibverbs leaves
        // this check to providers.
        let has_flags = attr.comp_mask & ffi::IBV_QP_INIT_ATTR_CREATE_FLAGS != 0;
        let target = kind == Kind::XrcRecv;
        let known = ffi::IBV_QP_INIT_ATTR_PD
            | ffi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
            | ffi::IBV_QP_INIT_ATTR_CREATE_FLAGS;
        let known = if target { known | ffi::IBV_QP_INIT_ATTR_XRCD } else { known };
        if attr.comp_mask & !known != 0
            || has_flags && attr.create_flags != 0
            || by_functions(attr)
                && attr.send_ops_flags & !u64::from(batch::operations(kind, context.device_cap)) != 0
        {
            return Err(libc::EOPNOTSUPP);
        }
        if target {
            let has_domain = attr.comp_mask & ffi::IBV_QP_INIT_ATTR_XRCD != 0 && !attr.xrcd.is_null();
            return if has_domain { Ok(kind) } else { Err(libc::EINVAL) };
        }
        let has_pd = attr.comp_mask & ffi::IBV_QP_INIT_ATTR_PD != 0 && !attr.pd.is_null();
        let cap = &attr.cap;
        if !has_pd
            || attr.send_cq.is_null()
            || attr.recv_cq.is_null() && kind != Kind::XrcSend
            || !attr.srq.is_null() && kind == Kind::XrcSend
            || cap.max_inline_data > context.max_inline
            || cap.max_send_sge > context.max_sge
            || attr.srq.is_null() && kind != Kind::XrcSend && cap.max_recv_sge > context.max_sge
        {
            return Err(libc::EINVAL);
        }
        Ok(kind)
    }
}

/// Whether the caller wants to post by the functions of `ibv_qp_ex`.
pub fn by_functions(attr: &ffi::ibv_qp_init_attr_ex) -> bool {
    attr.comp_mask & ffi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0
}

fn has_xrc(context: &Context) -> bool {
    context.device_cap & device_cap::XRC != 0
}
