#!/usr/bin/env python3
"""Tests ATOMIC WRITE from a client to a server. Runs in two VMs.

The client checks the server's memory by READ, and the server checks it itself. The server has no
argument SERVER.
"""

import argparse
import json
import socket
import struct
import sys
import time

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE

WORDS = 8
ROUNDS = 200
# The number of outstanding requests, and how many of them may be READs or atomics. ATOMIC WRITE
# counts as one of these.
DEPTH, ATOMICS = 16, 4
ALL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
# Size of the server's memory: the words, and words between them that nobody writes.
SIZE = 16 * WORDS
UNTOUCHED = b"untouch."

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-d", "--device", required=True)
parser.add_argument("-g", "--gid", type=int, required=True, help="index of the GID")
parser.add_argument("-p", "--port", type=int, required=True, help="TCP port of the server")
parser.add_argument("server", nargs="?", metavar="SERVER", help="the server's address")
options = parser.parse_args()


def value(number):
    # The value must not begin with an EtherType: tshark does not know ATOMIC WRITE, and looks for
    # one.
    return struct.pack("<II", ~number & 0xFFFFFFFF, number)


def wanted():
    """Returns the server's memory in the end, with the last value of each word."""
    last = range(ROUNDS - WORDS, ROUNDS)
    return b"".join(value(number) + UNTOUCHED for number in sorted(last, key=lambda number: number % WORDS))


context = d.Context(name=options.device)
pd = PD(context)
cq = CQ(context, 2 * DEPTH)
init = QPInitAttrEx(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, pd=pd, cap=QPCap(DEPTH, 1, 1, 1, 0),
                    send_ops_flags=e.IBV_QP_EX_WITH_ATOMIC_WRITE | e.IBV_QP_EX_WITH_RDMA_READ,
                    comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
qp = QPEx(context, init)
mr = MR(pd, SIZE, ALL)
mr.write((bytes(8) + UNTOUCHED) * WORDS, SIZE)

if options.server:
    peer = socket.create_connection((options.server, options.port))
else:
    peer = socket.create_server(("", options.port)).accept()[0]
lines = peer.makefile("rw", encoding="ascii")


def say(message):
    lines.write(json.dumps(message) + "\n")
    lines.flush()


def hear():
    return json.loads(lines.readline())


say({"qpn": qp.qp_num, "gid": context.query_gid(1, options.gid).gid, "rkey": mr.rkey, "address": mr.buf})
theirs = hear()
attr = QPAttr(port_num=1)
attr.qp_access_flags = ALL
attr.dest_qp_num = theirs["qpn"]
attr.path_mtu = e.IBV_MTU_1024
attr.max_rd_atomic = attr.max_dest_rd_atomic = ATOMICS
attr.min_rnr_timer, attr.rnr_retry, attr.retry_cnt, attr.timeout = 12, 7, 7, 18
route = GlobalRoute(dgid=GID(theirs["gid"]), sgid_index=options.gid)
attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
qp.to_rts(attr)
say("ready")
hear()


def completion():
    """Waits for the next completion, and returns its status."""
    patience = time.monotonic() + 60
    while time.monotonic() < patience:
        count, completions = cq.poll(1)
        if count:
            return completions[0].status
    sys.exit("no completion")


def expect(status, what):
    found = completion()
    if found != status:
        sys.exit(f"{what}: completion status {found}, not {status}")


def atomic_write(address, number):
    qp.wr_start()
    qp.wr_flags = e.IBV_SEND_SIGNALED
    qp.wr_atomic_write(theirs["rkey"], address, value(number))
    qp.wr_complete()


def serve():
    hear()
    found = mr.read(SIZE, 0)
    if found != wanted():
        sys.exit(f"the server has {found}")
    say("sound")
    hear()


def ask():
    for number in range(ROUNDS):
        if number >= DEPTH:
            expect(e.IBV_WC_SUCCESS, "an ATOMIC WRITE")
        atomic_write(theirs["address"] + 16 * (number % WORDS), number)
    for _ in range(DEPTH):
        expect(e.IBV_WC_SUCCESS, "an ATOMIC WRITE")
    qp.wr_start()
    qp.wr_flags = e.IBV_SEND_SIGNALED
    qp.wr_rdma_read(theirs["rkey"], theirs["address"])
    qp.wr_set_sge(SGE(mr.buf, SIZE, mr.lkey))
    qp.wr_complete()
    expect(e.IBV_WC_SUCCESS, "the READ")
    found = mr.read(SIZE, 0)
    if found != wanted():
        sys.exit(f"the client reads {found}")
    say("written")
    hear()
    # The address is no multiple of 8.
    atomic_write(theirs["address"] + 4, 0)
    expect(e.IBV_WC_REM_INV_REQ_ERR, "an ATOMIC WRITE to half a word")
    print(f"{ROUNDS} ATOMIC WRITEs are right")
    say("done")


ask() if options.server else serve()
