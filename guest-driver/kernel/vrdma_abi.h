/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * What the driver and the vrdma device say to each other in memory.
 *
 * Generated from the crate vrdma-abi, whose documentation is the specification:
 * VRDMA_BLESS=1 cargo test -p vrdma-abi
 */
#ifndef VRDMA_ABI_H
#define VRDMA_ABI_H

#include <linux/types.h>
#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/stddef.h>
#else
#include <assert.h>
#include <stddef.h>
#endif

/* How a driver recognises the device. */
#define VRDMA_VIRTIO_ID 42 /* Virtio device id "RDMA" (virtio specification, section 5). */
/*
 * Stand-in id for VMMs that refuse 42. Linux has no driver for it. A driver that binds it must
 * check MAGIC and VERSION_MAJOR before anything else.
 */
#define VRDMA_VIRTIO_ID_STANDIN 38
/* First word of the configuration space of a function of transport RoCE: the bytes "vrdm". */
#define VRDMA_MAGIC 0x6d647276u
/*
 * First word of the configuration space of a function of another transport than RoCE: the bytes
 * "vrdt". super::Config::transport names the transport. Drivers of version 1.0 know only MAGIC, so
 * they do not use such a function.
 */
#define VRDMA_MAGIC_TRANSPORT 0x74647276u
#define VRDMA_VERSION_MAJOR 1 /* Major version of this ABI. Drivers refuse any other. */
/* Minor version. It grows with each addition that an older driver may ignore. */
#define VRDMA_VERSION_MINOR 3
/*
 * Size in bytes of the configuration space that the device answers for. Bytes beyond super::Config
 * read as zero.
 */
#define VRDMA_CONFIG_SIZE 256

/*
 * Virtqueue numbers.
 *
 * Config::num_comp_vectors completion event queues follow the async event queue. Then follow
 * Config::num_channels channels. The first channel always belongs to the kernel.
 */
#define VRDMA_QUEUE_CONTROL 0 /* Control commands. */
#define VRDMA_QUEUE_ASYNC_EVENTS 1 /* Asynchronous events. */
/* First of the completion event queues; there is one for each completion vector. */
#define VRDMA_QUEUE_FIRST_COMP_EVENTS 2

/* Configuration space of the RDMA function. Read-only. */
struct vrdma_config {
	/* VRDMA_MAGIC or VRDMA_MAGIC_TRANSPORT. */
	__le32 magic;
	/* VRDMA_VERSION_MAJOR. */
	__le16 version_major;
	/* VRDMA_VERSION_MINOR. */
	__le16 version_minor;
	/* MAC address. The guest's netdev to which the device belongs has it too. */
	__u8 mac[6];
	/* Number of completion vectors, at least 1. Each has an event virtqueue. */
	__le16 num_comp_vectors;
	/* Number of channel virtqueues, at least 1. The kernel's channel is included. */
	__le16 num_channels;
	/* Largest request in a channel, in 64-byte units. */
	__u8 max_wqe_units;
	/*
	 * VRDMA_LINK_*. If it is down, the link is down. If it is up, QUERY_PORT and the events
	 * VRDMA_EVENT_PORT_* tell the link's current state.
	 */
	__u8 link;
	/* Largest path MTU in bytes: 256, 512, 1024, 2048 or 4096. */
	__le32 max_mtu;
	/* VRDMA_TRANSPORT_*. Other transports than RoCE come with VRDMA_MAGIC_TRANSPORT. */
	__u8 transport;
	/* Written as zero. */
	__u8 reserved[39];
};
static_assert(sizeof(struct vrdma_config) == 64);
static_assert(offsetof(struct vrdma_config, magic) == 0);
static_assert(offsetof(struct vrdma_config, version_major) == 4);
static_assert(offsetof(struct vrdma_config, version_minor) == 6);
static_assert(offsetof(struct vrdma_config, mac) == 8);
static_assert(offsetof(struct vrdma_config, num_comp_vectors) == 14);
static_assert(offsetof(struct vrdma_config, num_channels) == 16);
static_assert(offsetof(struct vrdma_config, max_wqe_units) == 18);
static_assert(offsetof(struct vrdma_config, link) == 19);
static_assert(offsetof(struct vrdma_config, max_mtu) == 20);
static_assert(offsetof(struct vrdma_config, transport) == 24);
static_assert(offsetof(struct vrdma_config, reserved) == 25);

/* Values of Config::link. */
#define VRDMA_LINK_DOWN 0 /* No link. */
#define VRDMA_LINK_UP 1 /* The link is up. */

/* Values of Config::transport. */
#define VRDMA_TRANSPORT_ROCE 0 /* RoCE version 2. */
/*
 * iWARP. All QPs are reliable connections. Commands that need GIDs, address handles or another type
 * of QP are UNSUPPORTED.
 */
#define VRDMA_TRANSPORT_IWARP 1

/* ReqHeader::opcode. Each entry names its request -> reply; - is none. */
#define VRDMA_CMD_QUERY_DEVICE 1 /* - -> QueryDeviceExResp (QueryDeviceResp in version 1.0) */
#define VRDMA_CMD_QUERY_PORT 2 /* - -> QueryPortResp. There is one port, number 1. */
#define VRDMA_CMD_QUERY_GID 3 /* ObjectReq (GID index) -> QueryGidResp */
/*
 * AddGidReq -> -. Replaces the entry. DENIED if the host does not let this guest use the address in
 * that VLAN, or if another guest has the address there.
 */
#define VRDMA_CMD_ADD_GID 4
#define VRDMA_CMD_DEL_GID 5 /* ObjectReq (GID index) -> -. An empty entry may be deleted. */
#define VRDMA_CMD_ALLOC_CONTEXT 8 /* - -> ObjectResp (context) */
#define VRDMA_CMD_DEALLOC_CONTEXT 9 /* ObjectReq (context) -> -. BUSY while it owns anything. */
#define VRDMA_CMD_BIND_CHANNEL 10 /* BindChannelReq, extents (the window) -> - */
/* ObjectReq (virtqueue number) -> -. Drops the entries that the device has not taken yet. */
#define VRDMA_CMD_UNBIND_CHANNEL 11
#define VRDMA_CMD_ALLOC_PD 16 /* ObjectReq (context) -> ObjectResp (PDN) */
/* ObjectReq (PDN) -> -. BUSY while MRs, memory windows or QPs use it. */
#define VRDMA_CMD_DEALLOC_PD 17
/*
 * - -> ObjectResp (XRC domain). Needs VRDMA_CAP_XRC. The domain belongs to the kernel's context,
 * because processes share it.
 */
#define VRDMA_CMD_ALLOC_XRCD 18
/*
 * ObjectReq (XRC domain) -> -. Needs VRDMA_CAP_XRC. BUSY while QPs or shared receive queues are in
 * it.
 */
#define VRDMA_CMD_DEALLOC_XRCD 19
#define VRDMA_CMD_SET_PORT_MTU 12 /* SetPortMtuReq -> - */
#define VRDMA_CMD_QUERY_COUNTERS 13 /* - -> CountersResp. Needs VRDMA_CAP_HW_COUNTERS. */
#define VRDMA_CMD_QUERY_CLOCK 14 /* - -> ClockResp. Needs VRDMA_CAP_CQ_TIMESTAMP. */
#define VRDMA_CMD_CREATE_CQ 24 /* CreateCqReq, extents (see cqe) -> CreateCqResp */
/* ObjectReq (CQN) -> -. BUSY while QPs or XRC shared receive queues use it. */
#define VRDMA_CMD_DESTROY_CQ 25
/*
 * ResizeCqReq, extents (the new ring and record, see cqe) -> -. Needs VRDMA_CAP_CQ_RESIZE. The
 * device first takes all requests that were made available in a channel before the command. It also
 * waits, for at most 10 ms, until those that need no peer have ended. INVALID if the CQEs not yet
 * consumed do not fit, or the CQ failed.
 */
#define VRDMA_CMD_RESIZE_CQ 26
#define VRDMA_CMD_MODIFY_CQ 27 /* ModifyCqReq -> -. Needs VRDMA_CAP_CQ_MODERATION. */
#define VRDMA_CMD_REG_MR 32 /* RegMrReq, extents (the region) -> RegMrResp */
/*
 * ObjectReq (lkey) -> -. BUSY while windows are bound to the region. If ALLOC_FAST_MR made the
 * region, the low 8 bits of the lkey do not count.
 */
#define VRDMA_CMD_DEREG_MR 33
/*
 * DmaMrReq -> RegMrResp. Registers all guest memory, with iova = GPA. For PDs of the kernel only.
 */
#define VRDMA_CMD_GET_DMA_MR 34
/*
 * AllocMwReq -> ObjectResp (the window's first rkey). Needs VRDMA_CAP_MEM_WINDOW or
 * VRDMA_CAP_MEM_WINDOW_TYPE_2B.
 */
#define VRDMA_CMD_ALLOC_MW 35
/*
 * ObjectReq (rkey, without its low 8 bits) -> -. Needs VRDMA_CAP_MEM_WINDOW or
 * VRDMA_CAP_MEM_WINDOW_TYPE_2B. Unbinds the window if it is bound.
 */
#define VRDMA_CMD_DEALLOC_MW 36
/*
 * ReregMrReq, with VRDMA_REREG_TRANSLATION extents (the region) -> RegMrResp. Needs
 * VRDMA_CAP_REREG_MR. BUSY while windows are bound to the region.
 */
#define VRDMA_CMD_REREG_MR 37
/*
 * AllocFastMrReq -> RegMrResp (the region's first keys). Needs VRDMA_CAP_MEM_MGT_EXTENSIONS. For
 * PDs of the kernel only.
 */
#define VRDMA_CMD_ALLOC_FAST_MR 38
#define VRDMA_CMD_CREATE_QP 40 /* CreateQpReq -> CreateQpResp */
/*
 * ModifyQpReq -> -. The device first takes all requests that were made available in a channel
 * before the command.
 */
#define VRDMA_CMD_MODIFY_QP 41
#define VRDMA_CMD_QUERY_QP 42 /* ObjectReq (QPN) -> QpAttr */
/*
 * ObjectReq (QPN) -> -. The device first takes all requests that were made available in a channel
 * before the command. Pending requests end without a completion. The QP leaves its multicast
 * groups: the device does not refuse to destroy a member. Verbs refuse that (EBUSY), and drivers
 * enforce it.
 */
#define VRDMA_CMD_DESTROY_QP 43
/* AhTableReq, extents (see ah) -> -. Given once, before the first UD QP. */
#define VRDMA_CMD_SET_AH_TABLE 48
#define VRDMA_CMD_CREATE_SRQ 50 /* CreateSrqReq -> CreateSrqResp. Needs VRDMA_CAP_SRQ. */
/*
 * ModifySrqReq -> -. Needs VRDMA_CAP_SRQ. The device first takes all receives that were made
 * available in a channel before the command.
 */
#define VRDMA_CMD_MODIFY_SRQ 51
#define VRDMA_CMD_QUERY_SRQ 52 /* ObjectReq (SRQN) -> QuerySrqResp. Needs VRDMA_CAP_SRQ. */
/*
 * ObjectReq (SRQN) -> -. Needs VRDMA_CAP_SRQ. BUSY while QPs use the queue. The device first takes
 * all receives that were made available in a channel before the command. Receives of the queue end
 * without a completion. No XRC QP keeps a shared receive queue in use: a message that has begun
 * there is refused. A READ that has begun there is still answered, also repeatedly, as long as its
 * region exists.
 */
#define VRDMA_CMD_DESTROY_SRQ 53
/*
 * McastReq -> -. Needs VRDMA_CAP_MULTICAST. Attaching a member again changes nothing. INVALID if
 * the QP is not UD, or the address is not one of a group. NO_RESOURCES beyond a limit.
 */
#define VRDMA_CMD_ATTACH_MCAST 56
/* McastReq -> -. Needs VRDMA_CAP_MULTICAST. INVALID if the QP is not a member. */
#define VRDMA_CMD_DETACH_MCAST 57
/*
 * CmListenReq -> ObjectResp (listener). Transport iWARP only. DENIED for an address that is not the
 * guest's, BUSY if the port is in use.
 */
#define VRDMA_CMD_CM_LISTEN 64
/*
 * ObjectReq (listener) -> -. Transport iWARP only. Ends the listener's connections that were not
 * accepted. Those reported to the driver keep their numbers until it rejects or releases them.
 */
#define VRDMA_CMD_CM_CLOSE_LISTENER 65
/*
 * CmConnectReq -> ObjectResp (connection). Transport iWARP only. An event reports the result.
 * DENIED for addresses that the guest may not use. See "Connections of iWARP".
 */
#define VRDMA_CMD_CM_CONNECT 66
/*
 * CmAcceptReq -> -. Transport iWARP only. An event reports when the connection is established.
 * INVALID if the peer has gone. See "Connections of iWARP".
 */
#define VRDMA_CMD_CM_ACCEPT 67
/*
 * CmRejectReq -> -. Transport iWARP only. Releases the connection's number. See "Connections of
 * iWARP".
 */
#define VRDMA_CMD_CM_REJECT 68
/*
 * ObjectReq (QPN) -> -. Transport iWARP only. Ends the connection of a QP in order: no further
 * request begins, and those that have begun end. Then the QP goes to ERR, and its peer is told. To
 * end the connection at once, modify the QP to ERR or destroy it.
 */
#define VRDMA_CMD_CM_DISCONNECT 69
/*
 * ObjectReq (connection) -> -. Transport iWARP only. Releases the connection's number; no later
 * event names it. A connection that is not over is ended at once.
 */
#define VRDMA_CMD_CM_RELEASE 70
/* - -> CmEventResp. Transport iWARP only. Returns the next event, in order. */
#define VRDMA_CMD_CM_GET_EVENT 71

/* RespHeader::status. The errno that drivers make of it is in brackets. */
#define VRDMA_STATUS_OK 0 /* Done. */
/* Unknown opcode, or an option that this device does not have (EOPNOTSUPP). */
#define VRDMA_STATUS_UNSUPPORTED 1
#define VRDMA_STATUS_INVALID 2 /* A malformed request, or a value that is never valid (EINVAL). */
#define VRDMA_STATUS_NOT_FOUND 3 /* No such object (ENOENT). */
#define VRDMA_STATUS_BUSY 4 /* The object is in use (EBUSY). */
/* The object belongs to somebody else, or the host forbids it (EPERM). */
#define VRDMA_STATUS_DENIED 5
/* A limit of the device or of this guest's quota is reached (ENOMEM). */
#define VRDMA_STATUS_NO_RESOURCES 6
#define VRDMA_STATUS_FAULT 7 /* An extent that is not wholly in guest memory (EFAULT). */
#define VRDMA_STATUS_INTERNAL 8 /* The device failed, through no fault of the driver (EIO). */
/* More extents than max_mr_runs. Drivers return ENOMEM, as verbs do when the device lacks room. */
#define VRDMA_STATUS_TOO_LARGE 9

