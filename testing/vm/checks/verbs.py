#!/usr/bin/env python3
"""Checks replies of vrdma0's verbs: limits, access flags, attributes.

These are replies of which a program can tell whether they are right. Runs in a VM. Its argument is
the index of the GID.
"""

import ctypes
import errno
import glob
import os
import struct
import sys
import time

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.mem_alloc import posix_memalign
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
INDEX = int(sys.argv[1])
ALL = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
       | e.IBV_ACCESS_REMOTE_ATOMIC)


def same(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


def error_of(function, *arguments, **named):
    """Returns the errno with which a call fails, or 0 if it succeeds."""
    try:
        result = function(*arguments, **named)
        if hasattr(result, "close"):
            result.close()
        return 0
    except PyverbsRDMAError as error:
        return error.error_code


context = d.Context(name="vrdma0")
pd = PD(context)
gid = context.query_gid(port_num=PORT, index=INDEX)
route = AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=INDEX), is_global=1, port_num=PORT)

device = context.query_device()
same("atomic_caps", device.atomic_caps, e.IBV_ATOMIC_GLOB)
same("local_ca_ack_delay", device.local_ca_ack_delay, 15)
same("BAD_QKEY_CNTR", bool(device.device_cap_flags & e.IBV_DEVICE_BAD_QKEY_CNTR), True)
same("ATOMIC_WRITE", context.query_device_ex().device_cap_flags_ex >> 40 & 1, 1)
same("FLUSH_GLOBAL and _PERSISTENT", context.query_device_ex().device_cap_flags_ex >> 38 & 3, 1)
same("max_qp", device.max_qp & (device.max_qp + 2), 0)
same("speed of a port without uplink",
     (context.query_port(PORT).active_speed, context.query_port(PORT).active_width), (32, 2))


def get_context(request, room):
    """Opens a context with this request of a provider, and this much room for the reply.

    Returns the driver's part of the reply, or the errno.
    """
    [directory] = [os.path.dirname(path) for path in glob.glob("/sys/class/infiniband_verbs/uverbs*/ibdev")
                   if open(path, encoding="ascii").read().strip() == "vrdma0"]
    fd = os.open("/dev/infiniband/" + os.path.basename(directory), os.O_RDWR | os.O_CLOEXEC)
    reply = (ctypes.c_ubyte * 512)(*[0xee] * 512)
    words = (16 + len(request)) // 4, (8 + room) // 4
    try:
        os.write(fd, struct.pack("=IHHQ", 0, *words, ctypes.addressof(reply)) + request)
    except OSError as failure:
        return failure.errno
    finally:
        os.close(fd)
    os.close(struct.unpack_from("=I", reply)[0])
    return bytes(reply)[8:]


# Providers of any version can open the device. Version 1.0 has room for 72 bytes.
NO_CHANNEL = struct.pack("=II", 8, 0)
# VRDMA_CAP_V1_0, ..._SRQ, ..._SRQ_RESIZE, ..._MEM_WINDOW, ..._MEM_WINDOW_TYPE_2B, ..._REREG_MR,
# ..._ATOMIC_WRITE, ..._CQ_RESIZE, ..._CQ_MODERATION, ..._CQ_TIMESTAMP, ..._CQ_IGNORE_OVERRUN,
# ..._MULTICAST, ..._HW_COUNTERS, ..._FLUSH_GLOBAL, ..._WQE_LIST
CAPS = 0x1f | 7 << 8 | 7 << 11 | 7 << 14 | 0x3f << 18 | 1 << 25
reply = get_context(NO_CHANNEL, 136)
same("the reply to a provider", struct.unpack_from("=IIII", reply)[2:], (device.max_qp + 2, 512))
same("its word, and what is reserved", reply[72:136], struct.pack("=Q", CAPS) + bytes(56))
for room in (16, 72, 76):
    found = get_context(NO_CHANNEL, room)
    # The context's number may differ.
    same(f"with room for {room} bytes", found[8:room] + found[room:136], reply[8:room] + b"\xee" * (136 - room))
