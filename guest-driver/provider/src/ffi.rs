//! rdma-core's declarations, and what this provider assumes about them.
#![allow(
    warnings,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::indexing_slicing,
    clippy::allow_attributes_without_reason,
    reason = "written by bindgen"
)]

include!(concat!(env!("OUT_DIR"), "/rdma_core.rs"));

/// The device uses the numbers of the verbs, so they are passed on unchanged.
const _: () = {
    use vrdma_verbs::abi::cqe::{WcOpcode, WcStatus};
    use vrdma_verbs::abi::wqe::WrOpcode;
    assert!(IBV_WC_SUCCESS == WcStatus::SUCCESS.0 as u32);
    assert!(IBV_WC_LOC_LEN_ERR == WcStatus::LOC_LEN_ERR.0 as u32);
    assert!(IBV_WC_LOC_QP_OP_ERR == WcStatus::LOC_QP_OP_ERR.0 as u32);
    assert!(IBV_WC_LOC_PROT_ERR == WcStatus::LOC_PROT_ERR.0 as u32);
    assert!(IBV_WC_WR_FLUSH_ERR == WcStatus::WR_FLUSH_ERR.0 as u32);
    assert!(IBV_WC_MW_BIND_ERR == WcStatus::MW_BIND_ERR.0 as u32);
    assert!(IBV_WC_BAD_RESP_ERR == WcStatus::BAD_RESP_ERR.0 as u32);
    assert!(IBV_WC_LOC_ACCESS_ERR == WcStatus::LOC_ACCESS_ERR.0 as u32);
    assert!(IBV_WC_REM_INV_REQ_ERR == WcStatus::REM_INV_REQ_ERR.0 as u32);
    assert!(IBV_WC_REM_ACCESS_ERR == WcStatus::REM_ACCESS_ERR.0 as u32);
    assert!(IBV_WC_REM_OP_ERR == WcStatus::REM_OP_ERR.0 as u32);
    assert!(IBV_WC_RETRY_EXC_ERR == WcStatus::RETRY_EXC_ERR.0 as u32);
    assert!(IBV_WC_RNR_RETRY_EXC_ERR == WcStatus::RNR_RETRY_EXC_ERR.0 as u32);
    assert!(IBV_WC_GENERAL_ERR == WcStatus::GENERAL_ERR.0 as u32);
    assert!(IBV_WC_SEND == WcOpcode::SEND.0 as u32);
    assert!(IBV_WC_RDMA_WRITE == WcOpcode::RDMA_WRITE.0 as u32);
    assert!(IBV_WC_RDMA_READ == WcOpcode::RDMA_READ.0 as u32);
    assert!(IBV_WC_COMP_SWAP == WcOpcode::COMP_SWAP.0 as u32);
    assert!(IBV_WC_FETCH_ADD == WcOpcode::FETCH_ADD.0 as u32);
    assert!(IBV_WC_BIND_MW == WcOpcode::BIND_MW.0 as u32);
    assert!(IBV_WC_LOCAL_INV == WcOpcode::LOCAL_INV.0 as u32);
    assert!(IBV_WC_FLUSH == WcOpcode::FLUSH.0 as u32);
    assert!(IBV_WC_ATOMIC_WRITE == WcOpcode::ATOMIC_WRITE.0 as u32);
    assert!(IBV_WC_RECV == WcOpcode::RECV.0 as u32);
    assert!(IBV_WC_RECV_RDMA_WITH_IMM == WcOpcode::RECV_RDMA_WITH_IMM.0 as u32);
    assert!(IBV_WR_RDMA_WRITE == WrOpcode::RDMA_WRITE.0 as u32);
    assert!(IBV_WR_ATOMIC_FETCH_AND_ADD == WrOpcode::ATOMIC_FETCH_AND_ADD.0 as u32);
    assert!(IBV_WR_FLUSH == WrOpcode::FLUSH.0 as u32);
    assert!(IBV_WR_ATOMIC_WRITE == WrOpcode::ATOMIC_WRITE.0 as u32);
    use vrdma_verbs::abi::control::access;
    assert!(IBV_ACCESS_REMOTE_WRITE == access::REMOTE_WRITE && IBV_ACCESS_REMOTE_READ == access::REMOTE_READ);
    assert!(IBV_ACCESS_REMOTE_ATOMIC == access::REMOTE_ATOMIC);
    assert!(IBV_ACCESS_ZERO_BASED == access::ZERO_BASED);
    assert!(IBV_ACCESS_FLUSH_GLOBAL == access::FLUSH_GLOBAL);
    use vrdma_verbs::abi::wqe::placement;
    assert!(
        IBV_FLUSH_GLOBAL == placement::GLOBAL as u32 && IBV_FLUSH_PERSISTENT == placement::PERSISTENT as u32
    );
};

/// SGEs are passed on unchanged too: `&[ibv_sge]` is read as `&[Sge]`.
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    use vrdma_verbs::Sge;
    assert!(size_of::<ibv_sge>() == size_of::<Sge>() && align_of::<ibv_sge>() == align_of::<Sge>());
    assert!(offset_of!(ibv_sge, addr) == offset_of!(Sge, addr));
    assert!(offset_of!(ibv_sge, length) == offset_of!(Sge, length));
    assert!(offset_of!(ibv_sge, lkey) == offset_of!(Sge, lkey));
};

/// Driver data follows directly after each of these. (In C they end in an array without elements.)
const _: () = {
    use core::mem::size_of;
    assert!(size_of::<ibv_get_context>() == 16 && size_of::<ib_uverbs_get_context_resp>() == 8);
    assert!(size_of::<ibv_create_cq>() == 40 && size_of::<ib_uverbs_create_cq_resp>() == 8);
    assert!(size_of::<ib_uverbs_alloc_pd_resp>() == 4);
    assert!(size_of::<ib_uverbs_create_qp_resp>() == 32 && size_of::<ib_uverbs_create_srq_resp>() == 16);
    assert!(size_of::<ib_uverbs_create_ah_resp>() == 4);
    assert!(size_of::<ib_uverbs_ioctl_hdr>() == 24 && size_of::<ib_uverbs_attr>() == 16);
};
