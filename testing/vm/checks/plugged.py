#!/usr/bin/env python3
"""Checks memory that was plugged into a VM.

Runs in that VM. Its arguments are `shared` or `private`, and the index of the GID.

The first 128 MiB above 4 GiB are memory that the VMM shares with the device. With `private`, more
memory follows, which the VMM does not share. An anonymous mapping has pages in either, some of
which are registered, each separately. Shared pages take a WRITE and a READ. Pages that are not
shared are refused with EFAULT.
"""

import ctypes
import errno
import mmap
import os
import struct
import sys

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PORT = 1
PAGE = mmap.PAGESIZE
# Enough pages are touched that some lie in the memory that came last. Every EACH-th is registered.
PAGES, EACH = {"shared": (16384, 16), "private": (81920, 80)}[sys.argv[1]]
SHARED = 128 << 20
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ


def first_plugged():
    """Returns the first page frame above 4 GiB."""
    with open("/proc/iomem") as file:
        starts = [int(line.split("-")[0], 16) for line in file if "System RAM" in line]
    plugged = [start for start in starts if start >= 4 << 30]
    if not plugged:
        sys.exit("no memory was plugged in")
    return min(plugged) // PAGE


def frames(base):
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(base // PAGE * 8)
        entries = struct.unpack(f"{PAGES}Q", file.read(8 * PAGES))
    return [entry & (1 << 55) - 1 for entry in entries]


class Loop:
    def __init__(self, context, pd, index):
        self.cq = CQ(context, 8)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(8, 8, 1, 1, 0), sq_sig_all=1)
        self.qp = QP(pd, init)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = RIGHTS
        attr.dest_qp_num = self.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.rnr_retry, attr.retry_cnt, attr.timeout = 12, 7, 7, 18
        gid = context.query_gid(port_num=PORT, index=index)
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=index), is_global=1, port_num=PORT)
        self.qp.to_rts(attr)

    def run(self, opcode, local, remote):
        send = SendWR(1, opcode=opcode, sg=[local], num_sge=1)
        send.set_wr_rdma(remote.rkey, remote.buf)
        self.qp.post_send(send)
        while not (got := self.cq.poll())[0]:
            pass
        if got[1][0].status != e.IBV_WC_SUCCESS:
            sys.exit(f"status {got[1][0].status}")


def main():
    kind, index = sys.argv[1], int(sys.argv[2])
    context = d.Context(name="vrdma0")
    pd = PD(context)
    loop = Loop(context, pd, index)
    memory = mmap.mmap(-1, PAGES * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(PAGES):
        memory[page * PAGE] = page & 0xFF
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    first = first_plugged()
    private = first + SHARED // PAGE
    found = frames(base)
    counts = [sum(found[page] >= border for page in range(0, PAGES, EACH)) for border in (first, private)]
    print(f"of {PAGES // EACH} pages {counts[0]} lie in memory that was plugged in, {counts[1]} in what is not shared")
    if counts[0] < 10 or (kind == "private" and counts[1] < 10):
        sys.exit("too few of them")
    source = None
    refused = registered = 0
    for page in range(0, PAGES, EACH):
        address = base + page * PAGE
        try:
            region = MR(pd, PAGE, RIGHTS, address=address)
        except PyverbsRDMAError as error:
            if found[page] < private:
                sys.exit(f"page {page}, frame {found[page]:#x}: {error}")
            if error.error_code != errno.EFAULT:
                sys.exit(f"refused with {error.error_code}, not EFAULT: {error}")
            refused += 1
            continue
        if found[page] >= private:
            sys.exit(f"page {page}, frame {found[page]:#x}, is registered: the device cannot see it")
        registered += 1
        if source is None:
            source = region
            continue
        text = os.urandom(64)
        ctypes.memmove(source.buf, text, 64)
        loop.run(e.IBV_WR_RDMA_WRITE, SGE(source.buf, 64, source.lkey), region)
        if ctypes.string_at(address, 64) != text:
            sys.exit(f"page {page}: not what was written")
        loop.run(e.IBV_WR_RDMA_READ, SGE(source.buf + 128, 64, source.lkey), region)
        if ctypes.string_at(source.buf + 128, 64) != text:
            sys.exit(f"page {page}: not what was read")
        region.close()
    print(f"{registered} registered, {refused} refused")


main()
