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
#define VRDMA_VIRTIO_ID_STANDIN 38 /* Stand-in id for VMMs that refuse 42; has no driver in Linux. A driver that binds it must check  MAGIC and VERSION_MAJOR before anything else. */
#define VRDMA_MAGIC 0x6d647276u /* First word of the configuration space: the bytes "vrdm". */
#define VRDMA_VERSION_MAJOR 1 /* Major version of this ABI: drivers refuse any other. */
#define VRDMA_VERSION_MINOR 0 /* Minor version: grows when something is added that an older driver may ignore. */
#define VRDMA_CONFIG_SIZE 256 /* Size of the configuration space that the device answers for; what lies beyond super::Config reads as zero. */

/*
 * Virtqueue numbers. After the async event queue come Config::num_comp_vectors completion event queues, then
 * Config::num_channels channels, of which the first belongs to the kernel for good.
 */
#define VRDMA_QUEUE_CONTROL 0 /* Control commands. */
#define VRDMA_QUEUE_ASYNC_EVENTS 1 /* Asynchronous events. */
#define VRDMA_QUEUE_FIRST_COMP_EVENTS 2 /* First of the completion event queues, one per completion vector. */

/* Configuration space of the RDMA function. Read-only. */
struct vrdma_config {
	/* VRDMA_MAGIC. */
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
	/* VRDMA_LINK_*. Down here is down; up here, QUERY_PORT and the events VRDMA_EVENT_PORT_* tell how the link is now. */
	__u8 link;
	/* Largest path MTU in bytes: 256, 512, 1024, 2048 or 4096. */
	__le32 max_mtu;
	/* Written as zero. */
	__u8 reserved[40];
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
static_assert(offsetof(struct vrdma_config, reserved) == 24);

/* Values of Config::link. */
#define VRDMA_LINK_DOWN 0 /* No carrier. */
#define VRDMA_LINK_UP 1 /* Carrier. */

/* ReqHeader::opcode. Beside each its request -> reply; - is none. */
#define VRDMA_CMD_QUERY_DEVICE 1 /* - -> QueryDeviceResp */
#define VRDMA_CMD_QUERY_PORT 2 /* - -> QueryPortResp (there is one port, number 1) */
#define VRDMA_CMD_QUERY_GID 3 /* ObjectReq (GID index) -> QueryGidResp */
#define VRDMA_CMD_ADD_GID 4 /* AddGidReq -> -. Replaces the entry. DENIED if the host does not let this guest use the address in that VLAN, or another guest  has it there. */
#define VRDMA_CMD_DEL_GID 5 /* ObjectReq (GID index) -> -. An empty entry may be deleted. */
#define VRDMA_CMD_ALLOC_CONTEXT 8 /* - -> ObjectResp (context) */
#define VRDMA_CMD_DEALLOC_CONTEXT 9 /* ObjectReq (context) -> -. BUSY while it owns anything. */
#define VRDMA_CMD_BIND_CHANNEL 10 /* BindChannelReq, runs (the window) -> - */
#define VRDMA_CMD_UNBIND_CHANNEL 11 /* ObjectReq (virtqueue number) -> -. Entries not taken yet are dropped. */
#define VRDMA_CMD_ALLOC_PD 16 /* ObjectReq (context) -> ObjectResp (PDN) */
#define VRDMA_CMD_DEALLOC_PD 17 /* ObjectReq (PDN) -> -. BUSY while MRs or QPs use it. */
#define VRDMA_CMD_SET_PORT_MTU 12 /* SetPortMtuReq -> - */
#define VRDMA_CMD_CREATE_CQ 24 /* CreateCqReq, runs (see cqe) -> CreateCqResp */
#define VRDMA_CMD_DESTROY_CQ 25 /* ObjectReq (CQN) -> -. BUSY while QPs use it. */
#define VRDMA_CMD_REG_MR 32 /* RegMrReq, runs (the region) -> RegMrResp */
#define VRDMA_CMD_DEREG_MR 33 /* ObjectReq (lkey) -> - */
#define VRDMA_CMD_GET_DMA_MR 34 /* DmaMrReq -> RegMrResp. All guest memory, iova = GPA. PDs of the kernel only. */
#define VRDMA_CMD_CREATE_QP 40 /* CreateQpReq -> CreateQpResp */
#define VRDMA_CMD_MODIFY_QP 41 /* ModifyQpReq -> -. Requests made available in a channel before the command are taken before it. */
#define VRDMA_CMD_QUERY_QP 42 /* ObjectReq (QPN) -> QpAttr */
#define VRDMA_CMD_DESTROY_QP 43 /* ObjectReq (QPN) -> -. Pending requests end without a completion; those made available in a channel before the  command are taken before it. */
#define VRDMA_CMD_SET_AH_TABLE 48 /* AhTableReq, runs (see ah) -> -. Once, before the first UD QP. */

/* RespHeader::status. In brackets the errno that drivers make of it. */
#define VRDMA_STATUS_OK 0 /* Done. */
#define VRDMA_STATUS_UNSUPPORTED 1 /* Unknown opcode, or an option this device does not have (EOPNOTSUPP). */
#define VRDMA_STATUS_INVALID 2 /* A malformed request or a value that is never valid (EINVAL). */
#define VRDMA_STATUS_NOT_FOUND 3 /* No such object (ENOENT). */
#define VRDMA_STATUS_BUSY 4 /* The object is in use (EBUSY). */
#define VRDMA_STATUS_DENIED 5 /* Somebody else's object, or forbidden by the host (EPERM). */
#define VRDMA_STATUS_NO_RESOURCES 6 /* A limit of the device or of this guest's quota is reached (ENOMEM). */
#define VRDMA_STATUS_FAULT 7 /* A run that is not wholly in guest memory (EFAULT). */
#define VRDMA_STATUS_INTERNAL 8 /* The device failed, it is not the driver's fault (EIO). */
#define VRDMA_STATUS_TOO_LARGE 9 /* More runs than max_mr_runs (ENOMEM, as verbs have it for whatever the device has no room for). */

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
	/* Number of struct vrdma_run behind the request structure; 0 for commands without memory. */
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

/* Limits of the device. */
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
	/* Most MRs. */
	__le32 max_mr;
	/*
	 * A power of two: no two living QPs have QPNs that are equal modulo this. Two of the numbers are not for ordinary QPs (0, and
	 * 1 for QP1), so there are two QPs less.
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
	 * 0: no atomics; 1: atomic with respect to this device (IB_ATOMIC_HCA); 2 or more: with respect to processors too (IB_ATOMIC_GLOB),
	 * for they are the host's own instructions. An emulator that makes its guest's locked instructions plain ones, as QEMU's TCG does
	 * for a VM with one processor, breaks that promise on the guest's side.
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

/* Says what the guest's netdev allows: no datagram may be longer. The device does not know that netdev's MTU. */
struct vrdma_set_port_mtu_req {
	/* Path MTU in bytes: 256, 512, 1024, 2048 or 4096, and at most max_mtu. */
	__le32 mtu;
	/* Written as zero; refused otherwise. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_set_port_mtu_req) == 8);
static_assert(offsetof(struct vrdma_set_port_mtu_req, mtu) == 0);
static_assert(offsetof(struct vrdma_set_port_mtu_req, reserved) == 4);

/* Sets an entry of the GID table. */
struct vrdma_add_gid_req {
	/* Index in the GID table. */
	__le32 index;
	/* VRDMA_GID_*. */
	__u8 gid_type;
	/* Reserved, zero. */
	__u8 reserved0;
	/* The VLAN in which the device has the address: 1..4094, or 0xffff for frames without a tag. */
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
 * The runs are the *window*: where the slots lie. Before the command the driver sets the channel's virtqueue:
 * descriptor *i* is {addr of slot i, len 64, flags 0, next 0}, slot *i* aligned to 64 bytes and wholly inside one run; avail.idx,
 * avail.flags, used.idx, used.flags and used_event are 0. The device reads the descriptors now and never
 * again, and starts with entry 0. FAULT if a descriptor is anything else.
 */
struct vrdma_bind_channel_req {
	/*
	 * Context that the channel will belong to. Requests in it may name objects of that context alone; those in
	 * a channel of the kernel's context any.
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
	/* Written as zero; refused otherwise. */
	__le32 reserved;
};
static_assert(sizeof(struct vrdma_create_cq_req) == 16);
static_assert(offsetof(struct vrdma_create_cq_req, context) == 0);
static_assert(offsetof(struct vrdma_create_cq_req, entries) == 4);
static_assert(offsetof(struct vrdma_create_cq_req, vector) == 8);
static_assert(offsetof(struct vrdma_create_cq_req, reserved) == 12);

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

/* Registers memory. Runs other than the first and the last have at least VRDMA_MIN_RUN bytes. */
struct vrdma_reg_mr_req {
	/* Protection domain. */
	__le32 pdn;
	/* VRDMA_ACCESS_*; remote write and atomics need local write too. */
	__le32 access;
	/* Address by which requests name the first byte; any. */
	__le64 iova;
	/*
	 * Length in bytes, the sum of the runs; iova + length is at most 2^64. A region of length 0 has no runs: it has keys, and
	 * no byte can be reached by them.
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
#define VRDMA_ACCESS_ALL 15 /* All that the device has; others are refused (INVALID). Of the bits of enum ibv_access_flags that are not here, drivers serve  zero-based themselves (iova is 0), ignore the hints (huge pages and the optional range, such as relaxed ordering), and  refuse what the device lacks (memory windows, on-demand, flush) with EOPNOTSUPP. */

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

/* Creates a queue pair in state RESET. */
struct vrdma_create_qp_req {
	/* Context that owns it. */
	__le32 context;
	/* Protection domain. */
	__le32 pdn;
	/* VRDMA_QPT_*. */
	__le32 qp_type;
	/* CQ of send completions. */
	__le32 send_cqn;
	/* CQ of receive completions; may be the same. */
	__le32 recv_cqn;
	/* Shared receive queue, or VRDMA_NONE. */
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
	/* Written as zero; refused otherwise. */
	__le32 reserved;
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
static_assert(offsetof(struct vrdma_create_qp_req, reserved) == 44);

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
#define VRDMA_QP_PATH_MIG_STATE 0x40000u /* Path migration state: ignored. A QP is MIGRATED always; drivers refuse other states (EINVAL). */
#define VRDMA_QP_CAP 0x80000u /* Capabilities: refused. */
#define VRDMA_QP_DEST_QPN 0x100000u /* dest_qpn */

/*
 * Attributes of a QP, with the meaning, units and encodings of ibv_modify_qp(3). Of sl, flow_label, the PSNs, dest_qpn,
 * the retries and min_rnr_timer the low bits count (see width).
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

/* Sizes and offsets in a request. */
#define VRDMA_WQE_UNIT_SIZE 64 /* Bytes of a unit, and of a slot. */
#define VRDMA_WQE_MAX_UNITS 8 /* Most units of a request (max_wqe_units may be less). */
#define VRDMA_WQE_BODY_OFFSET 16 /* Where the body begins. */
#define VRDMA_WQE_DATA_OFFSET 32 /* Where elements, inline data or atomic operands begin. */
#define VRDMA_WQE_ATOMIC_SGE_OFFSET 48 /* Where the element of an atomic is. */
#define VRDMA_WQE_MAX_SGE 30 /* Most elements that 8 units can hold. */
#define VRDMA_WQE_MAX_INLINE 480 /* Most bytes of inline data that 8 units can hold. */

/* WqeHeader::opcode. 0..127 are for send queues, 128 and on for receive queues. */
#define VRDMA_WR_RDMA_WRITE 0 /* RDMA WRITE. */
#define VRDMA_WR_RDMA_WRITE_WITH_IMM 1 /* RDMA WRITE with immediate data: consumes a receive of the peer. */
#define VRDMA_WR_SEND 2 /* SEND. */
#define VRDMA_WR_SEND_WITH_IMM 3 /* SEND with immediate data. */
#define VRDMA_WR_RDMA_READ 4 /* RDMA READ; the elements are written. */
#define VRDMA_WR_ATOMIC_CMP_AND_SWP 5 /* Compare and swap of 8 bytes; the element receives the value before. */
#define VRDMA_WR_ATOMIC_FETCH_AND_ADD 6 /* Fetch and add of 8 bytes; the element receives the value before. */
#define VRDMA_WR_RECV 128 /* RECV. */

/* WqeHeader::flags. */
#define VRDMA_WQE_F_SIGNALED 1 /* Make a CQE on success too (errors always make one). RECVs always make one. */
#define VRDMA_WQE_F_SOLICITED 2 /* Ask the receiver for a solicited event. */
#define VRDMA_WQE_F_FENCE 4 /* Start only after all READs and atomics before it are complete. */
#define VRDMA_WQE_F_INLINE 8 /* The payload is in the request. */
#define VRDMA_WQE_F_ALL 15 /* All that are defined. */

/* The first 16 bytes of a request. */
struct vrdma_wqe {
	/* VRDMA_WR_*. */
	__u8 opcode;
	/* Number of 64-byte units of the request, this one included: the least that hold it. */
	__u8 units;
	/* VRDMA_WQE_F_*. */
	__le16 flags;
	/* QPN. */
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
	/* Address in the peer's region (WRITE, READ, atomics); 0 otherwise. */
	__le64 remote_addr;
	/* Key of the peer's region (WRITE, READ, atomics); 0 otherwise. */
	__le32 rkey;
	/* Immediate data; the peer finds these 4 bytes in its CQE as they are. */
	__be32 imm;
};
static_assert(sizeof(struct vrdma_wqe_rdma) == 16);
static_assert(offsetof(struct vrdma_wqe_rdma, remote_addr) == 0);
static_assert(offsetof(struct vrdma_wqe_rdma, rkey) == 8);
static_assert(offsetof(struct vrdma_wqe_rdma, imm) == 12);

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
#define VRDMA_WC_LOC_PROT_ERR 4 /* Local protection error. The own keys are looked at before anything is asked of the peer: a READ or atomic whose local and  remote key are both bad ends with this, and the peer's memory is as it was. (Where hardware and rdma_rxe look at the local key  when the answer comes, it ends with REM_ACCESS_ERR, and an atomic with a bad local key is carried out.) */
#define VRDMA_WC_WR_FLUSH_ERR 5 /* Flushed: the QP was in ERR, or went there. */
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
#define VRDMA_WC_OP_RECV 128 /* A message received. */
#define VRDMA_WC_OP_RECV_RDMA_WITH_IMM 129 /* A WRITE with immediate data received. */

/* Cqe::flags. */
#define VRDMA_CQE_F_IMM 1 /* imm is valid. */
#define VRDMA_CQE_F_GRH 2 /* The first 40 bytes of the receive buffer hold a GRH. */
#define VRDMA_CQE_F_RECV 4 /* The completion is of a receive request. */
#define VRDMA_CQE_F_SOLICITED 8 /* The sender asked for a solicited event. */

/* A completion. */
struct vrdma_cqe {
	/* wqe_id of the request. */
	__le32 wqe_id;
	/* QPN of the own QP. */
	__le32 qpn;
	/* Bytes received (receives), read (READ) or 8 (atomics); 0 for others. Undefined unless VRDMA_WC_SUCCESS. */
	__le32 byte_len;
	/* Immediate data with VRDMA_CQE_F_IMM: the 4 bytes as the peer posted them. */
	__be32 imm;
	/* QPN of the peer (receives). */
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
#define VRDMA_EVENT_COMPLETION 0 /* CQN: an armed CQ has a new CQE. The only kind on completion event queues, and only there. */
#define VRDMA_EVENT_CQ_ERR 1 /* CQN: overrun, or the ring's memory is gone (IBV_EVENT_CQ_ERR). */
#define VRDMA_EVENT_QP_FATAL 2 /* QPN: it went to ERR for a reason that no completion tells (IBV_EVENT_QP_FATAL). */
#define VRDMA_EVENT_QP_REQ_ERR 3 /* QPN: the peer's request was invalid (IBV_EVENT_QP_REQ_ERR). */
#define VRDMA_EVENT_QP_ACCESS_ERR 4 /* QPN: the peer violated access rights (IBV_EVENT_QP_ACCESS_ERR). */
#define VRDMA_EVENT_COMM_EST 5 /* QPN: a message came in state RTR (IBV_EVENT_COMM_EST). */
#define VRDMA_EVENT_SQ_DRAINED 6 /* QPN: the send queue is drained (IBV_EVENT_SQ_DRAINED). */
#define VRDMA_EVENT_PORT_ACTIVE 16 /* Port 1 is up (IBV_EVENT_PORT_ACTIVE). */
#define VRDMA_EVENT_PORT_ERR 17 /* Port 1 is down (IBV_EVENT_PORT_ERR). */
#define VRDMA_EVENT_DEVICE_FATAL 18 /* 0: the device is lost until it is reset (IBV_EVENT_DEVICE_FATAL). */
#define VRDMA_EVENT_CHANNEL_ERR 19 /* Virtqueue number: the channel is broken (see wqe) until it is bound again. */

/* An event. */
struct vrdma_event {
	/* VRDMA_EVENT_*. */
	__le16 kind;
	/* Written as zero. */
	__le16 reserved0;
	/* Number of the object: CQN, QPN, virtqueue, or port. */
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
#define VRDMA_UVERBS_ABI_VERSION 1 /* uverbs_abi_ver of the ib_device: the provider refuses another. */
#define VRDMA_UVERBS_OBJECT_CHANNEL 4096 /* Driver object (in the driver namespace of uverbs ioctls) that has the methods below. */
#define VRDMA_UVERBS_METHOD_POST 4096 /* Posts whole requests through the kernel's channel. Attribute ATTR_POST_UNITS. Fails with EINVAL, nothing posted,  unless each request is well framed and names a QP of the calling context; with EIO once the device is lost. */
#define VRDMA_UVERBS_METHOD_KICK 4097 /* Kicks the context's own channel, where the doorbell could not be mapped. No attribute. */
#define VRDMA_UVERBS_ATTR_POST_UNITS 4096 /* Bytes in: one or more requests, in units of 64 bytes, at most POST_MAX_UNITS of them. */
#define VRDMA_UVERBS_POST_MAX_UNITS 64 /* Most units of one METHOD_POST. */

/* AllocContextReq::flags and AllocContextResp::flags. */
#define VRDMA_CONTEXT_F_CHANNEL 1 /* Reply: the context has a channel of its own (the pool was not empty). */
#define VRDMA_CONTEXT_F_EVENT_IDX 2 /* Reply: kicks follow avail_event (VIRTIO_F_EVENT_IDX), not used.flags. */
#define VRDMA_CONTEXT_F_DOORBELL 4 /* Reply: the doorbell is mapped. */
#define VRDMA_CONTEXT_F_NO_CHANNEL 8 /* Request: do not give the context a channel of its own, all posts go through the kernel's. */

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

/* Reply of ibv_cmd_get_context. Lengths are whole pages; offsets count from the start of the mapping. */
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

#endif /* VRDMA_ABI_H */
