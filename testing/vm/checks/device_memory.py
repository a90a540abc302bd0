#!/usr/bin/env python3
"""Checks device memory of vrdma0, and objects that another process imports.

Runs in a VM.

INDEX: runs the checks. They start the other forms as processes:
import INDEX FD PD MR DM: imports the context behind a file descriptor and its objects. Writes to
the region and to the device memory.
hold: allocates as much device memory as a context may have, with a region of it. Prints `holding`,
and writes to the memory until it is killed.
"""

import errno
import mmap
import os
import subprocess
import sys
import time

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import DMMR, MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PORT = 1
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
ZERO_BASED = RIGHTS | e.IBV_ACCESS_ZERO_BASED
# Device memory of one context, and the number of contexts for which the device has memory.
MIB, CONTEXTS = 1 << 20, 16
PAGE = mmap.PAGESIZE


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


def alloc(context, length, log_align=0):
    return d.DM(context, d.AllocDmAttr(length, log_align, 0))


class Loop:
    """A QP that is connected to itself."""

    def __init__(self, context, pd, index):
        self.cq = CQ(context, 8)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(8, 8, 1, 1, 0), sq_sig_all=1)
        self.qp = QP(pd, init)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = RIGHTS
        attr.dest_qp_num = self.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.rnr_retry, attr.retry_cnt, attr.timeout = 12, 7, 7, 14
        gid = context.query_gid(port_num=PORT, index=index)
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=index), is_global=1, port_num=PORT)
        self.qp.to_rts(attr)

    def run(self, opcode, element, rkey, address):
        """Executes a request, and returns its status."""
        send = SendWR(1, opcode=opcode, sg=[element], num_sge=1)
        send.set_wr_rdma(rkey, address)
        self.qp.post_send(send)
        while not (got := self.cq.poll())[0]:
            pass
        return got[1][0].status

    def close(self):
        self.qp.close()
        self.cq.close()


def traffic(context, pd, index):
    """Checks that requests address device memory by the region's offsets, from 0 on.

    Copies see the same bytes.
    """
    dm = alloc(context, 3 * PAGE)
    same("new memory", dm.copy_from_dm(0, 3 * PAGE), bytes(3 * PAGE))
    # The region begins at an unaligned byte and ends in another page.
    region, source = DMMR(pd, PAGE + 3, ZERO_BASED, dm, PAGE - 2), MR(pd, 64, RIGHTS)
    loop = Loop(context, pd, index)
    text = b"to the first byte...to the last."
    source.write(text, 32)
    write, read = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ
    for address, start, length in [(0, 0, 20), (PAGE - 9, 20, 12)]:
        element = SGE(source.buf + start, length, source.lkey)
        same(f"a WRITE to {address}", loop.run(write, element, region.rkey, address), e.IBV_WC_SUCCESS)
    found = dm.copy_from_dm(PAGE - 4, PAGE + 8)
    same("what was written", (found[2:22], found[PAGE - 7:PAGE + 8]), (text[:20], text[20:] + bytes(3)))
    dm.copy_to_dm(PAGE, b"by the processor", 16)
    same("a READ", loop.run(read, SGE(source.buf + 32, 16, source.lkey), region.rkey, 2), e.IBV_WC_SUCCESS)
    same("what was read", source.read(16, 32), b"by the processor")
    # Device memory also serves as a local buffer.
    source.write("outwards", 8)
    other = MR(pd, 64, RIGHTS)
    same("a WRITE out of it", loop.run(write, SGE(2, 16, region.lkey), other.rkey, other.buf), e.IBV_WC_SUCCESS)
    same("what came", other.read(16, 0), b"by the processor")
    same("a WRITE past its end", loop.run(write, SGE(source.buf, 4, source.lkey), region.rkey, PAGE),
         e.IBV_WC_REM_ACCESS_ERR)
    same("its last byte, and behind it", dm.copy_from_dm(2 * PAGE, 8), text[-1:] + bytes(7))
    for thing in (loop, other, source, region, dm):
        thing.close()


def refusals(context, pd):
    for what, length, align, wanted in [
        ("no byte", 0, 0, errno.EINVAL),
        ("the alignment of a page", 1, 12, 0),
        ("twice that", 1, 13, errno.EINVAL),
        ("an odd alignment", 1, 0xffffffff, errno.EINVAL),
        ("all of it", MIB, 0, 0),
        ("one byte more", MIB + 1, 0, errno.ENOMEM),
        ("very much", 1 << 63, 0, errno.ENOMEM),
    ]:
        same(f"memory of {what}", error_of(alloc, context, length, align), wanted)
    dm = alloc(context, 100)
    for what, length, access, offset, wanted in [
        ("no byte", 0, ZERO_BASED, 100, 0),
        ("all", 100, ZERO_BASED, 0, 0),
        ("a byte too many", 100, ZERO_BASED, 1, errno.EINVAL),
        ("an offset that wraps", 2, ZERO_BASED, (1 << 64) - 1, errno.EINVAL),
        ("addresses of the process", 100, RIGHTS, 0, errno.EINVAL),
        ("memory windows", 100, ZERO_BASED | e.IBV_ACCESS_MW_BIND, 0, 0),
        ("remote write alone", 100, e.IBV_ACCESS_ZERO_BASED | e.IBV_ACCESS_REMOTE_WRITE, 0, errno.EINVAL),
    ]:
        same(f"a region with {what}", error_of(DMMR, pd, length, access, dm, offset), wanted)
    dm.close()