same("with more room", get_context(NO_CHANNEL, 300)[8:136], reply[8:136])
for added, wanted in [(bytes(8), None), (bytes(400), None), (b"\x01" + bytes(7), errno.EOPNOTSUPP)]:
    found = get_context(NO_CHANNEL + added, 136)
    same(f"{len(added)} bytes more of the request", found if wanted else found[8:136], wanted or reply[8:136])

# A QP with the limit of each attribute succeeds. One more of any attribute fails.
same("limits", (device.max_qp_wr, device.max_sge, device.max_mr >= 100_000, device.max_cq >= 10_000),
     (32768, 32, True, True))
limits = dict(max_send_wr=32768, max_recv_wr=32768, max_send_sge=32, max_recv_sge=32, max_inline_data=512)
cq = CQ(context, 8)
for more in [None, *limits]:
    cap = QPCap(**{name: value + (name == more) for name, value in limits.items()})
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap)
    same(f"a QP with one more of {more}", error_of(QP, pd, init), errno.EINVAL if more else 0)
cq.close()

# A CQ is resized.
cq = CQ(context, 8)
for wanted, size in [(100, 128), (device.max_cqe, device.max_cqe), (1, 2)]:
    cq.resize(wanted)
    same(f"a CQ of {wanted}", cq.cqe, size)
for wanted in (0, device.max_cqe + 1):
    same(f"a CQ of {wanted}", error_of(cq.resize, wanted), errno.EINVAL)
same("the CQ", cq.cqe, 2)
cq.close()

# A completion has its time by the device's clock and by the wall clock.
found = context.query_device_ex()
same("the device's clock", (found.hca_core_clock, found.completion_timestamp_mask), (1_000_000, 2 ** 64 - 1))
times = e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
cq = CQEX(context, CqInitAttrEx(cqe=4, wc_flags=times))
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(4, 4, 1, 1, 0)))
attr = QPAttr(port_num=PORT)
attr.qp_state = e.IBV_QPS_INIT
qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS)
attr.qp_state = e.IBV_QPS_ERR
qp.modify(attr, e.IBV_QP_STATE)
before, wall = context.query_rt_values_ex()[1], time.time_ns()
qp.post_recv(RecvWR(num_sge=1, sg=[SGE(0, 0, 0)]))
while cq.start_poll(PollCqAttr()):
    pass
stamp, wallclock = cq.read_timestamp(), cq.read_completion_wallclock_ns()
cq.end_poll()
same("a time stamp", before <= stamp <= context.query_rt_values_ex()[1], True)
same("the time of the wall, in the same minute", abs(wallclock - wall) < 60 * 10 ** 9, True)
for thing in (qp, cq):
    thing.close()

# An SRQ with the limit of each attribute succeeds, and one more of any fails. Then its size and
# its limit are modified.
same("limits of SRQs", (device.max_srq, device.max_srq_wr, device.max_srq_sge), (16384, 32768, 32))
limits = dict(max_wr=32768, max_sge=32)
for more in [None, *limits]:
    init = SrqInitAttr(SrqAttr(**{name: value + (name == more) for name, value in limits.items()}))
    same(f"an SRQ with one more of {more}", error_of(SRQ, pd, init), errno.EINVAL if more else 0)
