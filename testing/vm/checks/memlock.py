#!/usr/bin/env python3
"""Checks what a user with a small limit of locked memory gets.

Objects up to the limit can be created. Beyond it, calls return ENOMEM. All memory is given back.

Runs in a VM as a user without privileges, under `ulimit -l 256` (KiB).
"""

import errno
import mmap
import resource
import sys

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError

ROUNDS = 200
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE


def same(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


def pinned():
    """Returns the pinned memory of this process in KiB (VmPin of proc_pid_status(5))."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmPin:"))


def errno_of(function, *arguments):
    try:
        function(*arguments).close()
        return 0
    except PyverbsRDMAError as error:
        return error.error_code


def main():
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    same("the limit", limit, 256 << 10)
    context = d.Context(name="vrdma0")
    pd = PD(context)
    before = pinned()
    for entries in (8, 64, 512, 4096) * 10:
        code = errno_of(CQ, context, entries)
        if code not in (0, errno.ENOMEM):
            sys.exit(f"a CQ of {entries}: errno {code}")
    same("pinned after CQs that are gone", pinned(), before)
    for round in range(ROUNDS):
        same("a region of more than the limit", errno_of(MR, pd, limit + mmap.PAGESIZE, RIGHTS), errno.ENOMEM)
        same("a small region", errno_of(MR, pd, 16 << 10, RIGHTS), 0)
        same(f"pinned in round {round}", pinned(), before)
    region = MR(pd, 16 << 10, RIGHTS)
    region.write(b"still here", 10)
    held = pinned()
    others = []
    code = 0
    while code == 0 and len(others) < 1000:
        try:
            others.append(MR(pd, 16 << 10, RIGHTS))
        except PyverbsRDMAError as error:
            code = error.error_code
    same("the region that is too many", code, errno.ENOMEM)
    for other in others:
        other.close()
    same("pinned after the others are gone", pinned(), held)
    same("what was written", bytes(region.read(10, 0)), b"still here")
    region.close()
    same("pinned in the end", pinned(), before)
    print("ok")


main()