def limits(context):
    """Checks the limit of a context, in whole pages, and the limit of the device."""
    small = alloc(context, 1)
    same("more than is left", error_of(alloc, context, MIB), errno.ENOMEM)
    rest = alloc(context, MIB - PAGE)
    same("another page", error_of(alloc, context, 1), errno.ENOMEM)
    rest.close()
    small.close()
    contexts = [context] + [d.Context(name="vrdma0") for _ in range(CONTEXTS)]
    held = [alloc(each, MIB) for each in contexts[:-1]]
    same("more than the device has", error_of(alloc, contexts[-1], 1), errno.ENOMEM)
    held.pop().close()
    same("the first that is free", error_of(alloc, contexts[-1], MIB), 0)
    for thing in held + contexts[1:]:
        thing.close()


def mapped_by_a_child(context):
    """Checks memory that is freed while a process maps it.

    It still counts, and stays with that process.
    """
    dm = alloc(context, MIB)
    ready, go_on = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        dm.copy_to_dm(0, b"mine", 4)
        os._exit(0 if dm.copy_from_dm(0, 8) == b"mine" + bytes(4) else 1)
    os.read(ready[0], 1)
    dm.close()
    same("memory that a child maps", error_of(alloc, context, MIB), errno.ENOMEM)
    os.write(go_on[1], b"x")
    same("the child", os.waitpid(child, 0)[1], 0)
    same("once the child is gone", error_of(alloc, context, MIB), 0)


def imports(context, pd, index):
    """Writes in another process, which has no channel, with objects that it imports."""
    dm, mr = alloc(context, 100), MR(pd, 64, ZERO_BASED)
    fd = os.dup(context.cmd_fd)
    numbers = [str(number) for number in (index, fd, pd.handle, mr.handle, dm.handle)]
    subprocess.run([sys.executable, "-B", __file__, "import", *numbers], check=True, pass_fds=[fd])
    os.close(fd)
    same("what the import wrote", (mr.read(8, 0), dm.copy_from_dm(0, 8)), (b"imported", b"copied.."))
    # The other process unimported its objects, so they still exist here.
    same("a region of its memory", error_of(DMMR, pd, 100, ZERO_BASED, dm, 0), 0)
    for thing in (mr, dm):
        thing.close()


def run_import(index, fd, pd_handle, mr_handle, dm_handle):
    context = d.Context(cmd_fd=fd)
    for what, imported in [("PD", lambda: PD(context, handle=0xffff)), ("memory", lambda: d.DM(context, handle=0xffff))]:
        same(f"a {what} that is not", error_of(imported), errno.ENOENT)
    pd = PD(context, handle=pd_handle)
    same("a region that is not", error_of(lambda: MR(pd, handle=0xffff)), errno.ENOENT)
    mr, dm = MR(pd, handle=mr_handle), d.DM(context, handle=dm_handle)
    own = MR(pd, 64, RIGHTS)
    own.write("imported", 8)
    loop = Loop(context, pd, index)
    same("a WRITE of an import", loop.run(e.IBV_WR_RDMA_WRITE, SGE(own.buf, 8, own.lkey), mr.rkey, 0), e.IBV_WC_SUCCESS)
    dm.copy_to_dm(0, b"copied..", 8)
    loop.close()
    own.close()
    dm.unimport()
    mr.unimport()
    pd.unimport()
    context.close()


def hold():
    context = d.Context(name="vrdma0")
    pd, dm = PD(context), alloc(context, MIB)
    region = DMMR(pd, MIB, ZERO_BASED, dm, 0)
    print("holding", region.rkey, flush=True)
    while True:
        # The driver may be removed meanwhile.
        dm.copy_to_dm(0, b"held", 4)
        time.sleep(0.01)


def killed(times):
    """Kills processes that have device memory. Afterwards all of the memory is free again."""
    for _ in range(times):
        command = [sys.executable, "-B", __file__, "hold"]
        held = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
        for process in held:
            same("a process with memory", process.stdout.readline()[:7], b"holding")
        for process in held:
            process.kill()
            process.wait()


def available():
    """Returns the bytes of memory that are available in the VM."""
    with open("/proc/meminfo", encoding="ascii") as file:
        [line] = [line for line in file if line.startswith("MemAvailable:")]
    return 1024 * int(line.split()[1])


def given_back(context, pd):
    """Checks that pages are freed, and that new memory contains nothing of earlier memory."""
    before = available()
    for number in range(128):
        dm = alloc(context, MIB)
        region = DMMR(pd, MIB, ZERO_BASED, dm, 0)
        same("new memory", dm.copy_from_dm(MIB - 8, 8), bytes(8))
        dm.copy_to_dm(MIB - 8, b"%8d" % number, 8)
        region.close()
        dm.close()
    lost = before - available()
    if lost > 48 * MIB:
        sys.exit(f"{lost} bytes of 128 MiB are lost")


def main(index):
    context = d.Context(name="vrdma0")
    pd = PD(context)
    same("max_dm_size", context.query_device_ex().max_dm_size, MIB)
    traffic(context, pd, index)
    refusals(context, pd)
    mapped_by_a_child(context)
    imports(context, pd, index)
    killed(4)
    given_back(context, pd)
    # This comes last, because it would miss any memory that the other checks left allocated.
    limits(context)
    print("device memory and imports are right")


if sys.argv[1] == "import":
    run_import(*map(int, sys.argv[2:]))
elif sys.argv[1] == "hold":
    hold()
else:
    main(int(sys.argv[1]))