same("an SRQ of nothing", error_of(SRQ, pd, SrqInitAttr(SrqAttr(max_wr=0, max_sge=1))), errno.EINVAL)
kind = SrqInitAttrEx(max_wr=4, max_sge=1)
kind.comp_mask = e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD
kind.pd, kind.srq_type = pd, e.IBV_SRQT_TM
same("an SRQ for tag matching", error_of(SRQ, context, kind), errno.EOPNOTSUPP)
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=4, max_sge=1)))
for attr, mask, wanted in [
    (SrqAttr(max_wr=0), e.IBV_SRQ_MAX_WR, errno.EINVAL),
    (SrqAttr(max_wr=32769), e.IBV_SRQ_MAX_WR, errno.EINVAL),
    (SrqAttr(srq_limit=5), e.IBV_SRQ_LIMIT, errno.EINVAL),
    (SrqAttr(max_wr=8), 4, errno.EINVAL),
    (SrqAttr(max_wr=8), e.IBV_SRQ_MAX_WR, 0),
    (SrqAttr(max_wr=2), e.IBV_SRQ_MAX_WR, 0),
]:
    same(f"an SRQ modified to {attr.max_wr}, {attr.srq_limit} by {mask}", error_of(srq.modify, attr, mask), wanted)
same("its attributes", (srq.query().max_wr, srq.query().max_sge, srq.query().srq_limit), (2, 1, 0))
cq = CQ(context, 8)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=QPCap(8, 99999, 1, 99, 0)))
cap = qp.query(e.IBV_QP_CAP)[1].cap
same("receives of a QP that uses it", (cap.max_send_wr, cap.max_recv_wr, cap.max_recv_sge), (8, 0, 0))
receive = RecvWR(num_sge=1, sg=[SGE(0, 0, 0)])
for number, wanted in enumerate([0, 0, errno.ENOMEM]):
    same(f"receive {number} for the SRQ", error_of(srq.post_recv, receive), wanted)
for thing in (qp, srq, cq):
    thing.close()

# Exactly the promised number of address handles can be created.
handles = []
while (error := error_of(lambda: handles.append(AH(pd, attr=route)))) == 0:
    pass
same("address handles", (len(handles), error), (device.max_ah, errno.ENOMEM))
for handle in handles:
    handle.close()

buffer = posix_memalign(4096, 4096)
for name, access, length, wanted in [
    ("every right", ALL, 4096, 0),
    ("no byte", ALL, 0, 0),
    ("relaxed ordering", ALL | e.IBV_ACCESS_RELAXED_ORDERING, 4096, 0),
    ("huge pages", ALL | e.IBV_ACCESS_HUGETLB, 4096, 0),
    ("zero-based", ALL | e.IBV_ACCESS_ZERO_BASED, 4096, 0),
    ("memory windows", ALL | e.IBV_ACCESS_MW_BIND, 4096, 0),
    ("on-demand", ALL | e.IBV_ACCESS_ON_DEMAND, 4096, errno.EOPNOTSUPP),
    ("flush", ALL | e.IBV_ACCESS_FLUSH_GLOBAL, 4096, 0),
    ("flush to persistence", ALL | e.IBV_ACCESS_FLUSH_PERSISTENT, 4096, errno.EOPNOTSUPP),
    ("remote write alone", e.IBV_ACCESS_REMOTE_WRITE, 4096, errno.EINVAL),
]:
    same(f"a region with {name}", error_of(MR, pd, length, access, address=buffer), wanted)

# A QP that is connected to itself writes to a region whose first byte is at address 0.
cq = CQ(context, 8)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(8, 8, 1, 1, 0), sq_sig_all=1))
attr = QPAttr(port_num=PORT)
attr.qp_state = e.IBV_QPS_INIT
init = e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS
attr.qp_access_flags = ALL | 1 << 19
same("a right that no manual knows", error_of(qp.modify, attr, init), errno.EINVAL)
# Rights that the device does not have are granted, as by hardware, because nobody can use them.
attr.qp_access_flags = ALL | e.IBV_ACCESS_MW_BIND | e.IBV_ACCESS_FLUSH_GLOBAL | e.IBV_ACCESS_RELAXED_ORDERING
qp.modify(attr, init)
same("access of a QP", qp.query(e.IBV_QP_ACCESS_FLAGS)[0].qp_access_flags, ALL | e.IBV_ACCESS_FLUSH_GLOBAL)
attr.qp_state = e.IBV_QPS_RTR
attr.ah_attr = route
attr.path_mtu = e.IBV_MTU_1024
attr.dest_qp_num = qp.qp_num | 0x5a << 24
attr.rq_psn = attr.sq_psn = 7
attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
attr.min_rnr_timer = 12
qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN
          | e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER)