/* Fixed limits. */
#define VRDMA_KERNEL_CONTEXT 0 /* Number of the kernel's context. */
#define VRDMA_NONE 0xffffffffu /* Means "none" in a field that names an optional object. */
#define VRDMA_GSI_QPN 1 /* QPN of the general services QP (QP1). */
/* Least bytes of an extent of a region, except for the first and the last extent. */
#define VRDMA_MIN_RUN 4096

/* Header of each command. */
struct vrdma_cmd_req {
	/* VRDMA_CMD_*. */
	__le16 opcode;
	/* Written as zero; refused otherwise. */
	__le16 reserved;
	/*
	 * Number of struct vrdma_run behind the request structure; 0 for commands without memory.
	 */
	__le32 num_runs;
	/* Returned in the reply. The device gives it no meaning. */
	__le64 cookie;
};
static_assert(sizeof(struct vrdma_cmd_req) == 16);
static_assert(offsetof(struct vrdma_cmd_req, opcode) == 0);
static_assert(offsetof(struct vrdma_cmd_req, reserved) == 2);
static_assert(offsetof(struct vrdma_cmd_req, num_runs) == 4);
static_assert(offsetof(struct vrdma_cmd_req, cookie) == 8);

/* Header of each reply. */
struct vrdma_cmd_resp {
	/* VRDMA_STATUS_*. */
	__le32 status;
	/* Written as zero. */
	__le32 reserved;
	/* The request's cookie. */
	__le64 cookie;
};
static_assert(sizeof(struct vrdma_cmd_resp) == 16);
static_assert(offsetof(struct vrdma_cmd_resp, status) == 0);
static_assert(offsetof(struct vrdma_cmd_resp, reserved) == 4);
static_assert(offsetof(struct vrdma_cmd_resp, cookie) == 8);

/* An extent: contiguous bytes of guest memory. It needs no alignment. */
struct vrdma_run {
	/* First byte, a guest-physical address. */
	__le64 addr;
	/* Length in bytes, not 0. */
	__le64 len;
};
static_assert(sizeof(struct vrdma_run) == 16);
static_assert(offsetof(struct vrdma_run, addr) == 0);
static_assert(offsetof(struct vrdma_run, len) == 8);

/* Request that names one object. */
struct vrdma_object_req {
	/* Number of the object. The opcode determines its kind. */
	__le32 object;
	/* Written as zero; refused otherwise. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_object_req) == 8);
static_assert(offsetof(struct vrdma_object_req, object) == 0);
static_assert(offsetof(struct vrdma_object_req, reserved) == 4);

/* Reply that names a new object. */
struct vrdma_object_resp {
	/* Number of the object. The opcode determines its kind. */
	__le32 object;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_object_resp) == 8);
static_assert(offsetof(struct vrdma_object_resp, object) == 0);
static_assert(offsetof(struct vrdma_object_resp, reserved) == 4);

/* Limits of the device, as in version 1.0. */
struct vrdma_query_device_resp {
	/* Version of the device's software, major << 32 | minor << 16 | patch. */
	__le64 fw_version;
	/* System image GUID, EUI-64 of the MAC, in network byte order. */
	__u8 sys_image_guid[8];
	/* Largest region, bytes. */
	__le64 max_mr_size;
	/* Most extents of one region. */
	__le32 max_mr_runs;
	/* Most user contexts. */
	__le32 max_contexts;
	/* Most PDs. */
	__le32 max_pd;
	/* Most CQs. */
	__le32 max_cq;
	/* Most CQEs of one CQ; a power of two. */
	__le32 max_cqe;
	/* Most MRs and memory windows together. */
	__le32 max_mr;
	/*
	 * A power of two. No two existing QPs have QPNs that are equal modulo this number. Two of
	 * the QPNs are not for ordinary QPs (0, and 1 for QP1), so there are at most max_qp - 2 of
	 * them.
	 */
	__le32 max_qp;
	/* Most requests outstanding of one send or receive queue. */
	__le32 max_qp_wr;
	/* Most scatter/gather elements of a send request. */
	__le32 max_send_sge;
	/* Most scatter/gather elements of a receive request. */
	__le32 max_recv_sge;
	/* Most bytes of inline data in a send request. */
	__le32 max_inline;
	/* Most READs and atomics outstanding of one QP, as requester. */
	__le32 max_rd_atomic;
	/* Most READs and atomics outstanding of one QP, as responder. */
	__le32 max_dest_rd_atomic;
	/* Most entries of the AH table, the kernel's own included. */
	__le32 max_ah;
	/*
	 * 0: no atomics. 1: atomic with respect to this device (IB_ATOMIC_HCA). 2 or more: atomic
	 * with respect to processors too (IB_ATOMIC_GLOB), because atomics are the host's own
	 * instructions. An emulator may break that promise on the guest's side, by making the
	 * guest's locked instructions plain ones. QEMU's TCG does so for a VM with one processor.
	 */
	__le32 atomic_cap;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_query_device_resp) == 88);
static_assert(offsetof(struct vrdma_query_device_resp, fw_version) == 0);
static_assert(offsetof(struct vrdma_query_device_resp, sys_image_guid) == 8);
static_assert(offsetof(struct vrdma_query_device_resp, max_mr_size) == 16);
static_assert(offsetof(struct vrdma_query_device_resp, max_mr_runs) == 24);
static_assert(offsetof(struct vrdma_query_device_resp, max_contexts) == 28);
static_assert(offsetof(struct vrdma_query_device_resp, max_pd) == 32);
static_assert(offsetof(struct vrdma_query_device_resp, max_cq) == 36);
static_assert(offsetof(struct vrdma_query_device_resp, max_cqe) == 40);
static_assert(offsetof(struct vrdma_query_device_resp, max_mr) == 44);
static_assert(offsetof(struct vrdma_query_device_resp, max_qp) == 48);
static_assert(offsetof(struct vrdma_query_device_resp, max_qp_wr) == 52);
static_assert(offsetof(struct vrdma_query_device_resp, max_send_sge) == 56);
static_assert(offsetof(struct vrdma_query_device_resp, max_recv_sge) == 60);
static_assert(offsetof(struct vrdma_query_device_resp, max_inline) == 64);
static_assert(offsetof(struct vrdma_query_device_resp, max_rd_atomic) == 68);
static_assert(offsetof(struct vrdma_query_device_resp, max_dest_rd_atomic) == 72);
static_assert(offsetof(struct vrdma_query_device_resp, max_ah) == 76);
static_assert(offsetof(struct vrdma_query_device_resp, atomic_cap) == 80);
static_assert(offsetof(struct vrdma_query_device_resp, reserved) == 84);

/* Limits and capabilities of the device. */
struct vrdma_query_device_ex_resp {
	/* The limits of version 1.0. */
	struct vrdma_query_device_resp base;
	/* VRDMA_CAP_*. 0 (a device of version 1.0) means VRDMA_CAP_V1_0. */
	__le64 device_cap;
	/* Most shared receive queues. The limits of their receives are those of QPs. */
	__le32 max_srq;
	/* Most multicast groups with members; 0 without VRDMA_CAP_MULTICAST. */
	__le32 max_mcast_grp;
	/* Most QPs of one multicast group. */
	__le32 max_mcast_qp_attach;
	/* Most QPs of all multicast groups together. */
	__le32 max_total_mcast_qp_attach;
	/* Most pages of a fast registration; 0 without VRDMA_CAP_MEM_MGT_EXTENSIONS. */
	__le32 max_fast_reg_pages;
	/* Written as zero. */
	__u8 reserved[140];
};
static_assert(sizeof(struct vrdma_query_device_ex_resp) == 256);
static_assert(offsetof(struct vrdma_query_device_ex_resp, base) == 0);
static_assert(offsetof(struct vrdma_query_device_ex_resp, device_cap) == 88);
static_assert(offsetof(struct vrdma_query_device_ex_resp, max_srq) == 96);
static_assert(offsetof(struct vrdma_query_device_ex_resp, max_mcast_grp) == 100);
static_assert(offsetof(struct vrdma_query_device_ex_resp, max_mcast_qp_attach) == 104);
static_assert(offsetof(struct vrdma_query_device_ex_resp, max_total_mcast_qp_attach) == 108);
static_assert(offsetof(struct vrdma_query_device_ex_resp, max_fast_reg_pages) == 112);
static_assert(offsetof(struct vrdma_query_device_ex_resp, reserved) == 116);

/*
 * QueryDeviceExResp::device_cap.
 *
 * A device sets a bit only if it has the whole function. Bits whose function this crate does not
 * describe are reserved by name: no device has them yet.
 */
#define VRDMA_CAP_CUR_QP_STATE 1 /* MODIFY_QP compares the current state with cur_state. */
#define VRDMA_CAP_PORT_ACTIVE_EVENT 2 /* VRDMA_EVENT_PORT_ACTIVE reports that the port is up. */
#define VRDMA_CAP_SYS_IMAGE_GUID 4 /* sys_image_guid is valid. */
#define VRDMA_CAP_RNR_NAK 8 /* A missing receive of a reliable connection gives an RNR NAK. */
#define VRDMA_CAP_BAD_QKEY_COUNTER 16 /* The counter bad_qkeys is maintained. */
#define VRDMA_CAP_V1_0 31 /* The functions of a device of version 1.0. */
#define VRDMA_CAP_SRQ 256 /* Shared receive queues, with limit events and LAST_WQE_REACHED. */
#define VRDMA_CAP_SRQ_RESIZE 512 /* Shared receive queues can be resized. */
#define VRDMA_CAP_XRC 1024 /* XRC: domains, shared receive queues, and both types of QP. */
#define VRDMA_CAP_MEM_WINDOW 2048 /* Memory windows of type 1. */
#define VRDMA_CAP_MEM_WINDOW_TYPE_2B 4096 /* Memory windows of type 2B. */
/* Base memory management extensions: fast registration, local invalidate, SEND with invalidate. */
#define VRDMA_CAP_MEM_MGT_EXTENSIONS 8192
/* Regions can be registered again with other memory, rights or PD. */
#define VRDMA_CAP_REREG_MR 16384
#define VRDMA_CAP_ATOMIC_WRITE 32768 /* ATOMIC WRITE. */
#define VRDMA_CAP_FLUSH_GLOBAL 0x10000u /* FLUSH to global visibility. */
#define VRDMA_CAP_FLUSH_PERSISTENT 0x20000u /* FLUSH to persistence. */
#define VRDMA_CAP_CQ_RESIZE 0x40000u /* CQs can be resized. */
/* Completion events can be moderated, by count and time. */
#define VRDMA_CAP_CQ_MODERATION 0x80000u
/* CQs whose CQEs have a time stamp, and a clock to query. */
#define VRDMA_CAP_CQ_TIMESTAMP 0x100000u
#define VRDMA_CAP_CQ_IGNORE_OVERRUN 0x200000u /* CQs that ignore an overrun. */
#define VRDMA_CAP_MULTICAST 0x400000u /* UD QPs can be attached to multicast groups. */
/* Counters of the port, of the device and of its protocol. */
#define VRDMA_CAP_HW_COUNTERS 0x800000u
/*
 * CM_CONNECT must name the next hop, because the device has no routes and no neighbours of its own.
 */
#define VRDMA_CAP_NEXT_HOP 0x1000000u
/* Lists of requests (VRDMA_WQE_F_LIST). max_wqe_units is at least 2. */
#define VRDMA_CAP_WQE_LIST 0x2000000u
/* CM_CONNECT and CM_LISTEN set the traffic class of connections. */
#define VRDMA_CAP_CM_TRAFFIC_CLASS 0x4000000u

/* State of the port. */
struct vrdma_query_port_resp {
	/* VRDMA_PORT_* (the numbers of enum ib_port_state). */
	__u8 state;
	/* Reserved, zero. */
	__u8 reserved0;
	/* Entries of the GID table. */
	__le16 gid_table_len;
	/* Largest path MTU, bytes. */
	__le32 max_mtu;
	/* Path MTU in use, bytes: the largest, or the value of SET_PORT_MTU. */
	__le32 active_mtu;
	/*
	 * Speed of the uplink in Mb/s; 100,000 if there is no uplink, or it does not report its
	 * speed.
	 */
	__le32 speed;
	/* Largest message, bytes. */
	__le32 max_msg_size;
	/* Packets or same-host messages refused for a wrong Q_Key. */
	__le32 bad_qkeys;
	/* Written as zero. */
	__le64 reserved;
};
static_assert(sizeof(struct vrdma_query_port_resp) == 32);
static_assert(offsetof(struct vrdma_query_port_resp, state) == 0);
static_assert(offsetof(struct vrdma_query_port_resp, reserved0) == 1);
static_assert(offsetof(struct vrdma_query_port_resp, gid_table_len) == 2);
static_assert(offsetof(struct vrdma_query_port_resp, max_mtu) == 4);
static_assert(offsetof(struct vrdma_query_port_resp, active_mtu) == 8);
static_assert(offsetof(struct vrdma_query_port_resp, speed) == 12);
static_assert(offsetof(struct vrdma_query_port_resp, max_msg_size) == 16);
static_assert(offsetof(struct vrdma_query_port_resp, bad_qkeys) == 20);
static_assert(offsetof(struct vrdma_query_port_resp, reserved) == 24);

/* QueryPortResp::state. */
#define VRDMA_PORT_DOWN 1 /* No link. */
#define VRDMA_PORT_ACTIVE 4 /* Link up. */

/*
 * Sets the largest datagram that the guest's netdev allows.
 *
 * The device does not know the MTU of that netdev.
 */
