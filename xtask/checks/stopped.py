#!/usr/bin/env python3
"""Has several hundred objects of vrdma0, and prints the asynchronous events of the device until it is killed. Runs in a VM."""

import sys

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr

EVENTS = {
    e.IBV_EVENT_PORT_ERR: "port error",
    e.IBV_EVENT_PORT_ACTIVE: "port active",
    e.IBV_EVENT_DEVICE_FATAL: "device fatal",
}
SETS = int(sys.argv[1])

context = d.Context(name="vrdma0")
held = []
for _ in range(SETS):
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
