#!/usr/bin/env python3
"""Creates objects of vrdma0, and prints `holding`. Its backend is then stopped.

Runs in a VM.

hold SETS: creates SETS objects of each kind. Prints the device's asynchronous events until it is
killed.
register: creates one region, and registers memory at each SIGUSR1. Prints the results. Fails if a
refused registration pinned memory.
"""

import ctypes
import errno
import mmap
import signal
import sys

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr

EVENTS = {
    e.IBV_EVENT_PORT_ERR: "port error",
    e.IBV_EVENT_PORT_ACTIVE: "port active",
    e.IBV_EVENT_DEVICE_FATAL: "device fatal",
}
# The size of a registration in bytes, and the number of attempts for each signal.
LENGTH = 16 << 20
TRIES = 4


def hold(context, sets):
    held = []
    for _ in range(sets):
        pd = PD(context)
        mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
        cq = CQ(context, 8)
        qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(1, 1, 1, 1, 0)))
        held.append((pd, mr, cq, qp))
    print("holding", flush=True)
    while True:
        event = context.get_async_event()
        event.ack()
        print(EVENTS.get(event.event_type, f"event {event.event_type}"), flush=True)


def pinned_and_resident():
    """Returns the pinned and the resident bytes of this process. Pages stay resident after a pin."""
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return [1024 * int(fields[name].split()[0]) for name in ("VmPin", "VmRSS")]


def try_to_register(pd):
    """Registers memory that nobody has touched, and returns the result."""
    room = mmap.mmap(-1, LENGTH, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    pinned, resident = pinned_and_resident()
    try:
        mr = MR(pd, LENGTH, e.IBV_ACCESS_LOCAL_WRITE, address=address)
    except PyverbsRDMAError as error:
        if error.error_code != errno.EIO:
            sys.exit(f"refused with {error}")
        now = pinned_and_resident()
        if now[0] != pinned or now[1] > resident + LENGTH // 2:
            sys.exit(f"refused; {pinned}, {resident} bytes pinned and resident before, {now} now")
        return "refused, nothing pinned"
    if pinned_and_resident()[0] != pinned + LENGTH:
        sys.exit(f"registered; {pinned} bytes pinned before, {pinned_and_resident()[0]} now")
    mr.close()
    return "registered"


def register(context):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    pd = PD(context)
    held = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
    print("holding", flush=True)
    times = 0
    while held:
        signal.sigwait([signal.SIGUSR1])
        times += 1
        results = {try_to_register(pd) for _ in range(TRIES)}
        print(f"{times}: {' and '.join(results)}", flush=True)


if sys.argv[1] == "hold":
    hold(d.Context(name="vrdma0"), int(sys.argv[2]))
else:
    register(d.Context(name="vrdma0"))