struct vrdma_set_port_mtu_req {
	/* Path MTU in bytes: 256, 512, 1024, 2048 or 4096, and at most max_mtu. */
	__le32 mtu;
	/* Written as zero; refused otherwise. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_set_port_mtu_req) == 8);
static_assert(offsetof(struct vrdma_set_port_mtu_req, mtu) == 0);
static_assert(offsetof(struct vrdma_set_port_mtu_req, reserved) == 4);

/*
 * What the device has counted since it was made. A reset clears no counter.
 *
 * A *message* is one of the IBTA's, of any length. Messages between guests of one host are not
 * packets. Further counters will come in a longer structure that begins with this one.
 */
struct vrdma_counters_resp {
	/*
	 * Bytes of payload sent: of SENDs, WRITEs and ATOMIC WRITEs, and of answers to READs of
	 * peers.
	 */
	__le64 bytes_sent;
	/*
	 * Bytes of payload received: of SENDs, WRITEs and ATOMIC WRITEs, and of answers to own
	 * READs.
	 */
	__le64 bytes_received;
	/* RoCE packets sent. */
	__le64 packets_sent;
	/* RoCE packets received. */
	__le64 packets_received;
	/* SENDs executed as requester. */
	__le64 sends;
	/* WRITEs executed as requester. */
	__le64 writes;
	/* READs executed as requester. */
	__le64 reads;
	/* Atomics executed as requester, ATOMIC WRITEs included. */
	__le64 atomics;
	/* Messages that consumed a receive. */
	__le64 receives;
	/* Duplicate request packets received. */
	__le64 duplicates;
	/* Request packets received past the expected PSN. */
	__le64 out_of_order;
	/* RNR NAKs sent. On the same host: messages of peers that found no receive. */
	__le64 rnr_naks_sent;
	/* RNR NAKs received. On the same host: own messages that found no receive. */
	__le64 rnr_naks_received;
	/* NAKs sent for a gap in the PSNs. */
	__le64 sequence_naks_sent;
	/* NAKs received for a gap in the PSNs. */
	__le64 sequence_naks_received;
	/*
	 * Requests of peers refused: invalid requests, remote access errors, and failures of this
	 * device.
	 */
	__le64 requests_refused;
	/* Own requests that failed by a peer's NAK. */
	__le64 naks_received;
	/* Local ACK timeouts. */
	__le64 timeouts;
	/* Attempts after the first. */
	__le64 retries;
	/* Requests that failed because the peer did not answer. */
	__le64 retry_exceeded;
	/* Requests that failed because the peer posted no receive in time. */
	__le64 rnr_retry_exceeded;
	/* Packets and messages dropped on arrival, for any reason. */
	__le64 dropped;
	/* Own messages lost because nobody has the address. */
	__le64 unroutable;
	/* Completions with an error. Flushes are not counted. */
	__le64 errors;
	/* Requests flushed. */
	__le64 flushes;
	/* Requests in channels that were dropped or malformed. */
	__le64 bad_requests;
	/* CQs that overran. */
	__le64 cq_overruns;
	/* Datagrams of this guest that named no address handle in use. */
	__le64 bad_address_handles;
};
static_assert(sizeof(struct vrdma_counters_resp) == 224);
static_assert(offsetof(struct vrdma_counters_resp, bytes_sent) == 0);
static_assert(offsetof(struct vrdma_counters_resp, bytes_received) == 8);
static_assert(offsetof(struct vrdma_counters_resp, packets_sent) == 16);
static_assert(offsetof(struct vrdma_counters_resp, packets_received) == 24);
static_assert(offsetof(struct vrdma_counters_resp, sends) == 32);
static_assert(offsetof(struct vrdma_counters_resp, writes) == 40);
static_assert(offsetof(struct vrdma_counters_resp, reads) == 48);
static_assert(offsetof(struct vrdma_counters_resp, atomics) == 56);
static_assert(offsetof(struct vrdma_counters_resp, receives) == 64);
static_assert(offsetof(struct vrdma_counters_resp, duplicates) == 72);
static_assert(offsetof(struct vrdma_counters_resp, out_of_order) == 80);
static_assert(offsetof(struct vrdma_counters_resp, rnr_naks_sent) == 88);
static_assert(offsetof(struct vrdma_counters_resp, rnr_naks_received) == 96);
static_assert(offsetof(struct vrdma_counters_resp, sequence_naks_sent) == 104);
static_assert(offsetof(struct vrdma_counters_resp, sequence_naks_received) == 112);
static_assert(offsetof(struct vrdma_counters_resp, requests_refused) == 120);
static_assert(offsetof(struct vrdma_counters_resp, naks_received) == 128);
static_assert(offsetof(struct vrdma_counters_resp, timeouts) == 136);
static_assert(offsetof(struct vrdma_counters_resp, retries) == 144);
static_assert(offsetof(struct vrdma_counters_resp, retry_exceeded) == 152);
static_assert(offsetof(struct vrdma_counters_resp, rnr_retry_exceeded) == 160);
static_assert(offsetof(struct vrdma_counters_resp, dropped) == 168);
static_assert(offsetof(struct vrdma_counters_resp, unroutable) == 176);
static_assert(offsetof(struct vrdma_counters_resp, errors) == 184);
static_assert(offsetof(struct vrdma_counters_resp, flushes) == 192);
static_assert(offsetof(struct vrdma_counters_resp, bad_requests) == 200);
static_assert(offsetof(struct vrdma_counters_resp, cq_overruns) == 208);
static_assert(offsetof(struct vrdma_counters_resp, bad_address_handles) == 216);

/* The device's clock. */
struct vrdma_clock_resp {
	/* Nanoseconds (see "Time" in cqe). */
	__le64 clock;
};
static_assert(sizeof(struct vrdma_clock_resp) == 8);
static_assert(offsetof(struct vrdma_clock_resp, clock) == 0);

/* Sets an entry of the GID table. */
struct vrdma_add_gid_req {
	/* Index in the GID table. */
	__le32 index;
	/* VRDMA_GID_*. */
	__u8 gid_type;
	/* Reserved, zero. */
	__u8 reserved0;
	/* VLAN in which the device has the address: 1..4094, or 0xffff for frames without a tag. */
	__le16 vlan;
	/* The GID, in network byte order. */
	__u8 gid[16];
};
static_assert(sizeof(struct vrdma_add_gid_req) == 24);
static_assert(offsetof(struct vrdma_add_gid_req, index) == 0);
static_assert(offsetof(struct vrdma_add_gid_req, gid_type) == 4);
static_assert(offsetof(struct vrdma_add_gid_req, reserved0) == 5);
static_assert(offsetof(struct vrdma_add_gid_req, vlan) == 6);
static_assert(offsetof(struct vrdma_add_gid_req, gid) == 8);

/* An entry of the GID table; gid is all zero if it is empty. */
struct vrdma_query_gid_resp {
	/* The GID, in network byte order. */
	__u8 gid[16];
	/* VRDMA_GID_*. */
	__u8 gid_type;
	/* Reserved, zero. */
	__u8 reserved0;
	/* VLAN id 1..4094, or 0xffff for none. */
	__le16 vlan;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_query_gid_resp) == 24);
static_assert(offsetof(struct vrdma_query_gid_resp, gid) == 0);
static_assert(offsetof(struct vrdma_query_gid_resp, gid_type) == 16);
static_assert(offsetof(struct vrdma_query_gid_resp, reserved0) == 17);
static_assert(offsetof(struct vrdma_query_gid_resp, vlan) == 18);
static_assert(offsetof(struct vrdma_query_gid_resp, reserved) == 20);

/* AddGidReq::gid_type. */
#define VRDMA_GID_ROCE_V2 2 /* RoCE version 2 (UDP). */

/*
 * Gives a channel to a context.
 *
 * The extents are the *window*: the memory of the slots. Before the command, the driver sets up the
 * channel's virtqueue:
 *
 * * Descriptor *i* is {addr of slot i, len 64, flags 0, next 0}.
 * * Slot *i* is aligned to 64 bytes and wholly inside one extent.
 * * avail.idx, avail.flags, used.idx, used.flags and used_event are 0.
 *
 * The device reads the descriptors when it executes this command, and never again. It starts with
 * entry 0. FAULT if a descriptor is anything else.
 */
struct vrdma_bind_channel_req {
	/*
	 * Context that the channel will belong to. Its requests may name only objects of that
	 * context. Requests in a channel of the kernel's context may name any object.
	 */
	__le32 context;
	/* Virtqueue number. */
	__le16 queue;
	/* Written as zero; refused otherwise. */
	__le16 reserved;
};
static_assert(sizeof(struct vrdma_bind_channel_req) == 8);
static_assert(offsetof(struct vrdma_bind_channel_req, context) == 0);
static_assert(offsetof(struct vrdma_bind_channel_req, queue) == 4);
static_assert(offsetof(struct vrdma_bind_channel_req, reserved) == 6);

/*
 * Creates a completion queue.
 *
 * The extents hold the ring and, behind it, the record (see cqe).
 */
struct vrdma_create_cq_req {
	/* Context that owns it. */
	__le32 context;
	/* Number of CQEs, a power of two. */
	__le32 entries;
	/* Completion vector of its events; less than num_comp_vectors. */
	__le32 vector;
	/* VRDMA_CQ_F_*. Other bits are refused. */
	__le32 flags;
};
static_assert(sizeof(struct vrdma_create_cq_req) == 16);
static_assert(offsetof(struct vrdma_create_cq_req, context) == 0);
static_assert(offsetof(struct vrdma_create_cq_req, entries) == 4);
static_assert(offsetof(struct vrdma_create_cq_req, vector) == 8);
static_assert(offsetof(struct vrdma_create_cq_req, flags) == 12);

/* CreateCqReq::flags and ResizeCqReq::flags. */
/*
 * The device does not read CqRecord::consumer. It overwrites the oldest CQE if there is no room.
 * Needs VRDMA_CAP_CQ_IGNORE_OVERRUN.
 */
#define VRDMA_CQ_F_IGNORE_OVERRUN 1
/* CQEs have a time stamp, so the ring is one of TimedCqes. Needs VRDMA_CAP_CQ_TIMESTAMP. */
#define VRDMA_CQ_F_TIMESTAMP 2

/* The new completion queue. */
struct vrdma_create_cq_resp {
	/* Its CQN. */
	__le32 cqn;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_create_cq_resp) == 8);
static_assert(offsetof(struct vrdma_create_cq_resp, cqn) == 0);
static_assert(offsetof(struct vrdma_create_cq_resp, reserved) == 4);

/*
 * Moves a completion queue to other memory.
 *
 * The extents hold the new ring and, behind it, its record (see "Resizing" in cqe).
 */
struct vrdma_resize_cq_req {
	/* The completion queue. */
	__le32 cqn;
	/* Number of CQEs of the new ring, a power of two. */
	__le32 entries;
	/*
	 * CQEs that the driver took out of former rings and nobody has polled yet. entries must be
	 * at least held plus the CQEs of the current ring that are not consumed (INVALID
	 * otherwise).
	 */
	__le32 held;
	/*
	 * VRDMA_CQ_F_TIMESTAMP if the CQ was created with it, so that the CQEs have the same size
	 * (INVALID otherwise). Other bits are refused.
	 */
	__le32 flags;
};
static_assert(sizeof(struct vrdma_resize_cq_req) == 16);
static_assert(offsetof(struct vrdma_resize_cq_req, cqn) == 0);
static_assert(offsetof(struct vrdma_resize_cq_req, entries) == 4);
static_assert(offsetof(struct vrdma_resize_cq_req, held) == 8);
static_assert(offsetof(struct vrdma_resize_cq_req, flags) == 12);

/* Sets how many completions an event may wait for, and how long (see "Moderation" in cqe). */
struct vrdma_modify_cq_req {
	/* The completion queue. */
	__le32 cqn;
	/* Number of completions that make an event due; 0 if no number does. */
	__le16 count;
	/*
	 * Microseconds after the first of these completions at which the event is due at the
	 * latest. 0: events are not moderated.
	 */
	__le16 period;
};
static_assert(sizeof(struct vrdma_modify_cq_req) == 8);
static_assert(offsetof(struct vrdma_modify_cq_req, cqn) == 0);
static_assert(offsetof(struct vrdma_modify_cq_req, count) == 4);
static_assert(offsetof(struct vrdma_modify_cq_req, period) == 6);

/* Registers memory. Extents other than the first and the last have at least VRDMA_MIN_RUN bytes. */
struct vrdma_reg_mr_req {
	/* Protection domain. */
	__le32 pdn;
	/* VRDMA_ACCESS_*. Remote write and atomics need local write too. */
	__le32 access;
	/* Address by which requests name the first byte. Any value. */
	__le64 iova;
	/*
	 * Length in bytes, the sum of the extents. iova + length is at most 2^64. A region of
	 * length 0 has no extents: it has keys, but no byte is reachable through them.
	 */
	__le64 length;
};
static_assert(sizeof(struct vrdma_reg_mr_req) == 24);
static_assert(offsetof(struct vrdma_reg_mr_req, pdn) == 0);
static_assert(offsetof(struct vrdma_reg_mr_req, access) == 4);
static_assert(offsetof(struct vrdma_reg_mr_req, iova) == 8);
static_assert(offsetof(struct vrdma_reg_mr_req, length) == 16);

/* Keys of a new region. */
struct vrdma_reg_mr_resp {
	/* Local key. */
	__le32 lkey;
	/* Remote key. */
	__le32 rkey;
};
static_assert(sizeof(struct vrdma_reg_mr_resp) == 8);
static_assert(offsetof(struct vrdma_reg_mr_resp, lkey) == 0);
static_assert(offsetof(struct vrdma_reg_mr_resp, rkey) == 4);

/* Access rights, with the numbers of enum ibv_access_flags. */
#define VRDMA_ACCESS_LOCAL_WRITE 1 /* The owner's receives, READs and atomics may write. */
#define VRDMA_ACCESS_REMOTE_WRITE 2 /* Peers may WRITE. */
#define VRDMA_ACCESS_REMOTE_READ 4 /* Peers may READ. */
#define VRDMA_ACCESS_REMOTE_ATOMIC 8 /* Peers may use atomics. */
/*
 * Windows may be bound to the region. Needs VRDMA_CAP_MEM_WINDOW or VRDMA_CAP_MEM_WINDOW_TYPE_2B.
 */
#define VRDMA_ACCESS_MW_BIND 16
/* For windows only: peers count addresses from the window's first byte, which is 0. */
#define VRDMA_ACCESS_ZERO_BASED 32
/* Peers may FLUSH to global visibility. Needs VRDMA_CAP_FLUSH_GLOBAL. */
#define VRDMA_ACCESS_FLUSH_GLOBAL 256
/*
 * Peers may FLUSH to persistence. Needs VRDMA_CAP_FLUSH_GLOBAL. A device without
 * VRDMA_CAP_FLUSH_PERSISTENT takes it for QPs only, and refuses it for a region (UNSUPPORTED). So
 * such a FLUSH of a peer ends with VRDMA_WC_REM_ACCESS_ERR.
 */
#define VRDMA_ACCESS_FLUSH_PERSISTENT 512
#define VRDMA_ACCESS_V1_0 15 /* All rights that a region or a QP of version 1.0 may have. */
/* All rights that a region or a QP of version 1.0 may have, like VRDMA_ACCESS_V1_0. */
#define VRDMA_ACCESS_ALL 15
/*
 * All rights that a region may have; others are refused (INVALID). The remaining bits of enum
 * ibv_access_flags are the drivers' task. They serve zero-based regions themselves (iova is 0).
 * They ignore hints: huge pages, and the optional range, such as relaxed ordering. They refuse what
 * the device lacks (on-demand) with EOPNOTSUPP.
 */
#define VRDMA_ACCESS_REGION 287
#define VRDMA_ACCESS_QP 783 /* All rights that a QP may have; others are refused (INVALID). */
/*
 * All rights that a window may have: remote rights, and zero-based. Remote write and atomics need
 * VRDMA_ACCESS_LOCAL_WRITE of the region.
 */
#define VRDMA_ACCESS_WINDOW 46

/* Registers all guest memory for the kernel. */
struct vrdma_dma_mr_req {
	/* Protection domain of the kernel's context. */
	__le32 pdn;
	/* VRDMA_ACCESS_*. */
	__le32 access;
};
static_assert(sizeof(struct vrdma_dma_mr_req) == 8);
static_assert(offsetof(struct vrdma_dma_mr_req, pdn) == 0);
static_assert(offsetof(struct vrdma_dma_mr_req, access) == 4);

