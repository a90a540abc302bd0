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
 * Stand-in id for VMMs that refuse 42; has no driver in Linux. A driver that binds it must check
 * MAGIC and VERSION_MAJOR before anything else.
 */
#define VRDMA_VIRTIO_ID_STANDIN 38
/* First word of the configuration space of a function whose transport is RoCE: the bytes "vrdm". */
#define VRDMA_MAGIC 0x6d647276u
/*
 * The same of a function of another transport, which super::Config::transport names: the bytes
 * "vrdt". Drivers of version 1.0 know MAGIC alone, and leave it alone.
 */
#define VRDMA_MAGIC_TRANSPORT 0x74647276u
#define VRDMA_VERSION_MAJOR 1 /* Major version of this ABI: drivers refuse any other. */
/* Minor version: grows when something is added that an older driver may ignore. */
#define VRDMA_VERSION_MINOR 3
/*
 * Size of the configuration space that the device answers for; what lies beyond super::Config reads
 * as zero.
 */
#define VRDMA_CONFIG_SIZE 256

/*
 * Virtqueue numbers. After the async event queue come Config::num_comp_vectors completion event
 * queues, then Config::num_channels channels, of which the first belongs to the kernel for good.
 */
#define VRDMA_QUEUE_CONTROL 0 /* Control commands. */
#define VRDMA_QUEUE_ASYNC_EVENTS 1 /* Asynchronous events. */
/* First of the completion event queues, one per completion vector. */
#define VRDMA_QUEUE_FIRST_COMP_EVENTS 2

