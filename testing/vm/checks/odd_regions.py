#!/usr/bin/env python3
"""Registers regions of any length and position in huge pages.

Runs in a VM. Its argument is the index of the GID.

Each region has its own bounds and rights, even if other regions share its bytes. It outlives the
mapping from which it was made.
"""

import ctypes
import mmap
import os
import sys

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PORT = 1
MIB = 1 << 20
WHOLE = 8 * MIB
LOCAL = e.IBV_ACCESS_LOCAL_WRITE
WRITE = LOCAL | e.IBV_ACCESS_REMOTE_WRITE
READ = e.IBV_ACCESS_REMOTE_READ


def same(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


class Loop:
    """A QP that is connected to itself. After an error it is replaced by a new one."""

    def __init__(self, context, pd, index):
        self.context, self.pd, self.index = context, pd, index
        self.cq = CQ(context, 8)
        self.connect()

    def connect(self):
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(8, 8, 1, 1, 0), sq_sig_all=1)
        self.qp = QP(self.pd, init)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = WRITE | READ
        attr.dest_qp_num = self.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.rnr_retry, attr.retry_cnt, attr.timeout = 12, 7, 7, 18
        gid = self.context.query_gid(port_num=PORT, index=self.index)
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=self.index), is_global=1, port_num=PORT)
        self.qp.to_rts(attr)

    def run(self, opcode, element, rkey, address):
        """Executes a request, and returns its status."""
        send = SendWR(1, opcode=opcode, sg=[element], num_sge=1)
        send.set_wr_rdma(rkey, address)
        self.qp.post_send(send)
        while not (got := self.cq.poll())[0]:
            pass
        status = got[1][0].status
        if status != e.IBV_WC_SUCCESS:
            self.qp.close()
            self.connect()
        return status


def main():
    context = d.Context(name="vrdma0")
    pd = PD(context)
    loop = Loop(context, pd, int(sys.argv[1]))
    # MFD_HUGETLB
    fd = os.memfd_create("huge", 4)
    os.ftruncate(fd, WHOLE)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    base = libc.mmap(None, WHOLE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        sys.exit(f"mmap: {os.strerror(ctypes.get_errno())}")

    source = MR(pd, 4096, LOCAL)
    source.write(b"0123456789abcdef", 16)

    def text(length):
        return SGE(source.buf, length, source.lkey)

    good, bad = e.IBV_WC_SUCCESS, e.IBV_WC_REM_ACCESS_ERR
    write, read = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ
    regions = {}
    for start, end in [(1, 3779572), (2 * MIB - 1, 2 * MIB + 1), (0, WHOLE), (WHOLE - 1, WHOLE)]:
        what = f"[{start}, {end})"
        region = MR(pd, end - start, WRITE | READ, address=base + start)
        regions[start, end] = region
        length = min(16, end - start)
        for at in (start, end - length):
            ctypes.memset(base + at, 0, length)
            same(f"a WRITE to {at} of {what}", loop.run(write, text(length), region.rkey, base + at), good)
            same(f"what came to {at}", ctypes.string_at(base + at, length), b"0123456789abcdef"[:length])
        for at in (start - 1, end - length + 1):
            same(f"a WRITE to {at}, past {what}", loop.run(write, text(length), region.rkey, base + at), bad)
    only = MR(pd, 4 * MIB, READ, address=base + MIB)
    same("a WRITE to what may be read", loop.run(write, text(8), only.rkey, base + MIB), bad)
    same("a READ of it", loop.run(read, SGE(source.buf + 64, 8, source.lkey), only.rkey, base + 2 * MIB - 1), good)
    same("a WRITE to the same bytes by another region",
         loop.run(write, text(8), regions[0, WHOLE].rkey, base + MIB), good)

    # Registered pages stay, although nobody maps them any more and the file is empty.
    same("munmap", libc.munmap(base, WHOLE), 0)
    os.ftruncate(fd, 0)
    whole = regions[0, WHOLE]
    same("a WRITE to pages that nobody maps", loop.run(write, text(16), whole.rkey, base + 5), good)
    same("a READ of them", loop.run(read, SGE(source.buf + 128, 16, source.lkey), whole.rkey, base + 5), good)
    same("what was read", source.read(16, 128), b"0123456789abcdef")
    for region in [only, *regions.values()]:
        region.close()
    print("ok")


main()