/*
 * Makes a region for fast registration.
 *
 * The region names nothing until a request registers memory with it (WrOpcode::REG_MR). It names
 * nothing again when its key is invalidated. It counts as a region, and as max_pages extents.
 */
struct vrdma_alloc_fast_mr_req {
	/* Protection domain of the kernel's context. */
	__le32 pdn;
	/* Most pages of a registration: at least 1, and at most max_fast_reg_pages. */
	__le32 max_pages;
};
static_assert(sizeof(struct vrdma_alloc_fast_mr_req) == 8);
static_assert(offsetof(struct vrdma_alloc_fast_mr_req, pdn) == 0);
static_assert(offsetof(struct vrdma_alloc_fast_mr_req, max_pages) == 4);

/*
 * Makes a memory window.
 *
 * A window is a remote key that names nothing until a request binds it (WrOpcode::BIND_MW). There
 * are at most max_mr windows and regions together.
 */
struct vrdma_alloc_mw_req {
	/* Protection domain: that of the regions and QPs by which the window is bound. */
	__le32 pdn;
	/* VRDMA_MW_TYPE_*. */
	__le32 mw_type;
};
static_assert(sizeof(struct vrdma_alloc_mw_req) == 8);
static_assert(offsetof(struct vrdma_alloc_mw_req, pdn) == 0);
static_assert(offsetof(struct vrdma_alloc_mw_req, mw_type) == 4);

/* AllocMwReq::mw_type, with the numbers of enum ibv_mw_type. */
/*
 * Type 1. Any QP of the PD may bind the window, repeatedly. Peers of every QP of the PD may use it.
 */
#define VRDMA_MW_TYPE_TYPE_1 1
/*
 * Type 2B. Only peers of the QP that bound the window may use it. It must be invalidated before it
 * is bound again. It is unbound when the QP is reset or destroyed.
 */
#define VRDMA_MW_TYPE_TYPE_2B 2

/* ReregMrReq::flags, with the numbers of enum ibv_rereg_mr_flags. */
#define VRDMA_REREG_TRANSLATION 1 /* iova, length and the extents are new. */
#define VRDMA_REREG_PD 2 /* pdn is new. It must be of the same context. */
#define VRDMA_REREG_ACCESS 4 /* access is new. */
#define VRDMA_REREG_ALL 7 /* All defined flags. */

/*
 * Changes a region: ibv_rereg_mr(3).
 *
 * What flags does not name stays, and its fields are 0.
 *
 * With VRDMA_REREG_TRANSLATION the region gets new keys, and the old ones name nothing. Without it
 * the keys stay, because peers may know them. The device does not touch the region's former memory
 * after the reply. If the command ends in VRDMA_STATUS_INTERNAL, old and new memory must stay until
 * the device was reset.
 */
struct vrdma_rereg_mr_req {
	/* The region's local key. */
	__le32 lkey;
	/* VRDMA_REREG_*, at least one. */
	__le32 flags;
	/* Protection domain of the region's context. */
	__le32 pdn;
	/* VRDMA_ACCESS_*. */
	__le32 access;
	/* Address by which requests name the first byte. */
	__le64 iova;
	/* Length in bytes, the sum of the extents. */
	__le64 length;
};
static_assert(sizeof(struct vrdma_rereg_mr_req) == 32);
static_assert(offsetof(struct vrdma_rereg_mr_req, lkey) == 0);
static_assert(offsetof(struct vrdma_rereg_mr_req, flags) == 4);
static_assert(offsetof(struct vrdma_rereg_mr_req, pdn) == 8);
static_assert(offsetof(struct vrdma_rereg_mr_req, access) == 12);
static_assert(offsetof(struct vrdma_rereg_mr_req, iova) == 16);
static_assert(offsetof(struct vrdma_rereg_mr_req, length) == 24);

/* Creates a queue pair in state RESET. */
struct vrdma_create_qp_req {
	/* Context that owns it. */
	__le32 context;
	/* Protection domain; VRDMA_NONE for VRDMA_QPT_XRC_RECV. */
	__le32 pdn;
	/* VRDMA_QPT_*. */
	__le32 qp_type;
	/* CQ of send completions; VRDMA_NONE for VRDMA_QPT_XRC_RECV. */
	__le32 send_cqn;
	/*
	 * CQ of receive completions; may equal send_cqn. VRDMA_NONE for VRDMA_QPT_XRC_SEND and
	 * VRDMA_QPT_XRC_RECV.
	 */
	__le32 recv_cqn;
	/*
	 * Shared receive queue of the same context, or VRDMA_NONE. With one, max_recv_wr and
	 * max_recv_sge do not count. Receives that the QP has taken from it but not completed go
	 * back to its head when the QP is reset or destroyed.
	 */
	__le32 srqn;
	/* Most send requests outstanding. */
	__le32 max_send_wr;
	/* Most receive requests outstanding. */
	__le32 max_recv_wr;
	/* Most elements of a send request. */
	__le32 max_send_sge;
	/* Most elements of a receive request. */
	__le32 max_recv_sge;
	/* Most bytes of inline data. */
	__le32 max_inline;
	/* XRC domain of VRDMA_QPT_XRC_RECV. Other types write zero, and are refused otherwise. */
	__le32 xrcdn;
};
static_assert(sizeof(struct vrdma_create_qp_req) == 48);
static_assert(offsetof(struct vrdma_create_qp_req, context) == 0);
static_assert(offsetof(struct vrdma_create_qp_req, pdn) == 4);
static_assert(offsetof(struct vrdma_create_qp_req, qp_type) == 8);
static_assert(offsetof(struct vrdma_create_qp_req, send_cqn) == 12);
static_assert(offsetof(struct vrdma_create_qp_req, recv_cqn) == 16);
static_assert(offsetof(struct vrdma_create_qp_req, srqn) == 20);
static_assert(offsetof(struct vrdma_create_qp_req, max_send_wr) == 24);
static_assert(offsetof(struct vrdma_create_qp_req, max_recv_wr) == 28);
static_assert(offsetof(struct vrdma_create_qp_req, max_send_sge) == 32);
static_assert(offsetof(struct vrdma_create_qp_req, max_recv_sge) == 36);
static_assert(offsetof(struct vrdma_create_qp_req, max_inline) == 40);
static_assert(offsetof(struct vrdma_create_qp_req, xrcdn) == 44);

/* The new queue pair. Its capabilities are those requested. */
struct vrdma_create_qp_resp {
	/* Its number, 24 bits. */
	__le32 qpn;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_create_qp_resp) == 8);
static_assert(offsetof(struct vrdma_create_qp_resp, qpn) == 0);
static_assert(offsetof(struct vrdma_create_qp_resp, reserved) == 4);

/* CreateQpReq::qp_type, with the numbers of enum ib_qp_type. */
#define VRDMA_QPT_GSI 1 /* General services QP (QP1): a UD QP of the kernel. */
#define VRDMA_QPT_RC 2 /* Reliable connection. */
#define VRDMA_QPT_UC 3 /* Unreliable connection. */
#define VRDMA_QPT_UD 4 /* Unreliable datagram. */
/*
 * XRC initiator: the sending half of a reliable connection. Each request names a shared receive
 * queue of the peer (VRDMA_WQE_F_XRC). The QP has no receives: max_recv_wr and max_recv_sge do not
 * count, and srqn is VRDMA_NONE. Needs VRDMA_CAP_XRC.
 */
#define VRDMA_QPT_XRC_SEND 9
/*
 * XRC target: the receiving half of a reliable connection. It sends nothing: max_send_wr,
 * max_send_sge, max_inline, max_recv_wr and max_recv_sge do not count, and srqn is VRDMA_NONE. The
 * shared receive queue that a request names must be in the QP's XRC domain. Otherwise the request
 * ends as VRDMA_WC_REM_ACCESS_ERR, and VRDMA_EVENT_QP_ACCESS_ERR is raised. The message takes its
 * receive from that queue, and the receive completes at the queue's CQ. Keys in the request name
 * memory of the queue's PD. Needs VRDMA_CAP_XRC.
 */
#define VRDMA_QPT_XRC_RECV 10

/* State of a QP, with the numbers of enum ib_qp_state. */
#define VRDMA_QPS_RESET 0 /* Created; nothing can be posted. */
#define VRDMA_QPS_INIT 1 /* Receives can be posted. */
#define VRDMA_QPS_RTR 2 /* Ready to receive. */
#define VRDMA_QPS_RTS 3 /* Ready to send. */
#define VRDMA_QPS_SQD 4 /* Send queue drains. */
#define VRDMA_QPS_SQE 5 /* Send queue in error. */
#define VRDMA_QPS_ERR 6 /* Error. Everything posted is flushed. */

/* Which fields of QpAttr a ModifyQpReq sets, with the numbers of enum ibv_qp_attr_mask. */
#define VRDMA_QP_STATE 1 /* state */
#define VRDMA_QP_CUR_STATE 2 /* cur_state: refuse the command unless the QP is in this state. */
#define VRDMA_QP_EN_SQD_ASYNC_NOTIFY 4 /* en_sqd_async_notify */
#define VRDMA_QP_ACCESS_FLAGS 8 /* access */
#define VRDMA_QP_PKEY_INDEX 16 /* pkey_index */
#define VRDMA_QP_PORT 32 /* port */
#define VRDMA_QP_QKEY 64 /* qkey */
#define VRDMA_QP_AV 128 /* The address vector: dgid up to vlan */
#define VRDMA_QP_PATH_MTU 256 /* path_mtu */
#define VRDMA_QP_TIMEOUT 512 /* timeout */
#define VRDMA_QP_RETRY_CNT 1024 /* retry_cnt */
#define VRDMA_QP_RNR_RETRY 2048 /* rnr_retry */
#define VRDMA_QP_RQ_PSN 4096 /* rq_psn */
#define VRDMA_QP_MAX_RD_ATOMIC 8192 /* max_rd_atomic */
#define VRDMA_QP_ALT_PATH 16384 /* Alternate path: refused. */
#define VRDMA_QP_MIN_RNR_TIMER 32768 /* min_rnr_timer */
#define VRDMA_QP_SQ_PSN 0x10000u /* sq_psn */
#define VRDMA_QP_MAX_DEST_RD_ATOMIC 0x20000u /* max_dest_rd_atomic */
/* Path migration state: ignored. A QP is always MIGRATED; drivers refuse other states (EINVAL). */
#define VRDMA_QP_PATH_MIG_STATE 0x40000u
#define VRDMA_QP_CAP 0x80000u /* Capabilities: refused. */
#define VRDMA_QP_DEST_QPN 0x100000u /* dest_qpn */

/*
 * Attributes of a QP, with the meaning, units and encodings of ibv_modify_qp(3).
 *
 * Only the low bits of sl, flow_label, the PSNs, dest_qpn, the retries and min_rnr_timer count (see
 * width).
 */
struct vrdma_qp_attr {
	/* VRDMA_QPS_*: the state. */
	__u8 state;
	/* VRDMA_QPS_*: the state that the driver assumes. */
	__u8 cur_state;
	/* 1: raise VRDMA_EVENT_SQ_DRAINED once the send queue is drained. */
	__u8 en_sqd_async_notify;
	/* 1 in a reply: the QP is in state SQD, and its send queue is still draining. */
	__u8 sq_draining;
	/*
	 * VRDMA_ACCESS_*: the most that peers may do. The region or window has to allow it too.
	 * Other bits are refused.
	 */
	__le32 access;
	/* Index of the P_Key: 0. */
	__le16 pkey_index;
	/* Port: 1. */
	__u8 port;
	/* Path MTU as enum ibv_mtu: 1 (256 bytes) to 5 (4096 bytes). */
	__u8 path_mtu;
	/* Q_Key. */
	__le32 qkey;
	/* First PSN expected from the peer, 24 bits. */
	__le32 rq_psn;
	/* First PSN sent, 24 bits. */
	__le32 sq_psn;
	/* QPN of the peer, 24 bits. */
	__le32 dest_qpn;
	/* READs and atomics outstanding as requester. */
	__u8 max_rd_atomic;
	/* READs and atomics outstanding as responder. */
	__u8 max_dest_rd_atomic;
	/* RNR NAK timer code, 0..31 (IBTA table 45). */
	__u8 min_rnr_timer;
	/* Local ACK timeout code, 0..31: 4.096 us * 2^timeout; 0 is no timeout. */
	__u8 timeout;
	/* Retries, 0..7. */
	__u8 retry_cnt;
	/* RNR retries, 0..7; 7 means without limit. */
	__u8 rnr_retry;
	/* Service level. */
	__u8 sl;
	/* Index of the own GID. */
	__u8 sgid_index;
	/* GID of the peer, in network byte order. */
	__u8 dgid[16];
	/* MAC address to which frames for the peer are sent. */
	__u8 dmac[6];
	/* Hop limit. */
	__u8 hop_limit;
	/* Traffic class. */
	__u8 traffic_class;
	/* Flow label, 20 bits. */
	__le32 flow_label;
	/* UDP source port; 0 lets the device choose it. */
	__le16 udp_sport;
	/* VLAN of the own GID: 1..4094, or 0xffff for none. */
	__le16 vlan;
};
static_assert(sizeof(struct vrdma_qp_attr) == 68);
static_assert(offsetof(struct vrdma_qp_attr, state) == 0);
static_assert(offsetof(struct vrdma_qp_attr, cur_state) == 1);
static_assert(offsetof(struct vrdma_qp_attr, en_sqd_async_notify) == 2);
static_assert(offsetof(struct vrdma_qp_attr, sq_draining) == 3);
static_assert(offsetof(struct vrdma_qp_attr, access) == 4);
static_assert(offsetof(struct vrdma_qp_attr, pkey_index) == 8);
static_assert(offsetof(struct vrdma_qp_attr, port) == 10);
static_assert(offsetof(struct vrdma_qp_attr, path_mtu) == 11);
static_assert(offsetof(struct vrdma_qp_attr, qkey) == 12);
static_assert(offsetof(struct vrdma_qp_attr, rq_psn) == 16);
static_assert(offsetof(struct vrdma_qp_attr, sq_psn) == 20);
static_assert(offsetof(struct vrdma_qp_attr, dest_qpn) == 24);
static_assert(offsetof(struct vrdma_qp_attr, max_rd_atomic) == 28);
static_assert(offsetof(struct vrdma_qp_attr, max_dest_rd_atomic) == 29);
static_assert(offsetof(struct vrdma_qp_attr, min_rnr_timer) == 30);
static_assert(offsetof(struct vrdma_qp_attr, timeout) == 31);
static_assert(offsetof(struct vrdma_qp_attr, retry_cnt) == 32);
static_assert(offsetof(struct vrdma_qp_attr, rnr_retry) == 33);
static_assert(offsetof(struct vrdma_qp_attr, sl) == 34);
static_assert(offsetof(struct vrdma_qp_attr, sgid_index) == 35);
static_assert(offsetof(struct vrdma_qp_attr, dgid) == 36);
static_assert(offsetof(struct vrdma_qp_attr, dmac) == 52);
static_assert(offsetof(struct vrdma_qp_attr, hop_limit) == 58);
static_assert(offsetof(struct vrdma_qp_attr, traffic_class) == 59);
static_assert(offsetof(struct vrdma_qp_attr, flow_label) == 60);
static_assert(offsetof(struct vrdma_qp_attr, udp_sport) == 64);
static_assert(offsetof(struct vrdma_qp_attr, vlan) == 66);

