//! Access rights, memory windows, fast registration and re-registration.

use zerocopy::little_endian::{U32, U64};

consts! {
    /// Access rights, with the numbers of enum ibv_access_flags.
    pub mod access: u32 = "VRDMA_ACCESS" {
        /// The owner's receives, READs and atomics may write.
        LOCAL_WRITE = 1,
        /// Peers may WRITE.
        REMOTE_WRITE = 2,
        /// Peers may READ.
        REMOTE_READ = 4,
        /// Peers may use atomics.
        REMOTE_ATOMIC = 8,
        /// Windows may be bound to the region. Needs `VRDMA_CAP_MEM_WINDOW` or
        /// `VRDMA_CAP_MEM_WINDOW_TYPE_2B`.
        MW_BIND = 16,
        /// For windows only: peers count addresses from the window's first byte, which is 0.
        ZERO_BASED = 32,
        /// Peers may FLUSH to global visibility. Needs `VRDMA_CAP_FLUSH_GLOBAL`.
        FLUSH_GLOBAL = 256,
        /// Peers may FLUSH to persistence. Needs `VRDMA_CAP_FLUSH_GLOBAL`. A device without
        /// `VRDMA_CAP_FLUSH_PERSISTENT` takes it for QPs only, and refuses it for a region
        /// (UNSUPPORTED). So such a FLUSH of a peer ends with `VRDMA_WC_REM_ACCESS_ERR`.
        FLUSH_PERSISTENT = 512,
        /// All rights that a region or a QP of version 1.0 may have.
        V1_0 = 15,
        /// All rights that a region or a QP of version 1.0 may have, like `VRDMA_ACCESS_V1_0`.
        ALL = 15,
        /// All rights that a region may have; others are refused (INVALID). The remaining bits of
        /// enum ibv_access_flags are the drivers' task. They serve zero-based regions themselves
        /// (`iova` is 0). They ignore hints: huge pages, and the optional range, such as relaxed
        /// ordering. They refuse what the device lacks (on-demand) with EOPNOTSUPP.
        REGION = 287,
        /// All rights that a QP may have; others are refused (INVALID).
        QP = 783,
        /// All rights that a window may have: remote rights, and zero-based. Remote write and
        /// atomics need `VRDMA_ACCESS_LOCAL_WRITE` of the region.
        WINDOW = 46,
    }
}

layout! {
    /// Makes a memory window.
    ///
    /// A window is a remote key that names nothing until a request binds it
    /// ([`WrOpcode::BIND_MW`](crate::wqe::WrOpcode::BIND_MW)). There are at most `max_mr` windows
    /// and regions together.
    pub struct AllocMwReq = "vrdma_alloc_mw_req" {
        /// Protection domain: that of the regions and QPs by which the window is bound.
        pdn: U32,
        /// `VRDMA_MW_TYPE_*`.
        mw_type: U32,
    }
}

consts! {
    /// [`AllocMwReq::mw_type`], with the numbers of enum ibv_mw_type.
    pub mod mw_type: u32 = "VRDMA_MW_TYPE" {
        /// Type 1. Any QP of the PD may bind the window, repeatedly. Peers of every QP of the PD
        /// may use it.
        TYPE_1 = 1,
        /// Type 2B. Only peers of the QP that bound the window may use it. It must be invalidated
        /// before it is bound again. It is unbound when the QP is reset or destroyed.
        TYPE_2B = 2,
    }
}

consts! {
    /// [`ReregMrReq::flags`], with the numbers of enum ibv_rereg_mr_flags.
    pub mod rereg: u32 = "VRDMA_REREG" {
        /// `iova`, `length` and the extents are new.
        TRANSLATION = 1,
        /// `pdn` is new. It must be of the same context.
        PD = 2,
        /// `access` is new.
        ACCESS = 4,
        /// All defined flags.
        ALL = 7,
    }
}

layout! {
    /// Makes a region for fast registration.
    ///
    /// The region names nothing until a request registers memory with it
    /// ([`WrOpcode::REG_MR`](crate::wqe::WrOpcode::REG_MR)). It names nothing again when its key is
    /// invalidated. It counts as a region, and as `max_pages` extents.
    pub struct AllocFastMrReq = "vrdma_alloc_fast_mr_req" {
        /// Protection domain of the kernel's context.
        pdn: U32,
        /// Most pages of a registration: at least 1, and at most `max_fast_reg_pages`.
        max_pages: U32,
    }
}

layout! {
    /// Changes a region: ibv_rereg_mr(3).
    ///
    /// What `flags` does not name stays, and its fields are 0.
    ///
    /// With `VRDMA_REREG_TRANSLATION` the region gets new keys, and the old ones name nothing.
    /// Without it the keys stay, because peers may know them. The device does not touch the
    /// region's former memory after the reply. If the command ends in `VRDMA_STATUS_INTERNAL`, old
    /// and new memory must stay until the device was reset.
    pub struct ReregMrReq = "vrdma_rereg_mr_req" {
        /// The region's local key.
        lkey: U32,
        /// `VRDMA_REREG_*`, at least one.
        flags: U32,
        /// Protection domain of the region's context.
        pdn: U32,
        /// `VRDMA_ACCESS_*`.
        access: U32,
        /// Address by which requests name the first byte.
        iova: U64,
        /// Length in bytes, the sum of the extents.
        length: U64,
    }
}
