//! What commands say of rights to memory, of memory windows, of regions for fast registration, and
//! of those that are registered again.

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
        /// Windows may be bound to the region. With `VRDMA_CAP_MEM_WINDOW` or
        /// `VRDMA_CAP_MEM_WINDOW_TYPE_2B`.
        MW_BIND = 16,
        /// Of windows alone: peers count addresses from the window's first byte, which is 0.
        ZERO_BASED = 32,
        /// Peers may FLUSH to global visibility. With `VRDMA_CAP_FLUSH_GLOBAL`, as the next.
        FLUSH_GLOBAL = 256,
        /// Peers may FLUSH to persistence. Of QPs alone: a region that is to allow it is refused
        /// (UNSUPPORTED) by a device without `VRDMA_CAP_FLUSH_PERSISTENT`, so that such a FLUSH of
        /// a peer ends with `VRDMA_WC_REM_ACCESS_ERR`.
        FLUSH_PERSISTENT = 512,
        /// All that a region or a QP of version 1.0 may have.
        V1_0 = 15,
        /// The same; the name is from before there were windows.
        ALL = 15,
        /// All that a region may have; others are refused (INVALID). Of the bits of enum
        /// ibv_access_flags that are not here, drivers serve zero-based regions themselves (`iova`
        /// is 0), ignore the hints (huge pages and the optional range, such as relaxed ordering),
        /// and refuse what the device lacks (on-demand) with EOPNOTSUPP.
        REGION = 287,
        /// All that a QP may have; others are refused (INVALID).
        QP = 783,
        /// All that a window may have: remote rights, of which write and atomics need
        /// `VRDMA_ACCESS_LOCAL_WRITE` of the region, and zero-based.
        WINDOW = 46,
    }
}

layout! {
    /// Makes a memory window: a remote key that names nothing until a request binds it
    /// ([`WrOpcode::BIND_MW`](crate::wqe::WrOpcode::BIND_MW)). Windows and regions together are at
    /// most `max_mr`.
    pub struct AllocMwReq = "vrdma_alloc_mw_req" {
        /// Protection domain: that of the regions and QPs by which it is bound.
        pdn: U32,
        /// `VRDMA_MW_TYPE_*`.
        mw_type: U32,
    }
}

consts! {
    /// [`AllocMwReq::mw_type`], with the numbers of enum ibv_mw_type.
    pub mod mw_type: u32 = "VRDMA_MW_TYPE" {
        /// Type 1: any QP of the PD may bind it, again and again; peers of every QP of the PD may
        /// use it.
        TYPE_1 = 1,
        /// Type 2B: peers of the QP that bound it alone may use it. It has to be invalidated before
        /// it is bound again; when the QP is reset or destroyed it is unbound.
        TYPE_2B = 2,
    }
}

consts! {
    /// [`ReregMrReq::flags`], with the numbers of enum ibv_rereg_mr_flags.
    pub mod rereg: u32 = "VRDMA_REREG" {
        /// `iova`, `length` and the runs are new.
        TRANSLATION = 1,
        /// `pdn` is new: of the same context.
        PD = 2,
        /// `access` is new.
        ACCESS = 4,
        /// All that are defined.
        ALL = 7,
    }
}

layout! {
    /// Makes a region for fast registration: it names nothing until a request registers memory with
    /// it ([`WrOpcode::REG_MR`](crate::wqe::WrOpcode::REG_MR)), and again nothing when its key is
    /// invalidated. It counts as a region, and as `max_pages` runs.
    pub struct AllocFastMrReq = "vrdma_alloc_fast_mr_req" {
        /// Protection domain of the kernel's context.
        pdn: U32,
        /// Most pages of a registration: at least 1, and at most `max_fast_reg_pages`.
        max_pages: U32,
    }
}

layout! {
    /// Changes a region: ibv_rereg_mr(3). What `flags` does not name stays, and its fields are 0.
    ///
    /// With `VRDMA_REREG_TRANSLATION` the keys of the region are new afterwards, and the old ones
    /// name nothing; otherwise they stay, as peers may know them. Memory that the region had is not
    /// touched any more when the reply comes. If it ends in `VRDMA_STATUS_INTERNAL`, old and new
    /// memory have to stay until the device was reset.
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
        /// Length in bytes, the sum of the runs.
        length: U64,
    }
}