/* Changes attributes or the state of a QP. */
struct vrdma_modify_qp_req {
	/* The QP. */
	__le32 qpn;
	/* VRDMA_QP_*: the fields of attr that count. */
	__le32 mask;
	/* New values. */
	struct vrdma_qp_attr attr;
};
static_assert(sizeof(struct vrdma_modify_qp_req) == 76);
static_assert(offsetof(struct vrdma_modify_qp_req, qpn) == 0);
static_assert(offsetof(struct vrdma_modify_qp_req, mask) == 4);
static_assert(offsetof(struct vrdma_modify_qp_req, attr) == 8);

/* Tells the device where the AH table is: one extent, aligned to 64 bytes. */
struct vrdma_ah_table_req {
	/* Number of entries (see ah), at most max_ah. */
	__le32 entries;
	/* Written as zero; refused otherwise. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_ah_table_req) == 8);
static_assert(offsetof(struct vrdma_ah_table_req, entries) == 0);
static_assert(offsetof(struct vrdma_ah_table_req, reserved) == 4);

/*
 * Creates a shared receive queue.
 *
 * Receives are posted to it by WrOpcode::SRQ_RECV. QPs that name it in CreateQpReq::srqn take their
 * receives from it.
 */
struct vrdma_create_srq_req {
	/* Context that owns it. */
	__le32 context;
	/* Protection domain of the memory that its receives name. The QPs may have other PDs. */
	__le32 pdn;
	/* Most receives outstanding: at least 1, at most max_qp_wr. */
	__le32 max_wr;
	/* Most elements of a receive: at most max_recv_sge. */
	__le32 max_sge;
	/*
	 * XRC domain of the queue (with VRDMA_CAP_XRC), or VRDMA_NONE. If it is in a domain, only
	 * VRDMA_QPT_XRC_RECV QPs of the domain take receives from it, if their peers name it.
	 */
	__le32 xrcdn;
	/*
	 * With an XRC domain: the CQ where its receives complete, of the same context. Else
	 * VRDMA_NONE.
	 */
	__le32 cqn;
};
static_assert(sizeof(struct vrdma_create_srq_req) == 24);
static_assert(offsetof(struct vrdma_create_srq_req, context) == 0);
static_assert(offsetof(struct vrdma_create_srq_req, pdn) == 4);
static_assert(offsetof(struct vrdma_create_srq_req, max_wr) == 8);
static_assert(offsetof(struct vrdma_create_srq_req, max_sge) == 12);
static_assert(offsetof(struct vrdma_create_srq_req, xrcdn) == 16);
static_assert(offsetof(struct vrdma_create_srq_req, cqn) == 20);

/* The new shared receive queue. */
struct vrdma_create_srq_resp {
	/* Its number, 24 bits. */
	__le32 srqn;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_create_srq_resp) == 8);
static_assert(offsetof(struct vrdma_create_srq_resp, srqn) == 0);
static_assert(offsetof(struct vrdma_create_srq_resp, reserved) == 4);

/* Which fields a ModifySrqReq sets, with the numbers of enum ibv_srq_attr_mask. */
/* max_wr. Must not be less than the number of outstanding receives (INVALID). */
#define VRDMA_SRQ_MAX_WR 1
#define VRDMA_SRQ_LIMIT 2 /* limit */

/* Changes the capacity of a shared receive queue, or arms its limit: ibv_modify_srq(3). */
struct vrdma_modify_srq_req {
	/* The shared receive queue. */
	__le32 srqn;
	/* VRDMA_SRQ_*: the fields that count. */
	__le32 mask;
	/* Most receives outstanding. */
	__le32 max_wr;
	/*
	 * VRDMA_EVENT_SRQ_LIMIT_REACHED is raised once, as soon as fewer receives than this are
	 * left. If there are fewer already, it is raised at once. 0: never. At most max_wr.
	 */
	__le32 limit;
};
static_assert(sizeof(struct vrdma_modify_srq_req) == 16);
static_assert(offsetof(struct vrdma_modify_srq_req, srqn) == 0);
static_assert(offsetof(struct vrdma_modify_srq_req, mask) == 4);
static_assert(offsetof(struct vrdma_modify_srq_req, max_wr) == 8);
static_assert(offsetof(struct vrdma_modify_srq_req, limit) == 12);

/* Capacity and limit of a shared receive queue. */
struct vrdma_query_srq_resp {
	/* Most receives outstanding. */
	__le32 max_wr;
	/* Most elements of a receive. */
	__le32 max_sge;
	/* The limit that is armed; 0 if none is. */
	__le32 limit;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_query_srq_resp) == 16);
static_assert(offsetof(struct vrdma_query_srq_resp, max_wr) == 0);
static_assert(offsetof(struct vrdma_query_srq_resp, max_sge) == 4);
static_assert(offsetof(struct vrdma_query_srq_resp, limit) == 8);
static_assert(offsetof(struct vrdma_query_srq_resp, reserved) == 12);

/*
 * Attaches a UD QP to a multicast group, or detaches it: ibv_attach_mcast(3).
 *
 * A member receives messages to the group and to QPN 0xffffff, in any VLAN in which the device has
 * a GID. The sender may be its own guest (the QP itself, too), another guest of the host, or
 * another host. Q_Key, receive and length are checked for each member separately. If a member has
 * no receive, only its own copy is lost.
 */
struct vrdma_mcast_req {
	/* The QP. */
	__le32 qpn;
	/* Written as zero; refused otherwise. */
	__le32 reserved;
	/*
	 * The group's GID, in network byte order. It is a multicast address of IPv6 (ff..) or of
	 * IPv4 (::ffff:224.0.0.0 to ::ffff:239.255.255.255).
	 */
	__u8 mgid[16];
};
static_assert(sizeof(struct vrdma_mcast_req) == 24);
static_assert(offsetof(struct vrdma_mcast_req, qpn) == 0);
static_assert(offsetof(struct vrdma_mcast_req, reserved) == 4);
static_assert(offsetof(struct vrdma_mcast_req, mgid) == 8);

/* Limits of connection management. */
#define VRDMA_CM_PRIVATE_DATA 512 /* Bytes for private data in commands and events. */
/*
 * Most bytes of private data in a command. The device needs the other 4 for IRD and ORD (RFC 6581).
 */
#define VRDMA_CM_MAX_PRIVATE_DATA 508
#define VRDMA_CM_MAX_DEPTH 128 /* Most READs and atomics of a connection, in each direction. */

/* Listens for connections. */
struct vrdma_cm_listen_req {
	/*
	 * Address of the guest: an IPv6 address in network byte order, or ::ffff:a.b.c.d for IPv4.
	 * All zero listens on each address that the guest may use.
	 */
	__u8 addr[16];
	/* TCP port, not 0. */
	__le16 port;
	/*
	 * DS field (RFC 2474) of all that the listener's connections send, in the upper six bits.
	 * The lower two bits are zero. Other values than 0 need VRDMA_CAP_CM_TRAFFIC_CLASS.
	 */
	__u8 traffic_class;
	/* Written as zero; refused otherwise. */
	__u8 reserved;
	/*
	 * Most connections that may wait for VRDMA_CMD_CM_ACCEPT, VRDMA_CMD_CM_REJECT or release, 1
	 * to 256. Those whose peer has gone count too.
	 */
	__le32 backlog;
};
static_assert(sizeof(struct vrdma_cm_listen_req) == 24);
static_assert(offsetof(struct vrdma_cm_listen_req, addr) == 0);
static_assert(offsetof(struct vrdma_cm_listen_req, port) == 16);
static_assert(offsetof(struct vrdma_cm_listen_req, traffic_class) == 18);
static_assert(offsetof(struct vrdma_cm_listen_req, reserved) == 19);
static_assert(offsetof(struct vrdma_cm_listen_req, backlog) == 20);

/* CmConnectReq::flags. */
/*
 * The peer may send first. The device therefore sends a message of its own before all others (RFC
 * 6581, 4).
 */
#define VRDMA_CM_PEER_TO_PEER 1
/*
 * next_hop and the fields after it are given. A device with VRDMA_CAP_NEXT_HOP requires this; other
 * devices ignore the fields.
 */
#define VRDMA_CM_NEXT_HOP 2

/* Connects a QP. */
struct vrdma_cm_connect_req {
	/* The QP: a reliable connection in state INIT. */
	__le32 qpn;
	/* VRDMA_CM_*: flags. */
	__le32 flags;
	/* Address of the guest, as in struct vrdma_cm_listen_req. */
	__u8 local_addr[16];
	/* Address of the peer, as in struct vrdma_cm_listen_req. */
	__u8 remote_addr[16];
	/* TCP port of the guest; 0 lets the device choose it. */
	__le16 local_port;
	/* TCP port of the peer, not 0. */
	__le16 remote_port;
	/* Wanted IRD: most READs and atomics that this end answers at once. */
	__le16 ird;
	/* Wanted ORD: most READs and atomics that this end has outstanding. */
	__le16 ord;
	/* Length of the private data in bytes. */
	__le16 private_data_len;
	/*
	 * With VRDMA_CM_NEXT_HOP: the MAC address to which frames to the peer go. It is not a group
	 * address.
	 */
	__u8 next_hop[6];
	/* With VRDMA_CM_NEXT_HOP: the VLAN of these frames; 0 for frames without a tag. */
	__le16 vlan;
	/*
	 * With VRDMA_CM_NEXT_HOP: most bytes of an IP packet on the path; 0 for that of the
	 * device's port.
	 */
	__le16 path_mtu;
	/* DS field of all that the connection sends, as in struct vrdma_cm_listen_req. */
	__u8 traffic_class;
	/*
	 * With VRDMA_CM_NEXT_HOP and in a VLAN: the priority (PCP, IEEE 802.1Q) of these frames, 0
	 * to 7. Other values than 0 need VRDMA_CAP_CM_TRAFFIC_CLASS.
	 */
	__u8 priority;
	/*
	 * Written as zero; refused otherwise. Without VRDMA_CM_NEXT_HOP, next_hop, vlan, path_mtu
	 * and priority are written as zero and refused otherwise, too.
	 */
	__u8 reserved[2];
	/* Private data for the peer's program. */
	__u8 private_data[512];
};
static_assert(sizeof(struct vrdma_cm_connect_req) == 576);
static_assert(offsetof(struct vrdma_cm_connect_req, qpn) == 0);
static_assert(offsetof(struct vrdma_cm_connect_req, flags) == 4);
static_assert(offsetof(struct vrdma_cm_connect_req, local_addr) == 8);
static_assert(offsetof(struct vrdma_cm_connect_req, remote_addr) == 24);
static_assert(offsetof(struct vrdma_cm_connect_req, local_port) == 40);
static_assert(offsetof(struct vrdma_cm_connect_req, remote_port) == 42);
static_assert(offsetof(struct vrdma_cm_connect_req, ird) == 44);
static_assert(offsetof(struct vrdma_cm_connect_req, ord) == 46);
static_assert(offsetof(struct vrdma_cm_connect_req, private_data_len) == 48);
static_assert(offsetof(struct vrdma_cm_connect_req, next_hop) == 50);
static_assert(offsetof(struct vrdma_cm_connect_req, vlan) == 56);
static_assert(offsetof(struct vrdma_cm_connect_req, path_mtu) == 58);
static_assert(offsetof(struct vrdma_cm_connect_req, traffic_class) == 60);
static_assert(offsetof(struct vrdma_cm_connect_req, priority) == 61);
static_assert(offsetof(struct vrdma_cm_connect_req, reserved) == 62);
static_assert(offsetof(struct vrdma_cm_connect_req, private_data) == 64);

/* Accepts a connection that was requested. */
struct vrdma_cm_accept_req {
	/* The connection, as the event named it. */
	__le32 connection;
	/* The QP: a reliable connection in state INIT. */
	__le32 qpn;
	/* Wanted IRD: most READs and atomics that this end answers at once. */
	__le16 ird;
	/* Wanted ORD: most READs and atomics that this end has outstanding. */
	__le16 ord;
	/* Length of the private data in bytes. */
	__le16 private_data_len;
	/* Written as zero; refused otherwise. */
	__le16 reserved;
	/* Private data for the peer's program. */
	__u8 private_data[512];
};
static_assert(sizeof(struct vrdma_cm_accept_req) == 528);
static_assert(offsetof(struct vrdma_cm_accept_req, connection) == 0);
static_assert(offsetof(struct vrdma_cm_accept_req, qpn) == 4);
static_assert(offsetof(struct vrdma_cm_accept_req, ird) == 8);
static_assert(offsetof(struct vrdma_cm_accept_req, ord) == 10);
static_assert(offsetof(struct vrdma_cm_accept_req, private_data_len) == 12);
static_assert(offsetof(struct vrdma_cm_accept_req, reserved) == 14);
static_assert(offsetof(struct vrdma_cm_accept_req, private_data) == 16);

/* Rejects a connection that was requested, and releases it. */
struct vrdma_cm_reject_req {
	/* The connection, as the event named it. */
	__le32 connection;
	/* Length of the private data in bytes. */
	__le16 private_data_len;
	/* Written as zero; refused otherwise. */
	__le16 reserved;
	/* Private data for the peer's program. */
	__u8 private_data[512];
};
static_assert(sizeof(struct vrdma_cm_reject_req) == 520);
static_assert(offsetof(struct vrdma_cm_reject_req, connection) == 0);
static_assert(offsetof(struct vrdma_cm_reject_req, private_data_len) == 4);
static_assert(offsetof(struct vrdma_cm_reject_req, reserved) == 6);
static_assert(offsetof(struct vrdma_cm_reject_req, private_data) == 8);

/* CmEventResp::kind. */
#define VRDMA_CM_EVENT_NONE 0 /* Nothing has happened. */
/* A peer requests a connection. The driver accepts, rejects or releases it within 60 s. */
#define VRDMA_CM_EVENT_CONNECT_REQUEST 1
/*
 * The result of VRDMA_CMD_CM_CONNECT. With a status of VRDMA_CM_OK the QP is connected, in RTS.
 * Otherwise the connection is over, and no event of it follows.
 */
#define VRDMA_CM_EVENT_CONNECT_REPLY 2
/* A connection that was accepted is established. Its QP is in RTS. */
#define VRDMA_CM_EVENT_ESTABLISHED 3
/* The peer has ended an established connection, or the connection broke. The QP is in ERR. */
#define VRDMA_CM_EVENT_DISCONNECT 4
/* A connection that was established or accepted is over. No event of it follows. */
#define VRDMA_CM_EVENT_CLOSE 5