/* Configuration space of the RDMA function. Read-only. */
struct vrdma_config {
	/* VRDMA_MAGIC or VRDMA_MAGIC_TRANSPORT. */
	__le32 magic;
	/* VRDMA_VERSION_MAJOR. */
	__le16 version_major;
	/* VRDMA_VERSION_MINOR. */
	__le16 version_minor;
	/* MAC address, which is also that of the guest's netdev the device belongs to. */
	__u8 mac[6];
	/* Number of completion vectors, each with an event virtqueue; at least 1. */
	__le16 num_comp_vectors;
	/* Number of channel virtqueues, the kernel's included; at least 1. */
	__le16 num_channels;
	/* Largest request in a channel, in 64-byte units. */
	__u8 max_wqe_units;
	/*
	 * VRDMA_LINK_*. Down here is down; up here, QUERY_PORT and the events VRDMA_EVENT_PORT_*
	 * tell how the link is now.
	 */
	__u8 link;
	/* Largest path MTU in bytes: 256, 512, 1024, 2048 or 4096. */
	__le32 max_mtu;
	/* VRDMA_TRANSPORT_*: another than RoCE only with VRDMA_MAGIC_TRANSPORT. */
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
#define VRDMA_LINK_DOWN 0 /* No carrier. */
#define VRDMA_LINK_UP 1 /* Carrier. */

/* Values of Config::transport. */
#define VRDMA_TRANSPORT_ROCE 0 /* RoCE version 2. */
/*
 * iWARP. QPs are reliable connections; what needs GIDs, address handles or another type of QP is
 * UNSUPPORTED.
 */
#define VRDMA_TRANSPORT_IWARP 1

/* ReqHeader::opcode. Beside each its request -> reply; - is none. */
#define VRDMA_CMD_QUERY_DEVICE 1 /* - -> QueryDeviceExResp (QueryDeviceResp in version 1.0) */
#define VRDMA_CMD_QUERY_PORT 2 /* - -> QueryPortResp (there is one port, number 1) */
#define VRDMA_CMD_QUERY_GID 3 /* ObjectReq (GID index) -> QueryGidResp */
/*
 * AddGidReq -> -. Replaces the entry. DENIED if the host does not let this guest use the address in
 * that VLAN, or another guest has it there.
 */
#define VRDMA_CMD_ADD_GID 4
#define VRDMA_CMD_DEL_GID 5 /* ObjectReq (GID index) -> -. An empty entry may be deleted. */
#define VRDMA_CMD_ALLOC_CONTEXT 8 /* - -> ObjectResp (context) */
#define VRDMA_CMD_DEALLOC_CONTEXT 9 /* ObjectReq (context) -> -. BUSY while it owns anything. */
#define VRDMA_CMD_BIND_CHANNEL 10 /* BindChannelReq, runs (the window) -> - */
/* ObjectReq (virtqueue number) -> -. Entries not taken yet are dropped. */
#define VRDMA_CMD_UNBIND_CHANNEL 11
#define VRDMA_CMD_ALLOC_PD 16 /* ObjectReq (context) -> ObjectResp (PDN) */
/* ObjectReq (PDN) -> -. BUSY while MRs, memory windows or QPs use it. */
#define VRDMA_CMD_DEALLOC_PD 17
/*
 * - -> ObjectResp (XRC domain). With VRDMA_CAP_XRC, as the next. It belongs to the kernel's
 * context: processes share it.
 */
#define VRDMA_CMD_ALLOC_XRCD 18
/* ObjectReq (XRC domain) -> -. BUSY while QPs or shared receive queues are in it. */
#define VRDMA_CMD_DEALLOC_XRCD 19
#define VRDMA_CMD_SET_PORT_MTU 12 /* SetPortMtuReq -> - */
#define VRDMA_CMD_QUERY_COUNTERS 13 /* - -> CountersResp. With VRDMA_CAP_HW_COUNTERS. */
#define VRDMA_CMD_QUERY_CLOCK 14 /* - -> ClockResp. With VRDMA_CAP_CQ_TIMESTAMP. */
#define VRDMA_CMD_CREATE_CQ 24 /* CreateCqReq, runs (see cqe) -> CreateCqResp */
/* ObjectReq (CQN) -> -. BUSY while QPs or XRC shared receive queues use it. */
#define VRDMA_CMD_DESTROY_CQ 25
/*
 * ResizeCqReq, runs (the new ring and record, see cqe) -> -. With VRDMA_CAP_CQ_RESIZE. Requests
 * made available in a channel before the command are taken before it, and those that end without a
 * peer's doing have ended, unless that takes 10 ms. INVALID if what is not consumed does not fit,
 * or the CQ failed.
 */
#define VRDMA_CMD_RESIZE_CQ 26
#define VRDMA_CMD_MODIFY_CQ 27 /* ModifyCqReq -> -. With VRDMA_CAP_CQ_MODERATION. */
#define VRDMA_CMD_REG_MR 32 /* RegMrReq, runs (the region) -> RegMrResp */
/*
 * ObjectReq (lkey, of which the low 8 bits do not count if ALLOC_FAST_MR made it) -> -. BUSY while
 * windows are bound to it.
 */
#define VRDMA_CMD_DEREG_MR 33
/* DmaMrReq -> RegMrResp. All guest memory, iova = GPA. PDs of the kernel only. */
#define VRDMA_CMD_GET_DMA_MR 34
/*
 * AllocMwReq -> ObjectResp (its first rkey). With VRDMA_CAP_MEM_WINDOW or
 * VRDMA_CAP_MEM_WINDOW_TYPE_2B, as the next.
 */
#define VRDMA_CMD_ALLOC_MW 35
/*
 * ObjectReq (rkey, of which the low 8 bits do not count) -> -. A window that is bound is unbound.
 */
#define VRDMA_CMD_DEALLOC_MW 36
/*
 * ReregMrReq, with VRDMA_REREG_TRANSLATION runs (the region) -> RegMrResp. BUSY while windows are
 * bound to it. With VRDMA_CAP_REREG_MR.
 */
#define VRDMA_CMD_REREG_MR 37
/*
 * AllocFastMrReq -> RegMrResp (its first keys). PDs of the kernel only. With
 * VRDMA_CAP_MEM_MGT_EXTENSIONS.
 */
#define VRDMA_CMD_ALLOC_FAST_MR 38
#define VRDMA_CMD_CREATE_QP 40 /* CreateQpReq -> CreateQpResp */
/* ModifyQpReq -> -. Requests made available in a channel before the command are taken before it. */
#define VRDMA_CMD_MODIFY_QP 41
#define VRDMA_CMD_QUERY_QP 42 /* ObjectReq (QPN) -> QpAttr */
/*
 * ObjectReq (QPN) -> -. Pending requests end without a completion; those made available in a
 * channel before the command are taken before it. It leaves its multicast groups: that a member is
 * in use is what verbs say (EBUSY), and drivers for them.
 */
#define VRDMA_CMD_DESTROY_QP 43
/* AhTableReq, runs (see ah) -> -. Once, before the first UD QP. */
#define VRDMA_CMD_SET_AH_TABLE 48
/* CreateSrqReq -> CreateSrqResp. With VRDMA_CAP_SRQ, as the next three. */
#define VRDMA_CMD_CREATE_SRQ 50
/*
 * ModifySrqReq -> -. Receives made available in a channel before the command are taken before it.
 */
#define VRDMA_CMD_MODIFY_SRQ 51
#define VRDMA_CMD_QUERY_SRQ 52 /* ObjectReq (SRQN) -> QuerySrqResp */
/*
 * ObjectReq (SRQN) -> -. BUSY while QPs use it, which no QP does for good with one of XRC: a
 * message that has begun there is refused, but for a READ: that is answered, and answered again, as
 * long as its region is there. Its receives end without a completion; those made available in a
 * channel before the command are taken before it.
 */
#define VRDMA_CMD_DESTROY_SRQ 53
/*
 * McastReq -> -. With VRDMA_CAP_MULTICAST, as the next. A member may attach again, which changes
 * nothing. INVALID for a QP that is not UD and an address that is none of a group, NO_RESOURCES
 * beyond a limit.
 */
#define VRDMA_CMD_ATTACH_MCAST 56
#define VRDMA_CMD_DETACH_MCAST 57 /* McastReq -> -. INVALID if the QP is no member. */
/*
 * CmListenReq -> ObjectResp (listener). Of transport iWARP, as the next. DENIED for an address that
 * is not the guest's, BUSY if the port is in use.
 */
#define VRDMA_CMD_CM_LISTEN 64
/*
 * ObjectReq (listener) -> -. Connections of its that were not accepted end; those of which the
 * driver was told keep their numbers until it rejects or releases them.
 */
#define VRDMA_CMD_CM_CLOSE_LISTENER 65
/*
 * CmConnectReq -> ObjectResp (connection). How it ends is an event. DENIED for addresses that the
 * guest may not use.
 */
#define VRDMA_CMD_CM_CONNECT 66
/*
 * CmAcceptReq -> -. An event tells when the connection is established. INVALID if the peer has
 * gone. See "Connections of iWARP", as for the next.
 */
#define VRDMA_CMD_CM_ACCEPT 67
#define VRDMA_CMD_CM_REJECT 68 /* CmRejectReq -> -. Its number is free. */
/*
 * ObjectReq (QPN) -> -. The connection of a QP ends in order: no request begins any more, what has
 * begun ends, then the QP goes to ERR, and its peer is told. To end it at once, the QP is modified
 * to ERR or destroyed.
 */
#define VRDMA_CMD_CM_DISCONNECT 69
/*
 * ObjectReq (connection) -> -. Its number is free, and no event tells of it any more. One that is
 * not over is ended at once.
 */
#define VRDMA_CMD_CM_RELEASE 70
#define VRDMA_CMD_CM_GET_EVENT 71 /* - -> CmEventResp. What happened next, in order. */

/* RespHeader::status. In brackets the errno that drivers make of it. */
#define VRDMA_STATUS_OK 0 /* Done. */
/* Unknown opcode, or an option this device does not have (EOPNOTSUPP). */
#define VRDMA_STATUS_UNSUPPORTED 1
#define VRDMA_STATUS_INVALID 2 /* A malformed request or a value that is never valid (EINVAL). */
#define VRDMA_STATUS_NOT_FOUND 3 /* No such object (ENOENT). */
#define VRDMA_STATUS_BUSY 4 /* The object is in use (EBUSY). */
#define VRDMA_STATUS_DENIED 5 /* Somebody else's object, or forbidden by the host (EPERM). */
/* A limit of the device or of this guest's quota is reached (ENOMEM). */
#define VRDMA_STATUS_NO_RESOURCES 6
#define VRDMA_STATUS_FAULT 7 /* A run that is not wholly in guest memory (EFAULT). */
#define VRDMA_STATUS_INTERNAL 8 /* The device failed, it is not the driver's fault (EIO). */
/* More runs than max_mr_runs (ENOMEM, as verbs have it for whatever the device has no room for). */
#define VRDMA_STATUS_TOO_LARGE 9

/* Fixed limits. */
#define VRDMA_KERNEL_CONTEXT 0 /* Context of the kernel. */
#define VRDMA_NONE 0xffffffffu /* In fields that name an optional object: none. */
#define VRDMA_GSI_QPN 1 /* QPN of the general services QP (QP1). */
#define VRDMA_MIN_RUN 4096 /* Least bytes of a run of a region, but for the first and the last. */

/* Begins each command. */
struct vrdma_cmd_req {
	/* VRDMA_CMD_*. */
	__le16 opcode;
	/* Written as zero; refused otherwise. */
	__le16 reserved;
	/*
	 * Number of struct vrdma_run behind the request structure; 0 for commands without memory.
	 */
	__le32 num_runs;
	/* Returned in the reply; the device gives it no meaning. */
	__le64 cookie;
};
static_assert(sizeof(struct vrdma_cmd_req) == 16);
static_assert(offsetof(struct vrdma_cmd_req, opcode) == 0);
static_assert(offsetof(struct vrdma_cmd_req, reserved) == 2);
static_assert(offsetof(struct vrdma_cmd_req, num_runs) == 4);
static_assert(offsetof(struct vrdma_cmd_req, cookie) == 8);

/* Begins each reply. */
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

/* A run of guest memory. Needs no alignment. */
struct vrdma_run {
	/* First byte, a guest-physical address. */
	__le64 addr;
	/* Length in bytes, not 0. */
	__le64 len;
};
static_assert(sizeof(struct vrdma_run) == 16);
static_assert(offsetof(struct vrdma_run, addr) == 0);
static_assert(offsetof(struct vrdma_run, len) == 8);

/* Names one object. */
struct vrdma_object_req {
	/* Number of the object; the opcode says of which kind. */
	__le32 object;
	/* Written as zero; refused otherwise. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_object_req) == 8);
static_assert(offsetof(struct vrdma_object_req, object) == 0);
static_assert(offsetof(struct vrdma_object_req, reserved) == 4);

/* Names a new object. */
struct vrdma_object_resp {
	/* Number of the object; the opcode says of which kind. */
	__le32 object;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_object_resp) == 8);
static_assert(offsetof(struct vrdma_object_resp, object) == 0);
static_assert(offsetof(struct vrdma_object_resp, reserved) == 4);

/* Limits of the device; what version 1.0 tells. */
struct vrdma_query_device_resp {
	/* Version of the device's software, major << 32 | minor << 16 | patch. */
	__le64 fw_version;
	/* System image GUID, EUI-64 of the MAC, in network byte order. */
	__u8 sys_image_guid[8];
	/* Largest region, bytes. */
	__le64 max_mr_size;
	/* Most runs of one region. */
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
	 * A power of two: no two living QPs have QPNs that are equal modulo this. Two of the
	 * numbers are not for ordinary QPs (0, and 1 for QP1), so there are two QPs less.
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
	/* Most entries of the AH table, those of the kernel's own among them. */
	__le32 max_ah;
	/*
	 * 0: no atomics; 1: atomic with respect to this device (IB_ATOMIC_HCA); 2 or more: with
	 * respect to processors too (IB_ATOMIC_GLOB), for they are the host's own instructions. An
	 * emulator that makes its guest's locked instructions plain ones, as QEMU's TCG does for a
	 * VM with one processor, breaks that promise on the guest's side.
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
	/* What version 1.0 tells. */
	struct vrdma_query_device_resp base;
	/* VRDMA_CAP_*; 0 (a device of version 1.0) is VRDMA_CAP_V1_0. */
	__le64 device_cap;
	/* Most shared receive queues. Their receives are limited as those of QPs are. */
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
 * QueryDeviceExResp::device_cap. A device sets a bit only if it has the whole function. Those
 * without a description of theirs in this crate are reserved by name: no device has them yet.
 */
#define VRDMA_CAP_CUR_QP_STATE 1 /* MODIFY_QP compares the current state with cur_state. */
#define VRDMA_CAP_PORT_ACTIVE_EVENT 2 /* VRDMA_EVENT_PORT_ACTIVE tells that the port is up. */
#define VRDMA_CAP_SYS_IMAGE_GUID 4 /* sys_image_guid is valid. */
#define VRDMA_CAP_RNR_NAK 8 /* A missing receive of a reliable connection gives an RNR NAK. */
#define VRDMA_CAP_BAD_QKEY_COUNTER 16 /* bad_qkeys counts. */
#define VRDMA_CAP_V1_0 31 /* What a device of version 1.0 has. */
#define VRDMA_CAP_SRQ 256 /* Shared receive queues, with limit events and LAST_WQE_REACHED. */
#define VRDMA_CAP_SRQ_RESIZE 512 /* Shared receive queues can be resized. */
#define VRDMA_CAP_XRC 1024 /* XRC: domains, shared receive queues, both types of QP. */
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
/* CQs whose CQEs have a time stamp, and a clock that can be asked for. */
#define VRDMA_CAP_CQ_TIMESTAMP 0x100000u
#define VRDMA_CAP_CQ_IGNORE_OVERRUN 0x200000u /* CQs that ignore an overrun. */
#define VRDMA_CAP_MULTICAST 0x400000u /* UD QPs can be attached to multicast groups. */
/* Counters of the port, of the device and of its protocol. */
#define VRDMA_CAP_HW_COUNTERS 0x800000u
/* CM_CONNECT has to say the next hop: the device has no routes and no neighbours of its own. */
#define VRDMA_CAP_NEXT_HOP 0x1000000u
/* Lists of requests (VRDMA_WQE_F_LIST); max_wqe_units is 2 at least. */
#define VRDMA_CAP_WQE_LIST 0x2000000u
/* CM_CONNECT and CM_LISTEN say of which traffic class connections are. */
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
	/* Path MTU in use, bytes: the largest, or what SET_PORT_MTU said. */
	__le32 active_mtu;
	/* Speed of the uplink in Mb/s; 100,000 if there is none, or none that tells. */
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
 * Says what the guest's netdev allows: no datagram may be longer. The device does not know that
 * netdev's MTU.
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
 * What the device has counted since it was made; a reset clears none. (With further counters there
 * will be a longer structure that begins with this one.)
 *
 * A *message* is one of the IBTA's, of any length; messages between guests of one host are no
 * packets.
 */
struct vrdma_counters_resp {
	/*
	 * Bytes of payload that left: of SENDs, WRITEs and ATOMIC WRITEs, and what READs of peers
	 * took.
	 */
	__le64 bytes_sent;
	/*
	 * Bytes of payload that came: of SENDs, WRITEs and ATOMIC WRITEs, and what own READs
	 * brought.
	 */
	__le64 bytes_received;
	/* RoCE packets sent. */
	__le64 packets_sent;
	/* RoCE packets received. */
	__le64 packets_received;
	/* SENDs carried out as requester. */
	__le64 sends;
	/* WRITEs carried out as requester. */
	__le64 writes;
	/* READs carried out as requester. */
	__le64 reads;
	/* Atomics carried out as requester, ATOMIC WRITEs among them. */
	__le64 atomics;
	/* Messages that consumed a receive. */
	__le64 receives;
	/* Request packets that came again. */
	__le64 duplicates;
	/* Request packets past the one expected. */
	__le64 out_of_order;
	/* RNR NAKs sent, or on the same host messages that found no receive. */
	__le64 rnr_naks_sent;
	/* RNR NAKs received, or on the same host own messages that found no receive. */
	__le64 rnr_naks_received;
	/* NAKs sent for a gap in the PSNs. */
	__le64 sequence_naks_sent;
	/* NAKs received for a gap in the PSNs. */
	__le64 sequence_naks_received;
	/* Requests of peers refused: invalid, remote access, failures here. */
	__le64 requests_refused;
	/* Own requests that a peer's NAK failed. */
	__le64 naks_received;
	/* Local ACK timeouts. */
	__le64 timeouts;
	/* Attempts after the first. */
	__le64 retries;
	/* Requests that failed because the peer did not answer. */
	__le64 retry_exceeded;
	/* Requests that failed because the peer posted no receive in time. */
	__le64 rnr_retry_exceeded;
	/* Packets and messages dropped on arrival, for whatever reason. */
	__le64 dropped;
	/* Own messages that were lost: nobody has the address. */
	__le64 unroutable;
	/* Completions with an error, flushes not counted. */
	__le64 errors;
	/* Requests flushed. */
	__le64 flushes;
	/* Requests in channels that were dropped, or could not be understood. */
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
	/*
	 * The VLAN in which the device has the address: 1..4094, or 0xffff for frames without a
	 * tag.
	 */
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
 * The runs are the *window*: where the slots lie. Before the command the driver sets the channel's
 * virtqueue: descriptor *i* is {addr of slot i, len 64, flags 0, next 0}, slot *i* aligned to 64
 * bytes and wholly inside one run; avail.idx, avail.flags, used.idx, used.flags and used_event are
 * 0. The device reads the descriptors now and never again, and starts with entry 0. FAULT if a
 * descriptor is anything else.
 */
struct vrdma_bind_channel_req {
	/*
	 * Context that the channel will belong to. Requests in it may name objects of that context
	 * alone; those in a channel of the kernel's context any.
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

/* Creates a completion queue. The runs hold the ring and, behind it, the record (see cqe). */
struct vrdma_create_cq_req {
	/* Context that owns it. */
	__le32 context;
	/* Number of CQEs, a power of two. */
	__le32 entries;
	/* Completion vector of its events, less than num_comp_vectors. */
	__le32 vector;
	/* VRDMA_CQ_F_*; others are refused. */
	__le32 flags;
};
static_assert(sizeof(struct vrdma_create_cq_req) == 16);
static_assert(offsetof(struct vrdma_create_cq_req, context) == 0);
static_assert(offsetof(struct vrdma_create_cq_req, entries) == 4);
static_assert(offsetof(struct vrdma_create_cq_req, vector) == 8);
static_assert(offsetof(struct vrdma_create_cq_req, flags) == 12);

/* CreateCqReq::flags and ResizeCqReq::flags. */
/*
 * With VRDMA_CAP_CQ_IGNORE_OVERRUN: the device does not look at CqRecord::consumer(cqe::CqRecord),
 * and overwrites the oldest CQE where there is no room.
 */
#define VRDMA_CQ_F_IGNORE_OVERRUN 1
/*
 * With VRDMA_CAP_CQ_TIMESTAMP: CQEs have a time stamp, so the ring is one of
 * TimedCqe(cqe::TimedCqe)s.
 */
#define VRDMA_CQ_F_TIMESTAMP 2

/* The new completion queue. */
struct vrdma_create_cq_resp {
	/* Its number. */
	__le32 cqn;
	/* Written as zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_create_cq_resp) == 8);
static_assert(offsetof(struct vrdma_create_cq_resp, cqn) == 0);
static_assert(offsetof(struct vrdma_create_cq_resp, reserved) == 4);

/*
 * Has a completion queue go on in other memory. The runs hold the new ring and, behind it, its
 * record (see "Resizing" in cqe).
 */
struct vrdma_resize_cq_req {
	/* The completion queue. */
	__le32 cqn;
	/* Number of CQEs of the new ring, a power of two. */
	__le32 entries;
	/*
	 * CQEs that the driver took out of former rings and nobody has polled yet. They count as if
	 * they were in the ring: entries is at least these and what is not consumed of the ring
	 * together (INVALID otherwise).
	 */
	__le32 held;
	/*
	 * VRDMA_CQ_F_TIMESTAMP if the CQ was created with it, so that the CQEs are of the same kind
	 * (INVALID otherwise); others are refused.
	 */
	__le32 flags;
};
static_assert(sizeof(struct vrdma_resize_cq_req) == 16);
static_assert(offsetof(struct vrdma_resize_cq_req, cqn) == 0);
static_assert(offsetof(struct vrdma_resize_cq_req, entries) == 4);
static_assert(offsetof(struct vrdma_resize_cq_req, held) == 8);
static_assert(offsetof(struct vrdma_resize_cq_req, flags) == 12);

/* Says how many completions an event may wait for, and how long (see "Moderation" in cqe). */
struct vrdma_modify_cq_req {
	/* The completion queue. */
	__le32 cqn;
	/* Number of completions that make an event due; 0: no number does. */
	__le16 count;
	/*
	 * Microseconds after the first of them in which it is due at the latest; 0: events are not
	 * moderated.
	 */
	__le16 period;
};
static_assert(sizeof(struct vrdma_modify_cq_req) == 8);
static_assert(offsetof(struct vrdma_modify_cq_req, cqn) == 0);
static_assert(offsetof(struct vrdma_modify_cq_req, count) == 4);
static_assert(offsetof(struct vrdma_modify_cq_req, period) == 6);

/* Registers memory. Runs other than the first and the last have at least VRDMA_MIN_RUN bytes. */
struct vrdma_reg_mr_req {
	/* Protection domain. */
	__le32 pdn;
	/* VRDMA_ACCESS_*; remote write and atomics need local write too. */
	__le32 access;
	/* Address by which requests name the first byte; any. */
	__le64 iova;
	/*
	 * Length in bytes, the sum of the runs; iova + length is at most 2^64. A region of length 0
	 * has no runs: it has keys, and no byte can be reached by them.
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
/* Windows may be bound to the region. With VRDMA_CAP_MEM_WINDOW or VRDMA_CAP_MEM_WINDOW_TYPE_2B. */
#define VRDMA_ACCESS_MW_BIND 16
/* Of windows alone: peers count addresses from the window's first byte, which is 0. */
#define VRDMA_ACCESS_ZERO_BASED 32
/* Peers may FLUSH to global visibility. With VRDMA_CAP_FLUSH_GLOBAL, as the next. */
#define VRDMA_ACCESS_FLUSH_GLOBAL 256
/*
 * Peers may FLUSH to persistence. Of QPs alone: a region that is to allow it is refused
 * (UNSUPPORTED) by a device without VRDMA_CAP_FLUSH_PERSISTENT, so that such a FLUSH of a peer ends
 * with VRDMA_WC_REM_ACCESS_ERR.
 */
#define VRDMA_ACCESS_FLUSH_PERSISTENT 512
#define VRDMA_ACCESS_V1_0 15 /* All that a region or a QP of version 1.0 may have. */
#define VRDMA_ACCESS_ALL 15 /* The same; the name is from before there were windows. */
/*
 * All that a region may have; others are refused (INVALID). Of the bits of enum ibv_access_flags
 * that are not here, drivers serve zero-based regions themselves (iova is 0), ignore the hints
 * (huge pages and the optional range, such as relaxed ordering), and refuse what the device lacks
 * (on-demand) with EOPNOTSUPP.
 */
#define VRDMA_ACCESS_REGION 287
#define VRDMA_ACCESS_QP 783 /* All that a QP may have; others are refused (INVALID). */
/*
 * All that a window may have: remote rights, of which write and atomics need
 * VRDMA_ACCESS_LOCAL_WRITE of the region, and zero-based.
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
 * Makes a region for fast registration: it names nothing until a request registers memory with it
 * (WrOpcode::REG_MR(wqe::WrOpcode::REG_MR)), and again nothing when its key is invalidated. It
 * counts as a region, and as max_pages runs.
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
 * Makes a memory window: a remote key that names nothing until a request binds it
 * (WrOpcode::BIND_MW(wqe::WrOpcode::BIND_MW)). Windows and regions together are at most max_mr.
 */
struct vrdma_alloc_mw_req {
	/* Protection domain: that of the regions and QPs by which it is bound. */
	__le32 pdn;
	/* VRDMA_MW_TYPE_*. */
	__le32 mw_type;
};
static_assert(sizeof(struct vrdma_alloc_mw_req) == 8);
static_assert(offsetof(struct vrdma_alloc_mw_req, pdn) == 0);
static_assert(offsetof(struct vrdma_alloc_mw_req, mw_type) == 4);

/* AllocMwReq::mw_type, with the numbers of enum ibv_mw_type. */
/* Type 1: any QP of the PD may bind it, again and again; peers of every QP of the PD may use it. */
#define VRDMA_MW_TYPE_TYPE_1 1
/*
 * Type 2B: peers of the QP that bound it alone may use it. It has to be invalidated before it is
 * bound again; when the QP is reset or destroyed it is unbound.
 */
#define VRDMA_MW_TYPE_TYPE_2B 2

/* ReregMrReq::flags, with the numbers of enum ibv_rereg_mr_flags. */
#define VRDMA_REREG_TRANSLATION 1 /* iova, length and the runs are new. */
#define VRDMA_REREG_PD 2 /* pdn is new: of the same context. */
#define VRDMA_REREG_ACCESS 4 /* access is new. */
#define VRDMA_REREG_ALL 7 /* All that are defined. */

/*
 * Changes a region: ibv_rereg_mr(3). What flags does not name stays, and its fields are 0.
 *
 * With VRDMA_REREG_TRANSLATION the keys of the region are new afterwards, and the old ones name
 * nothing; otherwise they stay, as peers may know them. Memory that the region had is not touched
 * any more when the reply comes. If it ends in VRDMA_STATUS_INTERNAL, old and new memory have to
 * stay until the device was reset.
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
	/* Length in bytes, the sum of the runs. */
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
	/* Protection domain; VRDMA_NONE of VRDMA_QPT_XRC_RECV. */
	__le32 pdn;
	/* VRDMA_QPT_*. */
	__le32 qp_type;
	/* CQ of send completions; VRDMA_NONE of VRDMA_QPT_XRC_RECV. */
	__le32 send_cqn;
	/*
	 * CQ of receive completions; may be the same. VRDMA_NONE of VRDMA_QPT_XRC_SEND and
	 * VRDMA_QPT_XRC_RECV.
	 */
	__le32 recv_cqn;
	/*
	 * Shared receive queue of the same context, or VRDMA_NONE. With one, max_recv_wr and
	 * max_recv_sge do not count, and receives that the QP has taken and that did not complete
	 * are the first of the shared queue again when it is reset or destroyed.
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
	/* XRC domain of VRDMA_QPT_XRC_RECV; of others written as zero, and refused otherwise. */
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

/* The new queue pair. Its capabilities are those asked for. */
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
#define VRDMA_QPT_GSI 1 /* General services (QP1), a UD QP of the kernel. */
#define VRDMA_QPT_RC 2 /* Reliable connection. */
#define VRDMA_QPT_UC 3 /* Unreliable connection. */
#define VRDMA_QPT_UD 4 /* Unreliable datagram. */
/*
 * XRC initiator: the sending half of a reliable connection. Each request names a shared receive
 * queue of the peer (VRDMA_WQE_F_XRC). It has no receives: max_recv_wr and max_recv_sge do not
 * count, srqn is VRDMA_NONE. With VRDMA_CAP_XRC, as the next.
 */
#define VRDMA_QPT_XRC_SEND 9
/*
 * XRC target: the receiving half. It sends nothing: max_send_wr, max_send_sge and max_inline do not
 * count either. The shared receive queue that a request names has to be in the QP's XRC domain:
 * otherwise it ends as VRDMA_WC_REM_ACCESS_ERR, and VRDMA_EVENT_QP_ACCESS_ERR is raised. From it
 * the message takes its receive, which completes at that queue's CQ; and memory of that queue's PD
 * is what keys in the request name.
 */
#define VRDMA_QPT_XRC_RECV 10

/* State of a QP, with the numbers of enum ib_qp_state. */
#define VRDMA_QPS_RESET 0 /* Created; nothing can be posted. */
#define VRDMA_QPS_INIT 1 /* Receives can be posted. */
#define VRDMA_QPS_RTR 2 /* Ready to receive. */
#define VRDMA_QPS_RTS 3 /* Ready to send. */
#define VRDMA_QPS_SQD 4 /* Send queue drains. */
#define VRDMA_QPS_SQE 5 /* Send queue in error. */
#define VRDMA_QPS_ERR 6 /* Error; everything posted is flushed. */

/* Which fields of QpAttr a ModifyQpReq sets, with the numbers of enum ibv_qp_attr_mask. */
#define VRDMA_QP_STATE 1 /* state */
#define VRDMA_QP_CUR_STATE 2 /* cur_state: refuse unless the QP is in it. */
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
/* Path migration state: ignored. A QP is MIGRATED always; drivers refuse other states (EINVAL). */
#define VRDMA_QP_PATH_MIG_STATE 0x40000u
#define VRDMA_QP_CAP 0x80000u /* Capabilities: refused. */
#define VRDMA_QP_DEST_QPN 0x100000u /* dest_qpn */

/*
 * Attributes of a QP, with the meaning, units and encodings of ibv_modify_qp(3). Of sl, flow_label,
 * the PSNs, dest_qpn, the retries and min_rnr_timer the low bits count (see width).
 */
struct vrdma_qp_attr {
	/* VRDMA_QPS_*. */
	__u8 state;
	/* VRDMA_QPS_*. */
	__u8 cur_state;
	/* 1: raise VRDMA_EVENT_SQ_DRAINED once drained. */
	__u8 en_sqd_async_notify;
	/* 1 in a reply: in state SQD, the send queue is still draining. */
	__u8 sq_draining;
	/* VRDMA_ACCESS_*: what peers may use at all. Other bits are refused. */
	__le32 access;
	/* Index of the P_Key: 0. */
	__le16 pkey_index;
	/* Port: 1. */
	__u8 port;
	/* Path MTU as enum ibv_mtu: 1 (256 bytes) to 5 (4096 bytes). */
	__u8 path_mtu;
	/* Q_Key. */
	__le32 qkey;
	/* PSN expected first from the peer, 24 bits. */
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
	/* Local ACK timeout code, 0..31: 4.096 us * 2^timeout, 0 is for ever. */
	__u8 timeout;
	/* Retries, 0..7. */
	__u8 retry_cnt;
	/* RNR retries, 0..7; 7 is for ever. */
	__u8 rnr_retry;
	/* Service level. */
	__u8 sl;
	/* Index of the own GID. */
	__u8 sgid_index;
	/* GID of the peer, in network byte order. */
	__u8 dgid[16];
	/* MAC address that leads to the peer. */
	__u8 dmac[6];
	/* Hop limit. */
	__u8 hop_limit;
	/* Traffic class. */
	__u8 traffic_class;
	/* Flow label, 20 bits. */
	__le32 flow_label;
	/* UDP source port, or 0 for the device's choice. */
	__le16 udp_sport;
	/* That of the own GID: 1..4094, or 0xffff for none. */
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

/* Tells the device where the AH table is: one run, aligned to 64 bytes. */
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
 * Creates a shared receive queue. Receives are posted to it by
 * WrOpcode::SRQ_RECV(wqe::WrOpcode::SRQ_RECV); QPs that name it in
 * CreateQpReq::srqn(super::CreateQpReq) take theirs from it.
 */
struct vrdma_create_srq_req {
	/* Context that owns it. */
	__le32 context;
	/* Protection domain whose memory its receives name; those of the QPs may be others. */
	__le32 pdn;
	/* Most receives outstanding: at least 1, at most max_qp_wr. */
	__le32 max_wr;
	/* Most elements of a receive: at most max_recv_sge. */
	__le32 max_sge;
	/*
	 * VRDMA_NONE; or the XRC domain that it is in, with VRDMA_CAP_XRC. VRDMA_QPT_XRC_RECV QPs
	 * of the domain take receives from it, if their peers name it, and no other QPs.
	 */
	__le32 xrcdn;
	/*
	 * With an XRC domain the CQ, of the same context, where its receives complete; else
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
#define VRDMA_SRQ_MAX_WR 1 /* max_wr. Not less than what is outstanding (INVALID). */
#define VRDMA_SRQ_LIMIT 2 /* limit */

/* Changes what a shared receive queue can hold, or arms its limit: ibv_modify_srq(3). */
struct vrdma_modify_srq_req {
	/* The shared receive queue. */
	__le32 srqn;
	/* VRDMA_SRQ_*: the fields that count. */
	__le32 mask;
	/* Most receives outstanding. */
	__le32 max_wr;
	/*
	 * VRDMA_EVENT_SRQ_LIMIT_REACHED is raised once, as soon as fewer receives than this are
	 * left: at once, if there are fewer now. 0: never. At most max_wr.
	 */
	__le32 limit;
};
static_assert(sizeof(struct vrdma_modify_srq_req) == 16);
static_assert(offsetof(struct vrdma_modify_srq_req, srqn) == 0);
static_assert(offsetof(struct vrdma_modify_srq_req, mask) == 4);
static_assert(offsetof(struct vrdma_modify_srq_req, max_wr) == 8);
static_assert(offsetof(struct vrdma_modify_srq_req, limit) == 12);

/* What a shared receive queue can hold, and its limit. */
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
 * Makes a QP of unreliable datagrams a member of a multicast group, or a member no longer:
 * ibv_attach_mcast(3).
 *
 * A member gets what is sent to the group, and to QPN 0xffffff, in any VLAN in which the device has
 * a GID: by its own guest (by the QP itself, too), by others of the host, and by other hosts.
 * Q_Key, receive and length are checked for each member by itself; a member that has no receive
 * loses its copy, nobody else.
 */
struct vrdma_mcast_req {
	/* The QP. */
	__le32 qpn;
	/* Written as zero; refused otherwise. */
	__le32 reserved;
	/*
	 * The group's GID, in network byte order: a multicast address of IPv6 (ff..), or of IPv4
	 * (::ffff:224.0.0.0 to ::ffff:239.255.255.255).
	 */
	__u8 mgid[16];
};
static_assert(sizeof(struct vrdma_mcast_req) == 24);
static_assert(offsetof(struct vrdma_mcast_req, qpn) == 0);
static_assert(offsetof(struct vrdma_mcast_req, reserved) == 4);
static_assert(offsetof(struct vrdma_mcast_req, mgid) == 8);

/* Limits of connection management. */
#define VRDMA_CM_PRIVATE_DATA 512 /* Room for private data in commands and events. */
/*
 * Most bytes of private data that a command may have: 4 are the device's own, for IRD and ORD (RFC
 * 6581).
 */
#define VRDMA_CM_MAX_PRIVATE_DATA 508
#define VRDMA_CM_MAX_DEPTH 128 /* Most READs and atomics of a connection, in each direction. */

/* Listens for connections. */
struct vrdma_cm_listen_req {
	/*
	 * Address of the guest: an IPv6 address in network byte order, ::ffff:a.b.c.d for an IPv4
	 * one; all zero for each that it may use.
	 */
	__u8 addr[16];
	/* TCP port, not 0. */
	__le16 port;
	/*
	 * The DS field of all that its connections send (RFC 2474), in the upper six bits; the
	 * lower two are zero. Another value than 0 only for a device with
	 * VRDMA_CAP_CM_TRAFFIC_CLASS.
	 */
	__u8 traffic_class;
	/* Written as zero; refused otherwise. */
	__u8 reserved;
	/*
	 * Connections that may wait for their VRDMA_CMD_CM_ACCEPT or VRDMA_CMD_CM_REJECT (or
	 * release), those whose peer has gone included; 1 to 256.
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
 * The peer may send first: the device sends a message of its own before all others (RFC 6581, 4).
 */
#define VRDMA_CM_PEER_TO_PEER 1
/*
 * next_hop and what follows it are given. For a device with VRDMA_CAP_NEXT_HOP, which needs it;
 * others do not look at them.
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
	/* Address of the peer, likewise. */
	__u8 remote_addr[16];
	/* TCP port of the guest; 0 for the device's choice. */
	__le16 local_port;
	/* TCP port of the peer, not 0. */
	__le16 remote_port;
	/* READs and atomics answered at once, wished for. */
	__le16 ird;
	/* READs and atomics outstanding, wished for. */
	__le16 ord;
	/* Bytes of private data. */
	__le16 private_data_len;
	/*
	 * With VRDMA_CM_NEXT_HOP: the MAC address to which frames to the peer go; it is no group's.
	 */
	__u8 next_hop[6];
	/* With VRDMA_CM_NEXT_HOP: the VLAN of these frames; 0: without a tag. */
	__le16 vlan;
	/*
	 * With VRDMA_CM_NEXT_HOP: most bytes of an IP packet on the way; 0: as the device's port.
	 */
	__le16 path_mtu;
	/* The DS field of all that the connection sends, as in struct vrdma_cm_listen_req. */
	__u8 traffic_class;
	/*
	 * With VRDMA_CM_NEXT_HOP and in a VLAN: the priority (PCP, IEEE 802.1Q) of these frames, 0
	 * to 7. Another value than 0 only for a device with VRDMA_CAP_CM_TRAFFIC_CLASS.
	 */
	__u8 priority;
	/*
	 * Written as zero, as are next_hop, vlan, path_mtu and priority without VRDMA_CM_NEXT_HOP;
	 * refused otherwise.
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
	/* READs and atomics answered at once, wished for. */
	__le16 ird;
	/* READs and atomics outstanding, wished for. */
	__le16 ord;
	/* Bytes of private data. */
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

/* Rejects a connection that was requested. It is released by that. */
struct vrdma_cm_reject_req {
	/* The connection, as the event named it. */
	__le32 connection;
	/* Bytes of private data. */
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
/* A peer wants a connection. The driver accepts, rejects or releases it, within 60 s. */
#define VRDMA_CM_EVENT_CONNECT_REQUEST 1
/*
 * How VRDMA_CMD_CM_CONNECT ended. With a status of VRDMA_CM_OK the QP is connected, in RTS; else
 * the connection is over, and nothing more happens to it.
 */
#define VRDMA_CM_EVENT_CONNECT_REPLY 2
/* A connection that was accepted is established; its QP is in RTS. */
#define VRDMA_CM_EVENT_ESTABLISHED 3
/* The peer has ended an established connection, or it broke; the QP is in ERR. */
#define VRDMA_CM_EVENT_DISCONNECT 4
/* A connection that was established or accepted is over, the last that happens to it. */
#define VRDMA_CM_EVENT_CLOSE 5

/* CmEventResp::status. In brackets the errno that drivers make of it. */
#define VRDMA_CM_OK 0 /* It is connected. */
/* Nobody listens there, or the peer's program rejects it (ECONNREFUSED). */
#define VRDMA_CM_REFUSED 1
#define VRDMA_CM_TIMED_OUT 2 /* No answer came in time (ETIMEDOUT). */
/* The peer, or this end, ended it before it was established (ECONNRESET). */
#define VRDMA_CM_RESET 3
#define VRDMA_CM_UNREACHABLE 4 /* The peer cannot be reached (EHOSTUNREACH). */
/* The peer speaks something else, or wants what this end does not have (EPROTO). */
#define VRDMA_CM_PROTOCOL 5
#define VRDMA_CM_IN_USE 6 /* The address or port cannot be had (EADDRINUSE). */

/* What happened to a connection. */
struct vrdma_cm_event_resp {
	/* VRDMA_CM_EVENT_*. */
	__le32 kind;
	/* The connection. */
	__le32 connection;
	/* Of VRDMA_CM_EVENT_CONNECT_REQUEST: the listener; else VRDMA_NONE. */
	__le32 listener;
	/* Of VRDMA_CM_EVENT_CONNECT_REPLY: VRDMA_CM_*; else 0. */
	__le32 status;
	/* Address of the guest, as in struct vrdma_cm_listen_req. */
	__u8 local_addr[16];
	/* Address of the peer, likewise. */
	__u8 remote_addr[16];
	/* TCP port of the guest. */
	__le16 local_port;
	/* TCP port of the peer. */
	__le16 remote_port;
	/*
	 * Of VRDMA_CM_EVENT_CONNECT_REQUEST: READs and atomics that the peer will have outstanding
	 * at most, so what IRD has to be (128 if it does not say); once it is connected, the IRD
	 * agreed about.
	 */
	__le16 ird;
	/*
	 * Of VRDMA_CM_EVENT_CONNECT_REQUEST: READs and atomics that the peer answers at once, so
	 * what ORD may be; once it is connected, the ORD agreed about.
	 */
	__le16 ord;
	/* Bytes of private data, of the first two kinds. */
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
/* Most units of a request of version 1.0 (max_wqe_units may be less). */
#define VRDMA_WQE_MAX_UNITS 8
/* Most units of a request; max_wqe_units tells what the device takes. */
#define VRDMA_WQE_MAX_UNITS_V1_1 9
#define VRDMA_WQE_BODY_OFFSET 16 /* Where the body begins. */
#define VRDMA_WQE_DATA_OFFSET 32 /* Where elements, inline data or atomic operands begin. */
#define VRDMA_WQE_ATOMIC_SGE_OFFSET 48 /* Where the element of an atomic is. */
/* Bytes by which all from DATA_OFFSET on is further on with VRDMA_WQE_F_XRC. */
#define VRDMA_WQE_XRC_SHIFT 16
#define VRDMA_WQE_MAX_SGE 30 /* Most elements that 8 units can hold. */
#define VRDMA_WQE_MAX_SGE_V1_1 32 /* Most elements of a request. */
#define VRDMA_WQE_MAX_INLINE 480 /* Most bytes of inline data that 8 units can hold. */
#define VRDMA_WQE_MAX_INLINE_V1_1 512 /* Most bytes of inline data. */
#define VRDMA_WQE_LIST_MAX 5 /* Most requests of a list (VRDMA_WQE_F_LIST). */

/* WqeHeader::opcode. 0..127 are for send queues, 128 and on for receive queues. */
#define VRDMA_WR_RDMA_WRITE 0 /* RDMA WRITE. */
/* RDMA WRITE with immediate data: consumes a receive of the peer. */
#define VRDMA_WR_RDMA_WRITE_WITH_IMM 1
#define VRDMA_WR_SEND 2 /* SEND. */
#define VRDMA_WR_SEND_WITH_IMM 3 /* SEND with immediate data. */
#define VRDMA_WR_RDMA_READ 4 /* RDMA READ; the elements are written. */
/* Compare and swap of 8 bytes; the element receives the value before. */
#define VRDMA_WR_ATOMIC_CMP_AND_SWP 5
/* Fetch and add of 8 bytes; the element receives the value before. */
#define VRDMA_WR_ATOMIC_FETCH_AND_ADD 6
/*
 * Makes a key of the own device name nothing: of a window of type 2B that the QP bound, or of a
 * region of ALLOC_FAST_MR in its PD, which is free then (or was before). Of any other it ends with
 * VRDMA_WC_LOC_QP_OP_ERR. Body: RdmaBody with rkey alone; no elements. RC and UC; as SEND_WITH_INV
 * with VRDMA_CAP_MEM_WINDOW_TYPE_2B or VRDMA_CAP_MEM_MGT_EXTENSIONS. It begins when all requests
 * before it are complete, and what comes later begins when it is.
 */
#define VRDMA_WR_LOCAL_INV 7
/*
 * Binds a memory window, or with length 0 unbinds one of type 1. Body: BindMwBody, behind it a
 * BindMwRange. RC and UC. It begins when all requests before it are complete, and what comes later
 * begins when it is; it ends with VRDMA_WC_MW_BIND_ERR if it cannot be. With VRDMA_CAP_MEM_WINDOW
 * or VRDMA_CAP_MEM_WINDOW_TYPE_2B, of windows of that type.
 */
#define VRDMA_WR_BIND_MW 8
/*
 * SEND that makes a key of the peer name nothing, RdmaBody::rkey, before its receive completes. RC.
 * If the peer's QP did not bind a window of type 2B with that key, and it is not of a region of
 * ALLOC_FAST_MR in that QP's PD that is free or gives peers a right, it ends with
 * VRDMA_WC_REM_ACCESS_ERR, the receive with VRDMA_WC_REM_INV_REQ_ERR.
 */
#define VRDMA_WR_SEND_WITH_INV 9
/*
 * Fast registration: a region of ALLOC_FAST_MR that is free names memory from now on. Body:
 * RegMrBody, behind it a RegMrMemory; no elements. RC and UC, QPs of the kernel's context alone,
 * with VRDMA_CAP_MEM_MGT_EXTENSIONS. It begins when all requests before it are complete, and what
 * comes later begins when it is.
 */
#define VRDMA_WR_REG_MR 10
/*
 * Ends when what the QP wrote before is placed in the peer's memory as FlushBody::placement says
 * (IBTA annex A19). Body: FlushBody, behind it a FlushRange. RC, of devices with
 * VRDMA_CAP_FLUSH_GLOBAL. The peer's QP and region have to allow it. Counts among READs and atomics
 * (max_rd_atomic, fences).
 */
#define VRDMA_WR_FLUSH 14
/*
 * Store of 8 bytes at once, after all that came before; from inline data or from elements, 8 bytes
 * together. RC only, of devices with VRDMA_CAP_ATOMIC_WRITE. Counts among READs and atomics
 * (max_rd_atomic, fences).
 */
#define VRDMA_WR_ATOMIC_WRITE 15
#define VRDMA_WR_RECV 128 /* RECV. */
#define VRDMA_WR_SRQ_RECV 129 /* RECV of a shared receive queue; object is its SRQN. */

/* WqeHeader::flags. */
/* Make a CQE on success too (errors always make one). RECVs always make one. */
#define VRDMA_WQE_F_SIGNALED 1
#define VRDMA_WQE_F_SOLICITED 2 /* Ask the receiver for a solicited event. */
#define VRDMA_WQE_F_FENCE 4 /* Start only after all READs and atomics before it are complete. */
#define VRDMA_WQE_F_INLINE 8 /* The payload is in the request. */
/*
 * Between body and what follows it there is a XrcBody: of all requests of VRDMA_QPT_XRC_SEND but
 * BIND_MW, LOCAL_INV and REG_MR, and of no others. With VRDMA_CAP_XRC.
 */
#define VRDMA_WQE_F_XRC 16
/*
 * Of RECV, SRQ_RECV, and SEND of RC and UC: each element is a request of its own, and there are 2
 * to VRDMA_WQE_LIST_MAX of them. WqeHeader::wqe_id(wqe::WqeHeader) is that of the first, the body a
 * ListBody(wqe::ListBody); the other flags hold for each. Not with VRDMA_WQE_F_INLINE or
 * VRDMA_WQE_F_XRC. With VRDMA_CAP_WQE_LIST.
 */
#define VRDMA_WQE_F_LIST 32
#define VRDMA_WQE_F_ALL 63 /* All that are defined. */

/* The first 16 bytes of a request. */
struct vrdma_wqe {
	/* VRDMA_WR_*. */
	__u8 opcode;
	/* Number of 64-byte units of the request, this one included: the least that hold it. */
	__u8 units;
	/* VRDMA_WQE_F_*. */
	__le16 flags;
	/* QPN; of a SRQ_RECV the SRQN. */
	__le32 object;
	/* Returned in the CQE; the device gives it no meaning. */
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
	/* Immediate data; the peer finds these 4 bytes in its CQE as they are. */
	__be32 imm;
};
static_assert(sizeof(struct vrdma_wqe_rdma) == 16);
static_assert(offsetof(struct vrdma_wqe_rdma, remote_addr) == 0);
static_assert(offsetof(struct vrdma_wqe_rdma, rkey) == 8);
static_assert(offsetof(struct vrdma_wqe_rdma, imm) == 12);

/* Body of a list of requests. */
struct vrdma_wqe_list {
	/*
	 * WqeHeader::wqe_id of the second request and on; those of requests that are not there are
	 * written as zero.
	 */
	__le32 wqe_ids[4];
};
static_assert(sizeof(struct vrdma_wqe_list) == 16);
static_assert(offsetof(struct vrdma_wqe_list, wqe_ids) == 0);

/* Which shared receive queue of the peer a request of XRC names; at byte 32. */
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
	/* Q_Key of the receiver; with the highest bit set, the sender's own is used. */
	__le32 qkey;
	/* Immediate data; the peer finds these 4 bytes in its CQE as they are. */
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
	 * Address in the peer's region of the first byte that is flushed; without meaning with
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
 * FlushBody::placement, with the numbers of enum ibv_placement_type. The request cannot be
 * understood without any of them, or with others.
 */
/* Global visibility: all who access the memory see what was written. */
#define VRDMA_FLUSH_GLOBAL 1
/* Persistence. The peer's memory may have it, whatever this device has. */
#define VRDMA_FLUSH_PERSISTENT 2

/*
 * FlushBody::level, with the numbers of enum ibv_selectivity_level. With others the request cannot
 * be understood.
 */
#define VRDMA_FLUSH_LEVEL_RANGE 0 /* So many bytes from an address on; none is allowed. */
#define VRDMA_FLUSH_LEVEL_REGION 1 /* All of the region. */

/* How much is flushed; at byte 32 of FLUSH. */
struct vrdma_wqe_flush_range {
	/* Bytes; without meaning with VRDMA_FLUSH_LEVEL_REGION. */
	__le32 length;
	/* Written as zero. */
	__u8 reserved[12];
};
static_assert(sizeof(struct vrdma_wqe_flush_range) == 16);
static_assert(offsetof(struct vrdma_wqe_flush_range, length) == 0);
static_assert(offsetof(struct vrdma_wqe_flush_range, reserved) == 4);

/* Operands of an atomic. */
struct vrdma_wqe_atomic {
	/* Compare and swap: the value compared with. Fetch and add: the addend. */
	__le64 compare_add;
	/* Compare and swap: the value stored when equal. */
	__le64 swap;
};
static_assert(sizeof(struct vrdma_wqe_atomic) == 16);
static_assert(offsetof(struct vrdma_wqe_atomic, compare_add) == 0);
static_assert(offsetof(struct vrdma_wqe_atomic, swap) == 8);

/* Body of BIND_MW. */
struct vrdma_wqe_bind_mw {
	/* The window's rkey before. */
	__le32 rkey;
	/*
	 * Its rkey afterwards: of this the low 8 bits, which are the poster's choice. The others
	 * stay those of rkey, whatever they are here.
	 */
	__le32 new_rkey;
	/* Local key of the region. */
	__le32 lkey;
	/* VRDMA_ACCESS_* of VRDMA_ACCESS_WINDOW. */
	__le32 access;
};
static_assert(sizeof(struct vrdma_wqe_bind_mw) == 16);
static_assert(offsetof(struct vrdma_wqe_bind_mw, rkey) == 0);
static_assert(offsetof(struct vrdma_wqe_bind_mw, new_rkey) == 4);
static_assert(offsetof(struct vrdma_wqe_bind_mw, lkey) == 8);
static_assert(offsetof(struct vrdma_wqe_bind_mw, access) == 12);

/* What a window shows of its region; at byte 32 of BIND_MW. */
struct vrdma_wqe_bind_mw_range {
	/* iova of the first byte, as requests name it that use the region's local key. */
	__le64 addr;
	/* Length in bytes. 0: nothing, the window is unbound. */
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
	 * Key of the region afterwards, local and remote: the low 8 bits are the poster's choice,
	 * the others say which region it is.
	 */
	__le32 key;
	/* VRDMA_ACCESS_* of VRDMA_ACCESS_V1_0; remote write and atomics need local write too. */
	__le32 access;
	/* Size of a page, as a power of 2: from VRDMA_PAGE_SHIFT_MIN to VRDMA_PAGE_SHIFT_MAX. */
	__u8 page_shift;
	/* Written as zero; otherwise the request cannot be understood. */
	__u8 reserved[7];
};
static_assert(sizeof(struct vrdma_wqe_reg_mr) == 16);
static_assert(offsetof(struct vrdma_wqe_reg_mr, key) == 0);
static_assert(offsetof(struct vrdma_wqe_reg_mr, access) == 4);
static_assert(offsetof(struct vrdma_wqe_reg_mr, page_shift) == 8);
static_assert(offsetof(struct vrdma_wqe_reg_mr, reserved) == 9);

/* What memory a region is to name; at byte 32 of REG_MR. */
struct vrdma_wqe_reg_mr_memory {
	/*
	 * Address by which requests name the first byte. It is as far into its page as that byte is
	 * into the first of the list.
	 */
	__le64 iova;
	/* Length in bytes; iova + length is at most 2^64. */
	__le64 length;
	/* The page list, a guest-physical address; of any alignment. */
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
	/* Length in bytes; 0 is nothing at all (the key is not looked at). */
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
 * Local protection error. The own keys are looked at before anything is asked of the peer: a READ
 * or atomic whose local and remote key are both bad ends with this, and the peer's memory is as it
 * was. (Where hardware and rdma_rxe look at the local key when the answer comes, it ends with
 * REM_ACCESS_ERR, and an atomic with a bad local key is carried out.)
 */
#define VRDMA_WC_LOC_PROT_ERR 4
#define VRDMA_WC_WR_FLUSH_ERR 5 /* Flushed: the QP was in ERR, or went there. */
/*
 * A window could not be bound: its key, the region's, its rights or its range are wrong. Or memory
 * could not be registered (IBTA's memory management operation error): the region, its state, the
 * rights, or number or size of the pages are wrong.
 */
#define VRDMA_WC_MW_BIND_ERR 6
#define VRDMA_WC_BAD_RESP_ERR 7 /* Bad response of the peer. */
#define VRDMA_WC_LOC_ACCESS_ERR 8 /* Local access error. */
#define VRDMA_WC_REM_INV_REQ_ERR 9 /* The peer refused the request as invalid. */
#define VRDMA_WC_REM_ACCESS_ERR 10 /* The peer refused the access. */
#define VRDMA_WC_REM_OP_ERR 11 /* The peer failed to carry the request out. */
#define VRDMA_WC_RETRY_EXC_ERR 12 /* The peer did not answer. */
#define VRDMA_WC_RNR_RETRY_EXC_ERR 13 /* The peer posted no receive in time. */
#define VRDMA_WC_GENERAL_ERR 21 /* Anything else. */

/* Cqe::opcode, with the numbers of enum ibv_wc_opcode. Valid if the status is VRDMA_WC_SUCCESS. */
#define VRDMA_WC_OP_SEND 0 /* SEND, with or without immediate data. */
#define VRDMA_WC_OP_RDMA_WRITE 1 /* WRITE, with or without immediate data. */
#define VRDMA_WC_OP_RDMA_READ 2 /* READ. */
#define VRDMA_WC_OP_COMP_SWAP 3 /* Compare and swap. */
#define VRDMA_WC_OP_FETCH_ADD 4 /* Fetch and add. */
#define VRDMA_WC_OP_BIND_MW 5 /* BIND_MW. */
#define VRDMA_WC_OP_LOCAL_INV 6 /* LOCAL_INV. */
#define VRDMA_WC_OP_FLUSH 8 /* FLUSH. */
#define VRDMA_WC_OP_ATOMIC_WRITE 9 /* ATOMIC WRITE. */
/* REG_MR, with the number of enum ib_wc_opcode: processes have no such request. */
#define VRDMA_WC_OP_REG_MR 10
#define VRDMA_WC_OP_RECV 128 /* A message received. */
#define VRDMA_WC_OP_RECV_RDMA_WITH_IMM 129 /* A WRITE with immediate data received. */

/* Cqe::flags. */
#define VRDMA_CQE_F_IMM 1 /* imm is valid. */
#define VRDMA_CQE_F_GRH 2 /* The first 40 bytes of the receive buffer hold a GRH. */
#define VRDMA_CQE_F_RECV 4 /* The completion is of a receive request. */
#define VRDMA_CQE_F_SOLICITED 8 /* The sender asked for a solicited event. */
#define VRDMA_CQE_F_INV 16 /* The message invalidated a key: imm is it. */
/*
 * The receive was posted to an XRC shared receive queue: src_qpn is its SRQN, wqe_id of a request
 * to that.
 */
#define VRDMA_CQE_F_XRC 32

/* A completion. */
struct vrdma_cqe {
	/* wqe_id of the request. */
	__le32 wqe_id;
	/* QPN of the own QP. */
	__le32 qpn;
	/*
	 * Bytes received (receives), read (READ) or 8 (atomics); 0 for others. Undefined unless
	 * VRDMA_WC_SUCCESS.
	 */
	__le32 byte_len;
	/*
	 * Immediate data with VRDMA_CQE_F_IMM: the 4 bytes as the peer posted them. With
	 * VRDMA_CQE_F_INV the key that the peer invalidated.
	 */
	__be32 imm;
	/*
	 * QPN of the peer (receives); with VRDMA_CQE_F_XRC the SRQN of the own shared receive
	 * queue.
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
	/* Bit 0 tells a new CQE from an old one; written last. Other bits are zero. */
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
	/* What other CQs have, phase included. */
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

/* Words that driver and device share; a cache line each way. */
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

/* Event::kind; beside each the kind of its object. */
/* CQN: an armed CQ has a new CQE. The only kind on completion event queues, and only there. */
#define VRDMA_EVENT_COMPLETION 0
#define VRDMA_EVENT_CQ_ERR 1 /* CQN: overrun, or the ring's memory is gone (IBV_EVENT_CQ_ERR). */
/* QPN: it went to ERR for a reason that no completion tells (IBV_EVENT_QP_FATAL). */
#define VRDMA_EVENT_QP_FATAL 2
#define VRDMA_EVENT_QP_REQ_ERR 3 /* QPN: the peer's request was invalid (IBV_EVENT_QP_REQ_ERR). */
/* QPN: the peer violated access rights (IBV_EVENT_QP_ACCESS_ERR). */
#define VRDMA_EVENT_QP_ACCESS_ERR 4
#define VRDMA_EVENT_COMM_EST 5 /* QPN: a message came in state RTR (IBV_EVENT_COMM_EST). */
#define VRDMA_EVENT_SQ_DRAINED 6 /* QPN: the send queue is drained (IBV_EVENT_SQ_DRAINED). */
/* SRQN: fewer receives are left than the limit that was armed (IBV_EVENT_SRQ_LIMIT_REACHED). */
#define VRDMA_EVENT_SRQ_LIMIT_REACHED 7
/*
 * SRQN: a receive was wrong, or one too many; it has none any more, and takes none
 * (IBV_EVENT_SRQ_ERR).
 */
#define VRDMA_EVENT_SRQ_ERR 8
/*
 * QPN: a QP with a shared receive queue is in ERR, and takes no more from it
 * (IBV_EVENT_QP_LAST_WQE_REACHED).
 */
#define VRDMA_EVENT_QP_LAST_WQE_REACHED 9
#define VRDMA_EVENT_PORT_ACTIVE 16 /* Port 1 is up (IBV_EVENT_PORT_ACTIVE). */
#define VRDMA_EVENT_PORT_ERR 17 /* Port 1 is down (IBV_EVENT_PORT_ERR). */
/* 0: the device is lost until it is reset (IBV_EVENT_DEVICE_FATAL). */
#define VRDMA_EVENT_DEVICE_FATAL 18
/* Virtqueue number: the channel is broken (see wqe) until it is bound again. */
#define VRDMA_EVENT_CHANNEL_ERR 19
#define VRDMA_EVENT_CM 20 /* 0: CM_GET_EVENT has something to tell. Of transport iWARP. */

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

/* An address handle, 64 bytes. */
struct vrdma_ah_entry {
	/* 0: empty; otherwise the generation of the entry. */
	__le32 valid;
	/* Protection domain. */
	__le32 pdn;
	/* GID of the destination, in network byte order. */
	__u8 dgid[16];
	/* MAC address that leads to it. */
	__u8 dmac[6];
	/* That of the own GID: 1..4094, or 0xffff for none. */
	__le16 vlan;
	/* Flow label; the low 20 bits count. */
	__le32 flow_label;
	/* UDP source port, or 0 for the device's choice. */
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
/* uverbs_abi_ver of the ib_device: the provider refuses another. */
#define VRDMA_UVERBS_ABI_VERSION 1
/* Driver object (in the driver namespace of uverbs ioctls) that has the methods below. */
#define VRDMA_UVERBS_OBJECT_CHANNEL 4096
/*
 * Posts whole requests through the kernel's channel. Attribute ATTR_POST_UNITS. Fails with EINVAL,
 * nothing posted, unless each request is well framed and names a QP or SRQ of the calling context;
 * with EIO once the device is lost.
 */
#define VRDMA_UVERBS_METHOD_POST 4096
/* Kicks the context's own channel, where the doorbell could not be mapped. No attribute. */
#define VRDMA_UVERBS_METHOD_KICK 4097
/*
 * Tells a process that imports a context of it what the reply of ibv_cmd_get_context told, but for
 * the channel, which belongs to the process that opened the device. Attribute ATTR_QUERY_RESP:
 * vrdma_uctx_ex_resp, all fields of the channel 0. An older kernel driver refuses this method and
 * the next two.
 */
#define VRDMA_UVERBS_METHOD_QUERY_CONTEXT 4098
/*
 * Tells a process that imports a PD of it what the reply of ibv_cmd_alloc_pd told. Attributes
 * ATTR_QUERY_HANDLE, and ATTR_QUERY_RESP: vrdma_upd_resp. Fails with ENOENT if the context has no
 * such PD.
 */
#define VRDMA_UVERBS_METHOD_QUERY_PD 4099
/*
 * Tells how to map device memory. Attributes ATTR_QUERY_HANDLE, and ATTR_QUERY_RESP:
 * vrdma_udm_resp. Fails with ENOENT if the context has no such memory.
 */
#define VRDMA_UVERBS_METHOD_QUERY_DM 4100
/*
 * Tells the device's clock. Attribute ATTR_QUERY_RESP: vrdma_uclock_resp. Fails with EOPNOTSUPP if
 * the device has none, with EIO if it does not answer or did not the last time.
 */
#define VRDMA_UVERBS_METHOD_QUERY_CLOCK 4101
/* Bytes in: one or more requests, in units of 64 bytes, at most POST_MAX_UNITS of them. */
#define VRDMA_UVERBS_ATTR_POST_UNITS 4096
/* Bytes out: the structure that the method tells. If there is room for more, that is zeroed. */
#define VRDMA_UVERBS_ATTR_QUERY_RESP 4096
/* Handle of the object that is asked about, of the kind that the method is for. */
#define VRDMA_UVERBS_ATTR_QUERY_HANDLE 4097
#define VRDMA_UVERBS_POST_MAX_UNITS 64 /* Most units of one METHOD_POST. */

/* AllocContextReq::flags and AllocContextResp::flags. */
/* Reply: the context has a channel of its own (the pool was not empty). */
#define VRDMA_CONTEXT_F_CHANNEL 1
/* Reply: kicks follow avail_event (VIRTIO_F_EVENT_IDX), not used.flags. */
#define VRDMA_CONTEXT_F_EVENT_IDX 2
#define VRDMA_CONTEXT_F_DOORBELL 4 /* Reply: the doorbell is mapped. */
/* Request: do not give the context a channel of its own, all posts go through the kernel's. */
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
 * Reply of ibv_cmd_get_context in version 1.0. Lengths are whole pages; offsets count from the
 * start of the mapping.
 */
struct vrdma_uctx_resp {
	/* VRDMA_CONTEXT_F_*. */
	__le32 flags;
	/* Context number in the device, for messages. */
	__le32 context;
	/* No two living QPs have QPNs that are equal modulo this power of two. */
	__le32 max_qp;
	/* Most bytes of inline data. */
	__le32 max_inline;
	/* Entries of the channel, a power of two. */
	__le16 entries;
	/* Virtqueue number, which is what is written (16 bits, little-endian) to the doorbell. */
	__le16 queue;
	/* Most units of a request. */
	__le32 max_wqe_units;
	/* mmap offset of the pages with the available and the used ring. */
	__le64 rings_mmap;
	/* Their length. */
	__le32 rings_len;
	/* Where the available ring begins. */
	__le32 avail_offset;
	/* Where the used ring begins. */
	__le32 used_offset;
	/* Length of the slots. */
	__le32 slots_len;
	/* mmap offset of the slots; slot i is at 64 * i. */
	__le64 slots_mmap;
	/* mmap offset of the doorbell page, which is write-only. */
	__le64 doorbell_mmap;
	/* Length of the doorbell page. */
	__le32 doorbell_len;
	/* Where the doorbell is in it. */
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
	/* What version 1.0 tells. */
	struct vrdma_uctx_resp base;
	/*
	 * Functions that device and kernel driver have, VRDMA_CAP_*; 0 (a kernel driver of version
	 * 1.0) is VRDMA_CAP_V1_0.
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
	/* PDN, for messages. */
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
	/* Number of CQEs, a power of two, at least the cqe asked for. */
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
	/* CQN, for messages. */
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
	/* Number of CQEs, a power of two, at least the cqe asked for. */
	__le32 entries;
	/* As in ResizeCqReq(control::ResizeCqReq). */
	__le32 held;
};
static_assert(sizeof(struct vrdma_uresize_cq_req) == 16);
static_assert(offsetof(struct vrdma_uresize_cq_req, buf) == 0);
static_assert(offsetof(struct vrdma_uresize_cq_req, entries) == 8);
static_assert(offsetof(struct vrdma_uresize_cq_req, held) == 12);

/* Reply of ibv_cmd_create_qp. */
struct vrdma_uqp_resp {
	/* QPN to name in requests. */
	__le32 qpn;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_uqp_resp) == 8);
static_assert(offsetof(struct vrdma_uqp_resp, qpn) == 0);
static_assert(offsetof(struct vrdma_uqp_resp, reserved) == 4);

/* Reply of ibv_cmd_create_ah. */
struct vrdma_uah_resp {
	/* Index to name in UD requests. */
	__le32 ah;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_uah_resp) == 8);
static_assert(offsetof(struct vrdma_uah_resp, ah) == 0);
static_assert(offsetof(struct vrdma_uah_resp, reserved) == 4);

/* Reply of ibv_cmd_create_srq. */
struct vrdma_usrq_resp {
	/* SRQN to name in requests. */
	__le32 srqn;
	/* Zero. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_usrq_resp) == 8);
static_assert(offsetof(struct vrdma_usrq_resp, srqn) == 0);
static_assert(offsetof(struct vrdma_usrq_resp, reserved) == 4);

/* Reply of METHOD_QUERY_DM. */
struct vrdma_udm_resp {
	/* mmap offset of the pages that hold it; it begins with the first byte of the first. */
	__le64 mmap;
	/* Their length. */
	__le64 mmap_len;
	/* Its length in bytes. */
	__le64 length;
};
static_assert(sizeof(struct vrdma_udm_resp) == 24);
static_assert(offsetof(struct vrdma_udm_resp, mmap) == 0);
static_assert(offsetof(struct vrdma_udm_resp, mmap_len) == 8);
static_assert(offsetof(struct vrdma_udm_resp, length) == 16);

/* Reply of METHOD_QUERY_CLOCK. */
struct vrdma_uclock_resp {
	/* Nanoseconds, as in ClockResp(control::ClockResp). */
	__le64 clock;
};
static_assert(sizeof(struct vrdma_uclock_resp) == 8);
static_assert(offsetof(struct vrdma_uclock_resp, clock) == 0);

#endif /* VRDMA_ABI_H */