attr.qp_state = e.IBV_QPS_RTS
attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 0xff, 0xff
qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_SQ_PSN | e.IBV_QP_MAX_QP_RD_ATOMIC | e.IBV_QP_TIMEOUT
          | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY)
found = qp.query(e.IBV_QP_STATE)[0]
same("what is left of wide fields", (found.dest_qp_num, found.retry_cnt, found.rnr_retry), (qp.qp_num, 7, 7))

region = MR(pd, 4096, ALL | e.IBV_ACCESS_ZERO_BASED)
source = MR(pd, 4096, ALL)
source.write("to the first byte", 17)
send = SendWR(1, opcode=e.IBV_WR_RDMA_WRITE, sg=[SGE(source.buf, 17, source.lkey)], num_sge=1)
send.set_wr_rdma(region.rkey, 0)
qp.post_send(send)
while not (got := cq.poll())[0]:
    pass
same("a WRITE to address 0", (got[1][0].status, region.read(17, 0)), (e.IBV_WC_SUCCESS, b"to the first byte"))

for state, wanted in [(e.IBV_MIG_MIGRATED, 0), (e.IBV_MIG_REARM, errno.EINVAL), (e.IBV_MIG_ARMED, errno.EINVAL)]:
    attr.path_mig_state = state
    same(f"path migration state {state}", error_of(qp.modify, attr, e.IBV_QP_PATH_MIG_STATE), wanted)

# A datagram may be as long as the netdev's frames allow, which is less than the device's limit.
port = context.query_port(PORT)
same("the active MTU is the netdev's", port.active_mtu < port.max_mtu, True)
longest = 128 << port.active_mtu
ud = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=cq, rcq=cq, cap=QPCap(8, 8, 1, 1, 0), sq_sig_all=1))
ud_attr = QPAttr(port_num=PORT)
ud_attr.qkey = 0x1234
for state, mask in [(e.IBV_QPS_INIT, e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_QKEY), (e.IBV_QPS_RTR, 0),
                    (e.IBV_QPS_RTS, e.IBV_QP_SQ_PSN)]:
    ud_attr.qp_state = state
    ud.modify(ud_attr, e.IBV_QP_STATE | mask)
handle = AH(pd, attr=route)
for length, wanted in [(longest, e.IBV_WC_SUCCESS), (longest + 1, e.IBV_WC_LOC_LEN_ERR)]:
    send = SendWR(2, opcode=e.IBV_WR_SEND, sg=[SGE(source.buf, length, source.lkey)], num_sge=1)
    send.set_wr_ud(handle, ud.qp_num, ud_attr.qkey)
    ud.post_send(send)
    while not (got := cq.poll())[0]:
        pass
    same(f"a datagram of {length} bytes", got[1][0].status, wanted)

# Providers arm CQs through memory. The kernel sees a handle only in the command itself.
REQ_NOTIFY_CQ = 23
NO_HANDLE = 0x7fffffff
for what, number, wanted in [("a PD", pd.handle, errno.EINVAL), ("nothing", NO_HANDLE, errno.ENOENT)]:
    try:
        os.write(context.cmd_fd, struct.pack("=IHHII", REQ_NOTIFY_CQ, 4, 0, number, 0))
        error = 0
    except OSError as failure:
        error = failure.errno
    same(f"to arm a CQ by the handle of {what}", error, wanted)

with open("/sys/class/infiniband/vrdma0/node_desc", "w", encoding="ascii") as file:
    file.write("a node of this name")
with open("/sys/class/infiniband/vrdma0/node_desc", encoding="ascii") as file:
    same("node_desc", file.read().strip(), "a node of this name")
print("all answers are right")