/* CmEventResp::status. The errno that drivers make of it is in brackets. */
#define VRDMA_CM_OK 0 /* The connection is established. */
/* Nobody listens there, or the peer's program rejects the connection (ECONNREFUSED). */
#define VRDMA_CM_REFUSED 1
#define VRDMA_CM_TIMED_OUT 2 /* No answer came in time (ETIMEDOUT). */
/* The peer, or this end, ended the connection before it was established (ECONNRESET). */
#define VRDMA_CM_RESET 3
#define VRDMA_CM_UNREACHABLE 4 /* The peer cannot be reached (EHOSTUNREACH). */
/* The peer speaks another protocol, or wants something that this end does not have (EPROTO). */
#define VRDMA_CM_PROTOCOL 5
/* The address or port is in use, or not available on this host (EADDRINUSE). */
#define VRDMA_CM_IN_USE 6

/* An event of a connection. */
struct vrdma_cm_event_resp {
	/* VRDMA_CM_EVENT_*. */
	__le32 kind;
	/* The connection. */
	__le32 connection;
	/* The listener in VRDMA_CM_EVENT_CONNECT_REQUEST, else VRDMA_NONE. */
	__le32 listener;
	/* VRDMA_CM_* in VRDMA_CM_EVENT_CONNECT_REPLY, else 0. */
	__le32 status;
	/* Address of the guest, as in struct vrdma_cm_listen_req. */
	__u8 local_addr[16];
	/* Address of the peer, as in struct vrdma_cm_listen_req. */
	__u8 remote_addr[16];
	/* TCP port of the guest. */
	__le16 local_port;
	/* TCP port of the peer. */
	__le16 remote_port;
	/*
	 * In VRDMA_CM_EVENT_CONNECT_REQUEST: most READs and atomics that the peer will have
	 * outstanding, so the IRD it needs (128 if the peer does not say). Once connected: the
	 * agreed IRD.
	 */
	__le16 ird;
	/*
	 * In VRDMA_CM_EVENT_CONNECT_REQUEST: most READs and atomics that the peer answers at once,
	 * so the largest possible ORD. Once connected: the agreed ORD.
	 */
	__le16 ord;
	/*
	 * Length of the private data in bytes, in VRDMA_CM_EVENT_CONNECT_REQUEST and
	 * VRDMA_CM_EVENT_CONNECT_REPLY.
	 */
	__le16 private_data_len;
	/* Written as zero. */
	__u8 reserved[6];
	/* Private data of the peer's program. */
	__u8 private_data[512];
};
static_assert(sizeof(struct vrdma_cm_event_resp) == 576);
static_assert(offsetof(struct vrdma_cm_event_resp, kind) == 0);
static_assert(offsetof(struct vrdma_cm_event_resp, connection) == 4);
static_assert(offsetof(struct vrdma_cm_event_resp, listener) == 8);
static_assert(offsetof(struct vrdma_cm_event_resp, status) == 12);
static_assert(offsetof(struct vrdma_cm_event_resp, local_addr) == 16);
static_assert(offsetof(struct vrdma_cm_event_resp, remote_addr) == 32);
static_assert(offsetof(struct vrdma_cm_event_resp, local_port) == 48);
static_assert(offsetof(struct vrdma_cm_event_resp, remote_port) == 50);
static_assert(offsetof(struct vrdma_cm_event_resp, ird) == 52);
static_assert(offsetof(struct vrdma_cm_event_resp, ord) == 54);
static_assert(offsetof(struct vrdma_cm_event_resp, private_data_len) == 56);
static_assert(offsetof(struct vrdma_cm_event_resp, reserved) == 58);
static_assert(offsetof(struct vrdma_cm_event_resp, private_data) == 64);

/* Sizes and offsets in a request. */
#define VRDMA_WQE_UNIT_SIZE 64 /* Bytes of a unit, and of a slot. */
/* Most units of a request in version 1.0 (max_wqe_units may be less). */
#define VRDMA_WQE_MAX_UNITS 8
/* Most units of a request. max_wqe_units is the limit of the device. */
#define VRDMA_WQE_MAX_UNITS_V1_1 9
#define VRDMA_WQE_BODY_OFFSET 16 /* Offset of the body. */
#define VRDMA_WQE_DATA_OFFSET 32 /* Offset of elements, inline data or atomic operands. */
#define VRDMA_WQE_ATOMIC_SGE_OFFSET 48 /* Offset of the element of an atomic. */
/* With VRDMA_WQE_F_XRC, everything from DATA_OFFSET on is this many bytes further on. */
#define VRDMA_WQE_XRC_SHIFT 16
#define VRDMA_WQE_MAX_SGE 30 /* Most elements that 8 units can hold. */
#define VRDMA_WQE_MAX_SGE_V1_1 32 /* Most elements of a request. */
#define VRDMA_WQE_MAX_INLINE 480 /* Most bytes of inline data that 8 units can hold. */
#define VRDMA_WQE_MAX_INLINE_V1_1 512 /* Most bytes of inline data. */
#define VRDMA_WQE_LIST_MAX 5 /* Most requests of a list (VRDMA_WQE_F_LIST). */

/*
 * WqeHeader::opcode.
 *
 * 0..127 are for send queues, 128 and higher for receive queues.
 */
#define VRDMA_WR_RDMA_WRITE 0 /* RDMA WRITE. */
/* RDMA WRITE with immediate data. Consumes a receive of the peer. */
#define VRDMA_WR_RDMA_WRITE_WITH_IMM 1
#define VRDMA_WR_SEND 2 /* SEND. */
#define VRDMA_WR_SEND_WITH_IMM 3 /* SEND with immediate data. */
#define VRDMA_WR_RDMA_READ 4 /* RDMA READ. The data is written to the elements. */
/* Compare and swap of 8 bytes. The old value is written to the element. */
#define VRDMA_WR_ATOMIC_CMP_AND_SWP 5
/* Fetch and add of 8 bytes. The old value is written to the element. */
#define VRDMA_WR_ATOMIC_FETCH_AND_ADD 6
/*
 * Makes a key of the own device name nothing. The key is that of a type 2B window that the QP
 * bound, or of a region of ALLOC_FAST_MR in the QP's PD. The region is free afterwards, and may
 * have been free before. With any other key it ends with VRDMA_WC_LOC_QP_OP_ERR. Body: RdmaBody
 * with only rkey; no elements. RC and UC. Needs VRDMA_CAP_MEM_WINDOW_TYPE_2B or
 * VRDMA_CAP_MEM_MGT_EXTENSIONS. It begins when all earlier requests are complete, and later
 * requests begin when it is complete.
 */
#define VRDMA_WR_LOCAL_INV 7
/*
 * Binds a memory window. With length 0 it unbinds a window of type 1. Body: BindMwBody, then a
 * BindMwRange. RC and UC. It begins when all earlier requests are complete, and later requests
 * begin when it is complete. It ends with VRDMA_WC_MW_BIND_ERR if the window cannot be bound.
 * Windows of type 1 need VRDMA_CAP_MEM_WINDOW, those of type 2B VRDMA_CAP_MEM_WINDOW_TYPE_2B.
 */
#define VRDMA_WR_BIND_MW 8
/*
 * SEND that makes a key of the peer, RdmaBody::rkey, name nothing before its receive completes. RC.
 * Needs VRDMA_CAP_MEM_WINDOW_TYPE_2B or VRDMA_CAP_MEM_MGT_EXTENSIONS. The key may be that of a type
 * 2B window that the peer's QP bound. It may also be that of a region of ALLOC_FAST_MR in that QP's
 * PD that is free or gives peers a right. With any other key, the request ends with
 * VRDMA_WC_REM_ACCESS_ERR and the receive with VRDMA_WC_REM_INV_REQ_ERR.
 */
#define VRDMA_WR_SEND_WITH_INV 9
/*
 * Fast registration: sets the memory of a free region of ALLOC_FAST_MR. Body: RegMrBody, then a
 * RegMrMemory; no elements. RC and UC, only QPs of the kernel's context. Needs
 * VRDMA_CAP_MEM_MGT_EXTENSIONS. It begins when all earlier requests are complete, and later
 * requests begin when it is complete.
 */
#define VRDMA_WR_REG_MR 10
/*
 * Ends when the QP's earlier writes are placed in the peer's memory as FlushBody::placement says
 * (IBTA annex A19). Body: FlushBody, then a FlushRange. RC. Needs VRDMA_CAP_FLUSH_GLOBAL. The
 * peer's QP and region must allow it. It counts as a READ or atomic (max_rd_atomic, fences).
 */
#define VRDMA_WR_FLUSH 14
/*
 * Stores 8 bytes at once, after everything that came before. The bytes come from inline data or
 * from elements, 8 bytes together. RC only. Needs VRDMA_CAP_ATOMIC_WRITE. It counts as a READ or
 * atomic (max_rd_atomic, fences).
 */
#define VRDMA_WR_ATOMIC_WRITE 15
#define VRDMA_WR_RECV 128 /* RECV. */
#define VRDMA_WR_SRQ_RECV 129 /* RECV of a shared receive queue. object is its SRQN. */

/* WqeHeader::flags. */
#define VRDMA_WQE_F_SIGNALED 1 /* Make a CQE on success too. Errors and RECVs always make a CQE. */
#define VRDMA_WQE_F_SOLICITED 2 /* Ask the receiver for a solicited event. */
#define VRDMA_WQE_F_FENCE 4 /* Start only after all earlier READs and atomics are complete. */
#define VRDMA_WQE_F_INLINE 8 /* The payload is in the request. */
/*
 * A XrcBody follows the body. All requests of VRDMA_QPT_XRC_SEND have it, except BIND_MW, LOCAL_INV
 * and REG_MR; no other request has it. Needs VRDMA_CAP_XRC.
 */
#define VRDMA_WQE_F_XRC 16
/*
 * Each element is a request of its own; there are 2 to VRDMA_WQE_LIST_MAX of them. For RECV,
 * SRQ_RECV, and SEND of RC and UC. WqeHeader::wqe_id is that of the first request. The body is a
 * ListBody. The other flags hold for each request. Not with VRDMA_WQE_F_INLINE or VRDMA_WQE_F_XRC.
 * Needs VRDMA_CAP_WQE_LIST.
 */
#define VRDMA_WQE_F_LIST 32
#define VRDMA_WQE_F_ALL 63 /* All defined flags. */

/* The first 16 bytes of a request. */
struct vrdma_wqe {
	/* VRDMA_WR_*. */
	__u8 opcode;
	/*
	 * Number of 64-byte units of the request, this one included: the smallest number that holds
	 * it.
	 */
	__u8 units;
	/* VRDMA_WQE_F_*. */
	__le16 flags;
	/* QPN; for a SRQ_RECV the SRQN. */
	__le32 object;
	/* Returned in the CQE. The device gives it no meaning. */
	__le32 wqe_id;
	/* Number of elements. */
	__u8 sge_count;
	/* Written as zero. */
	__u8 reserved;
	/* Bytes of inline data; 0 without VRDMA_WQE_F_INLINE. */
	__le16 inline_len;
};
static_assert(sizeof(struct vrdma_wqe) == 16);
static_assert(offsetof(struct vrdma_wqe, opcode) == 0);
static_assert(offsetof(struct vrdma_wqe, units) == 1);
static_assert(offsetof(struct vrdma_wqe, flags) == 2);
static_assert(offsetof(struct vrdma_wqe, object) == 4);
static_assert(offsetof(struct vrdma_wqe, wqe_id) == 8);
static_assert(offsetof(struct vrdma_wqe, sge_count) == 12);
static_assert(offsetof(struct vrdma_wqe, reserved) == 13);
static_assert(offsetof(struct vrdma_wqe, inline_len) == 14);

/* Body of RC and UC requests. */
struct vrdma_wqe_rdma {
	/* Address in the peer's region (WRITE, READ, atomics, ATOMIC WRITE); 0 otherwise. */
	__le64 remote_addr;
	/*
	 * Key of the peer's region (WRITE, READ, atomics, ATOMIC WRITE); the key to invalidate
	 * (LOCAL_INV, SEND_WITH_INV); 0 otherwise.
	 */
	__le32 rkey;
	/* Immediate data. The peer finds these 4 bytes unchanged in its CQE. */
	__be32 imm;
};
static_assert(sizeof(struct vrdma_wqe_rdma) == 16);
static_assert(offsetof(struct vrdma_wqe_rdma, remote_addr) == 0);
static_assert(offsetof(struct vrdma_wqe_rdma, rkey) == 8);
static_assert(offsetof(struct vrdma_wqe_rdma, imm) == 12);

/* Body of a list of requests. */
struct vrdma_wqe_list {
	/*
	 * WqeHeader::wqe_id of the second and later requests. Zero for requests that do not exist.
	 */
	__le32 wqe_ids[4];
};
static_assert(sizeof(struct vrdma_wqe_list) == 16);
static_assert(offsetof(struct vrdma_wqe_list, wqe_ids) == 0);

/* Names the peer's shared receive queue of an XRC request; at byte 32. */
struct vrdma_wqe_xrc {
	/* SRQN of the peer; the low 24 bits count. */
	__le32 remote_srqn;
	/* Written as zero. */
	__u8 reserved[12];
};
static_assert(sizeof(struct vrdma_wqe_xrc) == 16);
static_assert(offsetof(struct vrdma_wqe_xrc, remote_srqn) == 0);
static_assert(offsetof(struct vrdma_wqe_xrc, reserved) == 4);

/* Body of UD requests. */
struct vrdma_wqe_ud {
	/* Index in the AH table. */
	__le32 ah;
	/* QPN of the receiver; the low 24 bits count. */
	__le32 remote_qpn;
	/* Q_Key of the receiver. If the highest bit is set, the sender's own Q_Key is used. */
	__le32 qkey;
	/* Immediate data. The peer finds these 4 bytes unchanged in its CQE. */
	__be32 imm;
};
static_assert(sizeof(struct vrdma_wqe_ud) == 16);
static_assert(offsetof(struct vrdma_wqe_ud, ah) == 0);
static_assert(offsetof(struct vrdma_wqe_ud, remote_qpn) == 4);
static_assert(offsetof(struct vrdma_wqe_ud, qkey) == 8);
static_assert(offsetof(struct vrdma_wqe_ud, imm) == 12);

/* Body of FLUSH. */
struct vrdma_wqe_flush {
	/*
	 * Address of the first flushed byte in the peer's region. No meaning with
	 * VRDMA_FLUSH_LEVEL_REGION.
	 */
	__le64 remote_addr;
	/* Key of the peer's region. */
	__le32 rkey;
	/* VRDMA_FLUSH_*, one or both. */
	__u8 placement;
	/* VRDMA_FLUSH_LEVEL_*. */
	__u8 level;
	/* Written as zero. */
	__le16 reserved;
};
static_assert(sizeof(struct vrdma_wqe_flush) == 16);
static_assert(offsetof(struct vrdma_wqe_flush, remote_addr) == 0);
static_assert(offsetof(struct vrdma_wqe_flush, rkey) == 8);
static_assert(offsetof(struct vrdma_wqe_flush, placement) == 12);
static_assert(offsetof(struct vrdma_wqe_flush, level) == 13);
static_assert(offsetof(struct vrdma_wqe_flush, reserved) == 14);

/*
 * FlushBody::placement, with the numbers of enum ibv_placement_type.
 *
 * A request without any of these bits, or with others, is malformed.
 */
/* Global visibility: everyone with access to the memory sees what was written. */
#define VRDMA_FLUSH_GLOBAL 1
/* Persistence. The peer's memory may have it, even if this device has none. */
#define VRDMA_FLUSH_PERSISTENT 2

/*
 * FlushBody::level, with the numbers of enum ibv_selectivity_level.
 *
 * A request with another value is malformed.
 */
#define VRDMA_FLUSH_LEVEL_RANGE 0 /* A number of bytes from an address on; 0 bytes are allowed. */
#define VRDMA_FLUSH_LEVEL_REGION 1 /* All of the region. */

/* Length of the flushed range; at byte 32 of FLUSH. */
struct vrdma_wqe_flush_range {
	/* Length in bytes. No meaning with VRDMA_FLUSH_LEVEL_REGION. */
	__le32 length;
	/* Written as zero. */
	__u8 reserved[12];
};
static_assert(sizeof(struct vrdma_wqe_flush_range) == 16);
static_assert(offsetof(struct vrdma_wqe_flush_range, length) == 0);
static_assert(offsetof(struct vrdma_wqe_flush_range, reserved) == 4);

/* Operands of an atomic. */
struct vrdma_wqe_atomic {
	/* Compare and swap: the value to compare with. Fetch and add: the addend. */
	__le64 compare_add;
	/* Compare and swap: the value to store if equal. */
	__le64 swap;
};
static_assert(sizeof(struct vrdma_wqe_atomic) == 16);
static_assert(offsetof(struct vrdma_wqe_atomic, compare_add) == 0);
static_assert(offsetof(struct vrdma_wqe_atomic, swap) == 8);

/* Body of BIND_MW. */
struct vrdma_wqe_bind_mw {
	/* The window's current rkey. */
	__le32 rkey;
	/*
	 * The window's new rkey. Only its low 8 bits count; the poster chooses them. The other bits
	 * stay those of rkey, whatever they are here.
	 */
	__le32 new_rkey;
	/* Local key of the region. */
	__le32 lkey;
	/* VRDMA_ACCESS_* out of VRDMA_ACCESS_WINDOW. */
	__le32 access;
};
static_assert(sizeof(struct vrdma_wqe_bind_mw) == 16);
static_assert(offsetof(struct vrdma_wqe_bind_mw, rkey) == 0);
static_assert(offsetof(struct vrdma_wqe_bind_mw, new_rkey) == 4);
static_assert(offsetof(struct vrdma_wqe_bind_mw, lkey) == 8);
static_assert(offsetof(struct vrdma_wqe_bind_mw, access) == 12);

/* The part of its region that a window shows; at byte 32 of BIND_MW. */
struct vrdma_wqe_bind_mw_range {
	/* iova of the first byte, as in requests that use the region's local key. */
	__le64 addr;
	/* Length in bytes. 0 unbinds the window. */
	__le64 length;
};
static_assert(sizeof(struct vrdma_wqe_bind_mw_range) == 16);
static_assert(offsetof(struct vrdma_wqe_bind_mw_range, addr) == 0);
static_assert(offsetof(struct vrdma_wqe_bind_mw_range, length) == 8);

/* RegMrBody::page_shift. */
#define VRDMA_PAGE_SHIFT_MIN 12 /* 4 KiB. */
#define VRDMA_PAGE_SHIFT_MAX 31 /* 2 GiB. */

/* Body of REG_MR. */
struct vrdma_wqe_reg_mr {
	/*
	 * New key of the region, local and remote. The poster chooses the low 8 bits. The other
	 * bits identify the region.
	 */
	__le32 key;
	/*
	 * VRDMA_ACCESS_* out of VRDMA_ACCESS_V1_0. Remote write and atomics need local write too.
	 */
	__le32 access;
	/* Size of a page, as a power of 2: VRDMA_PAGE_SHIFT_MIN to VRDMA_PAGE_SHIFT_MAX. */
	__u8 page_shift;
	/* Written as zero; otherwise the request is malformed. */
	__u8 reserved[7];
};
static_assert(sizeof(struct vrdma_wqe_reg_mr) == 16);
static_assert(offsetof(struct vrdma_wqe_reg_mr, key) == 0);
static_assert(offsetof(struct vrdma_wqe_reg_mr, access) == 4);
static_assert(offsetof(struct vrdma_wqe_reg_mr, page_shift) == 8);
static_assert(offsetof(struct vrdma_wqe_reg_mr, reserved) == 9);

/* The memory that a region will name; at byte 32 of REG_MR. */
struct vrdma_wqe_reg_mr_memory {
	/*
	 * Address by which requests name the first byte. Its offset in a page is that of the
	 * region's first byte in the first page of the list.
	 */
	__le64 iova;
	/* Length in bytes; iova + length is at most 2^64. */
	__le64 length;
	/* Guest-physical address of the page list, of any alignment. */
	__le64 page_list;
};
static_assert(sizeof(struct vrdma_wqe_reg_mr_memory) == 24);
static_assert(offsetof(struct vrdma_wqe_reg_mr_memory, iova) == 0);
static_assert(offsetof(struct vrdma_wqe_reg_mr_memory, length) == 8);
static_assert(offsetof(struct vrdma_wqe_reg_mr_memory, page_list) == 16);

/* A scatter/gather element. */
struct vrdma_sge {
	/* iova of the first byte. */
	__le64 addr;
	/* Length in bytes. 0 means no bytes; the key is not checked then. */
	__le32 length;
	/* Local key of the region. */
	__le32 lkey;
};
static_assert(sizeof(struct vrdma_sge) == 16);
static_assert(offsetof(struct vrdma_sge, addr) == 0);
static_assert(offsetof(struct vrdma_sge, length) == 8);
static_assert(offsetof(struct vrdma_sge, lkey) == 12);

/* Cqe::status, with the numbers and meanings of enum ibv_wc_status. */
#define VRDMA_WC_SUCCESS 0 /* Success. */
#define VRDMA_WC_LOC_LEN_ERR 1 /* Local length error. */
#define VRDMA_WC_LOC_QP_OP_ERR 2 /* Local QP operation error. */
/*
 * Local protection error. The device checks the local keys before it sends anything to the peer. So
 * a READ or atomic with a bad local key and a bad remote key ends with this, and the peer's memory
 * is unchanged. Hardware and rdma_rxe may check the local key only when the answer comes. There,
 * such a request ends with REM_ACCESS_ERR, and an atomic with a bad local key is executed.
 */
#define VRDMA_WC_LOC_PROT_ERR 4
#define VRDMA_WC_WR_FLUSH_ERR 5 /* Flushed: the QP was in ERR, or went to ERR. */
/*
 * A window could not be bound: its key, the region's key, its rights or its range are wrong. Or
 * memory could not be registered (IBTA's memory management operation error). Then the region, its
 * state, the rights, or the number or size of the pages are wrong.
 */
#define VRDMA_WC_MW_BIND_ERR 6
#define VRDMA_WC_BAD_RESP_ERR 7 /* Bad response of the peer. */
#define VRDMA_WC_LOC_ACCESS_ERR 8 /* Local access error. */
#define VRDMA_WC_REM_INV_REQ_ERR 9 /* The peer refused the request as invalid. */
#define VRDMA_WC_REM_ACCESS_ERR 10 /* The peer refused the access. */
#define VRDMA_WC_REM_OP_ERR 11 /* The peer failed to execute the request. */
#define VRDMA_WC_RETRY_EXC_ERR 12 /* The peer did not answer. */
#define VRDMA_WC_RNR_RETRY_EXC_ERR 13 /* The peer posted no receive in time. */
#define VRDMA_WC_GENERAL_ERR 21 /* Anything else. */

/*
 * Cqe::opcode, with the numbers of enum ibv_wc_opcode.
 *
 * It is valid if the status is VRDMA_WC_SUCCESS.
 */
#define VRDMA_WC_OP_SEND 0 /* SEND, with or without immediate data. */
#define VRDMA_WC_OP_RDMA_WRITE 1 /* WRITE, with or without immediate data. */
#define VRDMA_WC_OP_RDMA_READ 2 /* READ. */
#define VRDMA_WC_OP_COMP_SWAP 3 /* Compare and swap. */
#define VRDMA_WC_OP_FETCH_ADD 4 /* Fetch and add. */
#define VRDMA_WC_OP_BIND_MW 5 /* BIND_MW. */
#define VRDMA_WC_OP_LOCAL_INV 6 /* LOCAL_INV. */
#define VRDMA_WC_OP_FLUSH 8 /* FLUSH. */
#define VRDMA_WC_OP_ATOMIC_WRITE 9 /* ATOMIC WRITE. */
/* REG_MR, with the number of enum ib_wc_opcode. Processes have no such request. */
#define VRDMA_WC_OP_REG_MR 10
#define VRDMA_WC_OP_RECV 128 /* A message received. */
#define VRDMA_WC_OP_RECV_RDMA_WITH_IMM 129 /* A WRITE with immediate data received. */

/* Cqe::flags. */
#define VRDMA_CQE_F_IMM 1 /* imm is valid. */
#define VRDMA_CQE_F_GRH 2 /* The first 40 bytes of the receive buffer hold a GRH. */
#define VRDMA_CQE_F_RECV 4 /* The completion belongs to a receive request. */
#define VRDMA_CQE_F_SOLICITED 8 /* The sender asked for a solicited event. */
#define VRDMA_CQE_F_INV 16 /* The message invalidated a key, and imm is that key. */
/*
 * The receive was posted to an XRC shared receive queue. src_qpn is the SRQN, and wqe_id belongs to
 * a request of that queue.
 */
#define VRDMA_CQE_F_XRC 32

/* A completion. */
struct vrdma_cqe {
	/* wqe_id of the request. */
	__le32 wqe_id;
	/* QPN of the own QP. */
	__le32 qpn;
	/*
	 * Bytes received (receives), bytes read (READ), or 8 (atomics); 0 for other requests.
	 * Undefined unless VRDMA_WC_SUCCESS.
	 */
	__le32 byte_len;
	/*
	 * With VRDMA_CQE_F_IMM: immediate data, the 4 bytes as the peer posted them. With
	 * VRDMA_CQE_F_INV: the key that the peer invalidated.
	 */
	__be32 imm;
	/*
	 * QPN of the peer (receives). With VRDMA_CQE_F_XRC: SRQN of the own shared receive queue.
	 */
	__le32 src_qpn;
	/* UD: MAC address of the sender. */
	__u8 smac[6];
	/* UD: VLAN id of the message, or 0xffff for none. */
	__le16 vlan;
	/* VRDMA_WC_OP_*. */
	__u8 opcode;
	/* VRDMA_WC_*. */
	__u8 status;
	/* VRDMA_CQE_F_*. */
	__u8 flags;
	/* Bit 0 distinguishes a new CQE from an old one. Written last. Other bits are zero. */
	__u8 phase;
};
static_assert(sizeof(struct vrdma_cqe) == 32);
static_assert(offsetof(struct vrdma_cqe, wqe_id) == 0);
static_assert(offsetof(struct vrdma_cqe, qpn) == 4);
static_assert(offsetof(struct vrdma_cqe, byte_len) == 8);
static_assert(offsetof(struct vrdma_cqe, imm) == 12);
static_assert(offsetof(struct vrdma_cqe, src_qpn) == 16);
static_assert(offsetof(struct vrdma_cqe, smac) == 20);
static_assert(offsetof(struct vrdma_cqe, vlan) == 26);
static_assert(offsetof(struct vrdma_cqe, opcode) == 28);
static_assert(offsetof(struct vrdma_cqe, status) == 29);
static_assert(offsetof(struct vrdma_cqe, flags) == 30);
static_assert(offsetof(struct vrdma_cqe, phase) == 31);

/* A completion with a time stamp, in CQs created with VRDMA_CQ_F_TIMESTAMP. */
struct vrdma_timed_cqe {
	/* The fields of a CQE in other CQs, phase included. */
	struct vrdma_cqe base;
	/* The device's clock, nanoseconds (see "Time"). */
	__le64 timestamp;
	/* Reserved; the device does not write it. */
	__u8 reserved[24];
};
static_assert(sizeof(struct vrdma_timed_cqe) == 64);
static_assert(offsetof(struct vrdma_timed_cqe, base) == 0);
static_assert(offsetof(struct vrdma_timed_cqe, timestamp) == 32);
static_assert(offsetof(struct vrdma_timed_cqe, reserved) == 40);

/* Words that driver and device share: one cache line for each direction. */
struct vrdma_cq_record {
	/* Number of requests for an event on the next completion. */
	__le32 arm_next;
	/* Number of requests for an event on the next solicited completion. */
	__le32 arm_solicited;
	/* Zero. */
	__u8 reserved0[56];
	/* Number of CQEs consumed, free-running. */
	__le32 consumer;
	/* Zero. */
	__u8 reserved1[60];
};
static_assert(sizeof(struct vrdma_cq_record) == 128);
static_assert(offsetof(struct vrdma_cq_record, arm_next) == 0);
static_assert(offsetof(struct vrdma_cq_record, arm_solicited) == 4);
static_assert(offsetof(struct vrdma_cq_record, reserved0) == 8);
static_assert(offsetof(struct vrdma_cq_record, consumer) == 64);
static_assert(offsetof(struct vrdma_cq_record, reserved1) == 68);

/* Event::kind. Each entry begins with its object. */
/*
 * CQN: an armed CQ has a new CQE. Only completion event queues have this kind, and they have no
 * other.
 */
#define VRDMA_EVENT_COMPLETION 0
/* CQN: the CQ overran, or the ring's memory is gone (IBV_EVENT_CQ_ERR). */
#define VRDMA_EVENT_CQ_ERR 1
/* QPN: the QP went to ERR for a reason that no completion reports (IBV_EVENT_QP_FATAL). */
#define VRDMA_EVENT_QP_FATAL 2
#define VRDMA_EVENT_QP_REQ_ERR 3 /* QPN: the peer's request was invalid (IBV_EVENT_QP_REQ_ERR). */
/* QPN: the peer violated access rights (IBV_EVENT_QP_ACCESS_ERR). */
#define VRDMA_EVENT_QP_ACCESS_ERR 4
#define VRDMA_EVENT_COMM_EST 5 /* QPN: a message came in state RTR (IBV_EVENT_COMM_EST). */
#define VRDMA_EVENT_SQ_DRAINED 6 /* QPN: the send queue is drained (IBV_EVENT_SQ_DRAINED). */
/* SRQN: fewer receives are left than the limit that was armed (IBV_EVENT_SRQ_LIMIT_REACHED). */
#define VRDMA_EVENT_SRQ_LIMIT_REACHED 7
/*
 * SRQN: a receive was malformed, or one too many was posted. The queue has no receives any more,
 * and takes none (IBV_EVENT_SRQ_ERR).
 */
#define VRDMA_EVENT_SRQ_ERR 8
/*
 * QPN: a QP with a shared receive queue is in ERR, and takes no more receives from the queue
 * (IBV_EVENT_QP_LAST_WQE_REACHED).
 */
#define VRDMA_EVENT_QP_LAST_WQE_REACHED 9
#define VRDMA_EVENT_PORT_ACTIVE 16 /* Port 1 is up (IBV_EVENT_PORT_ACTIVE). */
#define VRDMA_EVENT_PORT_ERR 17 /* Port 1 is down (IBV_EVENT_PORT_ERR). */
/* 0: the device is lost until it is reset (IBV_EVENT_DEVICE_FATAL). */
#define VRDMA_EVENT_DEVICE_FATAL 18
/* Virtqueue number: the channel is broken (see wqe) until it is bound again. */
#define VRDMA_EVENT_CHANNEL_ERR 19
#define VRDMA_EVENT_CM 20 /* 0: CM_GET_EVENT has an event to return. Transport iWARP only. */

/* An event. */
struct vrdma_event {
	/* VRDMA_EVENT_*. */
	__le16 kind;
	/* Written as zero. */
	__le16 reserved0;
	/* Number of the object: CQN, QPN, SRQN, virtqueue, or port. */
	__le32 object;
	/* Written as zero. */
	__le64 reserved1;
};
static_assert(sizeof(struct vrdma_event) == 16);
static_assert(offsetof(struct vrdma_event, kind) == 0);
static_assert(offsetof(struct vrdma_event, reserved0) == 2);
static_assert(offsetof(struct vrdma_event, object) == 4);
static_assert(offsetof(struct vrdma_event, reserved1) == 8);

/* An entry of the address handle table, 64 bytes. */
struct vrdma_ah_entry {
	/* 0 if the entry is empty, otherwise its generation. */
	__le32 valid;
	/* Protection domain. */
	__le32 pdn;
	/* GID of the destination, in network byte order. */
	__u8 dgid[16];
	/* MAC address to which frames for the destination are sent. */
	__u8 dmac[6];
	/* VLAN of the own GID: 1..4094, or 0xffff for none. */
	__le16 vlan;
	/* Flow label; the low 20 bits count. */
	__le32 flow_label;
	/* UDP source port; 0 lets the device choose it. */
	__le16 udp_sport;
	/* Index of the own GID. */
	__u8 sgid_index;
	/* Hop limit. */
	__u8 hop_limit;
	/* Traffic class. */
	__u8 traffic_class;
	/* Service level; the low 4 bits count. */
	__u8 sl;
	/* Zero. */
	__u8 reserved[22];
};
static_assert(sizeof(struct vrdma_ah_entry) == 64);
static_assert(offsetof(struct vrdma_ah_entry, valid) == 0);
static_assert(offsetof(struct vrdma_ah_entry, pdn) == 4);
static_assert(offsetof(struct vrdma_ah_entry, dgid) == 8);
static_assert(offsetof(struct vrdma_ah_entry, dmac) == 24);
static_assert(offsetof(struct vrdma_ah_entry, vlan) == 30);
static_assert(offsetof(struct vrdma_ah_entry, flow_label) == 32);
static_assert(offsetof(struct vrdma_ah_entry, udp_sport) == 36);
static_assert(offsetof(struct vrdma_ah_entry, sgid_index) == 38);
static_assert(offsetof(struct vrdma_ah_entry, hop_limit) == 39);
static_assert(offsetof(struct vrdma_ah_entry, traffic_class) == 40);
static_assert(offsetof(struct vrdma_ah_entry, sl) == 41);
static_assert(offsetof(struct vrdma_ah_entry, reserved) == 42);

/* Numbers for uverbs. */
/* uverbs_abi_ver of the ib_device. The provider refuses any other. */
#define VRDMA_UVERBS_ABI_VERSION 1
/* Driver object of the methods below, in the driver namespace of uverbs ioctls. */
#define VRDMA_UVERBS_OBJECT_CHANNEL 4096
/*
 * Posts whole requests through the kernel's channel. Attribute ATTR_POST_UNITS. Fails with EINVAL,
 * nothing posted, unless each request is well framed and names a QP or SRQ of the calling context.
 * Fails with EIO once the device is lost.
 */
#define VRDMA_UVERBS_METHOD_POST 4096
/* Kicks the context's own channel, if the doorbell could not be mapped. No attribute. */
#define VRDMA_UVERBS_METHOD_KICK 4097
/*
 * For a process that imports a context: returns the reply of ibv_cmd_get_context. The fields of the
 * channel are 0, because the channel belongs to the process that opened the device. Attribute
 * ATTR_QUERY_RESP: vrdma_uctx_ex_resp. An older kernel driver refuses this method, METHOD_QUERY_PD
 * and METHOD_QUERY_DM.
 */
#define VRDMA_UVERBS_METHOD_QUERY_CONTEXT 4098
/*
 * For a process that imports a PD: returns the reply of ibv_cmd_alloc_pd. Attributes
 * ATTR_QUERY_HANDLE, and ATTR_QUERY_RESP: vrdma_upd_resp. Fails with ENOENT if the context has no
 * such PD.
 */
#define VRDMA_UVERBS_METHOD_QUERY_PD 4099
/*
 * Returns how to map device memory. Attributes ATTR_QUERY_HANDLE, and ATTR_QUERY_RESP:
 * vrdma_udm_resp. Fails with ENOENT if the context has no such memory.
 */
#define VRDMA_UVERBS_METHOD_QUERY_DM 4100
/*
 * Returns the device's clock. Attribute ATTR_QUERY_RESP: vrdma_uclock_resp. Fails with EOPNOTSUPP
 * if the device has no clock. Fails with EIO if the device does not answer, or did not answer the
 * last time.
 */
#define VRDMA_UVERBS_METHOD_QUERY_CLOCK 4101
/* Bytes in: one or more requests in units of 64 bytes, at most POST_MAX_UNITS units. */
#define VRDMA_UVERBS_ATTR_POST_UNITS 4096
/*
 * Bytes out: the structure that the method returns. The kernel zeroes the rest of a larger buffer.
 */
#define VRDMA_UVERBS_ATTR_QUERY_RESP 4096
/* Handle of the queried object. The method determines the kind of the object. */
#define VRDMA_UVERBS_ATTR_QUERY_HANDLE 4097
#define VRDMA_UVERBS_POST_MAX_UNITS 64 /* Most units of one METHOD_POST. */

/* AllocContextReq::flags and AllocContextResp::flags. */
/* Reply: the context has a channel of its own, because the pool was not empty. */
#define VRDMA_CONTEXT_F_CHANNEL 1
/* Reply: kicks follow avail_event (VIRTIO_F_EVENT_IDX), not used.flags. */
#define VRDMA_CONTEXT_F_EVENT_IDX 2
#define VRDMA_CONTEXT_F_DOORBELL 4 /* Reply: the doorbell is mapped. */
/* Request: give the context no channel of its own. All posts go through the kernel's channel. */
#define VRDMA_CONTEXT_F_NO_CHANNEL 8

/* Driver data of ibv_cmd_get_context. */
struct vrdma_uctx_req {
	/* VRDMA_CONTEXT_F_NO_CHANNEL or 0. */
	__le32 flags;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_uctx_req) == 8);
static_assert(offsetof(struct vrdma_uctx_req, flags) == 0);
static_assert(offsetof(struct vrdma_uctx_req, reserved) == 4);

/*
 * Reply of ibv_cmd_get_context in version 1.0.
 *
 * Lengths are whole pages. Offsets count from the start of the mapping.
 */
struct vrdma_uctx_resp {
	/* VRDMA_CONTEXT_F_*. */
	__le32 flags;
	/* Context number in the device, for log messages. */
	__le32 context;
	/* A power of two. No two existing QPs have QPNs that are equal modulo this number. */
	__le32 max_qp;
	/* Most bytes of inline data. */
	__le32 max_inline;
	/* Entries of the channel, a power of two. */
	__le16 entries;
	/*
	 * Virtqueue number. It is the value that is written to the doorbell (16 bits,
	 * little-endian).
	 */
	__le16 queue;
	/* Most units of a request. */
	__le32 max_wqe_units;
	/* mmap offset of the pages with the available and the used ring. */
	__le64 rings_mmap;
	/* Length of the rings. */
	__le32 rings_len;
	/* Offset of the available ring. */
	__le32 avail_offset;
	/* Offset of the used ring. */
	__le32 used_offset;
	/* Length of the slots. */
	__le32 slots_len;
	/* mmap offset of the slots. Slot i is at 64 * i. */
	__le64 slots_mmap;
	/* mmap offset of the doorbell page, which is write-only. */
	__le64 doorbell_mmap;
	/* Length of the doorbell page. */
	__le32 doorbell_len;
	/* Offset of the doorbell in its page. */
	__le32 doorbell_offset;
};
static_assert(sizeof(struct vrdma_uctx_resp) == 72);
static_assert(offsetof(struct vrdma_uctx_resp, flags) == 0);
static_assert(offsetof(struct vrdma_uctx_resp, context) == 4);
static_assert(offsetof(struct vrdma_uctx_resp, max_qp) == 8);
static_assert(offsetof(struct vrdma_uctx_resp, max_inline) == 12);
static_assert(offsetof(struct vrdma_uctx_resp, entries) == 16);
static_assert(offsetof(struct vrdma_uctx_resp, queue) == 18);
static_assert(offsetof(struct vrdma_uctx_resp, max_wqe_units) == 20);
static_assert(offsetof(struct vrdma_uctx_resp, rings_mmap) == 24);
static_assert(offsetof(struct vrdma_uctx_resp, rings_len) == 32);
static_assert(offsetof(struct vrdma_uctx_resp, avail_offset) == 36);
static_assert(offsetof(struct vrdma_uctx_resp, used_offset) == 40);
static_assert(offsetof(struct vrdma_uctx_resp, slots_len) == 44);
static_assert(offsetof(struct vrdma_uctx_resp, slots_mmap) == 48);
static_assert(offsetof(struct vrdma_uctx_resp, doorbell_mmap) == 56);
static_assert(offsetof(struct vrdma_uctx_resp, doorbell_len) == 64);
static_assert(offsetof(struct vrdma_uctx_resp, doorbell_offset) == 68);

/* Reply of ibv_cmd_get_context since version 1.1. */
struct vrdma_uctx_ex_resp {
	/* The fields of version 1.0. */
	struct vrdma_uctx_resp base;
	/*
	 * Functions that both device and kernel driver have, VRDMA_CAP_*. 0 (a kernel driver of
	 * version 1.0) means VRDMA_CAP_V1_0.
	 */
	__le64 device_cap;
	/* Zero. */
	__u8 reserved[56];
};
static_assert(sizeof(struct vrdma_uctx_ex_resp) == 136);
static_assert(offsetof(struct vrdma_uctx_ex_resp, base) == 0);
static_assert(offsetof(struct vrdma_uctx_ex_resp, device_cap) == 72);
static_assert(offsetof(struct vrdma_uctx_ex_resp, reserved) == 80);

/* Reply of ibv_cmd_alloc_pd. */
struct vrdma_upd_resp {
	/* PDN, for log messages. */
	__le32 pdn;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_upd_resp) == 8);
static_assert(offsetof(struct vrdma_upd_resp, pdn) == 0);
static_assert(offsetof(struct vrdma_upd_resp, reserved) == 4);

/* Driver data of ibv_cmd_create_cq. */
struct vrdma_ucq_req {
	/* User address of the CQ's memory (see cqe), page aligned. */
	__le64 buf;
	/* Number of CQEs: a power of two, at least the requested cqe. */
	__le32 entries;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_ucq_req) == 16);
static_assert(offsetof(struct vrdma_ucq_req, buf) == 0);
static_assert(offsetof(struct vrdma_ucq_req, entries) == 8);
static_assert(offsetof(struct vrdma_ucq_req, reserved) == 12);

/* Reply of ibv_cmd_create_cq. */
struct vrdma_ucq_resp {
	/* CQN, for log messages. */
	__le32 cqn;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_ucq_resp) == 8);
static_assert(offsetof(struct vrdma_ucq_resp, cqn) == 0);
static_assert(offsetof(struct vrdma_ucq_resp, reserved) == 4);

/* Driver data of ibv_cmd_resize_cq. */
struct vrdma_uresize_cq_req {
	/* User address of the new ring and record (see cqe), page aligned. */
	__le64 buf;
	/* Number of CQEs: a power of two, at least the requested cqe. */
	__le32 entries;
	/* Number of CQEs that were taken out and not polled, as in ResizeCqReq. */
	__le32 held;
};
static_assert(sizeof(struct vrdma_uresize_cq_req) == 16);
static_assert(offsetof(struct vrdma_uresize_cq_req, buf) == 0);
static_assert(offsetof(struct vrdma_uresize_cq_req, entries) == 8);
static_assert(offsetof(struct vrdma_uresize_cq_req, held) == 12);

/* Reply of ibv_cmd_create_qp. */
struct vrdma_uqp_resp {
	/* QPN for use in requests. */
	__le32 qpn;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_uqp_resp) == 8);
static_assert(offsetof(struct vrdma_uqp_resp, qpn) == 0);
static_assert(offsetof(struct vrdma_uqp_resp, reserved) == 4);

/* Reply of ibv_cmd_create_ah. */
struct vrdma_uah_resp {
	/* Index for use in UD requests. */
	__le32 ah;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_uah_resp) == 8);
static_assert(offsetof(struct vrdma_uah_resp, ah) == 0);
static_assert(offsetof(struct vrdma_uah_resp, reserved) == 4);

/* Reply of ibv_cmd_create_srq. */
struct vrdma_usrq_resp {
	/* SRQN for use in requests. */
	__le32 srqn;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_usrq_resp) == 8);
static_assert(offsetof(struct vrdma_usrq_resp, srqn) == 0);
static_assert(offsetof(struct vrdma_usrq_resp, reserved) == 4);

/* Reply of METHOD_QUERY_DM. */
struct vrdma_udm_resp {
	/*
	 * mmap offset of the pages that hold the device memory. It begins at the start of the first
	 * page.
	 */
	__le64 mmap;
	/* Length of these pages in bytes. */
	__le64 mmap_len;
	/* Length of the device memory in bytes. */
	__le64 length;
};
static_assert(sizeof(struct vrdma_udm_resp) == 24);
static_assert(offsetof(struct vrdma_udm_resp, mmap) == 0);
static_assert(offsetof(struct vrdma_udm_resp, mmap_len) == 8);
static_assert(offsetof(struct vrdma_udm_resp, length) == 16);

/* Reply of METHOD_QUERY_CLOCK. */
struct vrdma_uclock_resp {
	/* Nanoseconds, as in ClockResp. */
	__le64 clock;
};
static_assert(sizeof(struct vrdma_uclock_resp) == 8);
static_assert(offsetof(struct vrdma_uclock_resp, clock) == 0);

#endif /* VRDMA_ABI_H */
