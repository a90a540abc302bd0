#!/usr/bin/env python3
"""Ends QPs that share a receive queue.

Runs in a VM. Its argument is the index of the GID.

Each QP that enters ERR gets exactly one LAST_WQE_REACHED, whatever ended it. No receive of the
queue is lost.
"""

import sys

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqInitAttr, SrqAttr
from pyverbs.wr import SGE, RecvWR, SendWR

RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
PORT = 1
DEPTH = 64


def same(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


class Lab:
    def __init__(self, index):
        self.index = index
        self.context = d.Context(name="vrdma0")
        self.gid = self.context.query_gid(port_num=PORT, index=index)
        self.pd = PD(self.context)
        self.memory = MR(self.pd, 4096, RIGHTS)
        self.cq = CQ(self.context, 1024)
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=DEPTH, max_sge=1)))
        self.posted = 0
        self.fill(DEPTH)

    def element(self, length=64):
        return SGE(self.memory.buf, length, self.memory.lkey)

    def fill(self, count):
        for _ in range(count):
            self.srq.post_recv(RecvWR(num_sge=1, sg=[self.element()]))

    def qp(self, shared):
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(16, 0 if shared else 16, 1, 1, 0),
                          sq_sig_all=1, srq=self.srq if shared else None)
        return QP(self.pd, init)

    def attr(self, peer):
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = RIGHTS
        attr.dest_qp_num = peer.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.rnr_retry, attr.retry_cnt, attr.timeout = 12, 1, 7, 18
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=self.gid, sgid_index=self.index), is_global=1, port_num=PORT)
        return attr

    def pair(self):
        """Returns a QP with the shared queue, and its peer, which does not use that queue."""
        mine, peer = self.qp(True), self.qp(False)
        mine.to_rts(self.attr(peer))
        peer.to_rts(self.attr(mine))
        return mine, peer

    def polled(self, count):
        """Returns the statuses of `count` completions, with the numbers of their QPs."""
        found = []
        while len(found) < count:
            got, completions = self.cq.poll()
            found += [(wc.qp_num, wc.status) for wc in completions[:got]]
        return found

    def nothing_polled(self, what):
        got, completions = self.cq.poll()
        if got:
            sys.exit(f"{what}: a completion more, {completions[0].status} of QP {completions[0].qp_num}")

    def event(self):
        """Returns the type of the next asynchronous event.

        If none comes, the caller ends this program.
        """
        event = self.context.get_async_event()
        kind = event.event_type
        event.ack()
        return kind

    def expect_last(self, what):
        same(f"{what}: the event", self.event(), e.IBV_EVENT_QP_LAST_WQE_REACHED)


def to_error(qp):
    qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)


def beacon(lab, qp, what):
    """Checks that a send that is posted in ERR is flushed."""
    qp.post_send(SendWR(7, opcode=e.IBV_WR_SEND, sg=[lab.element()], num_sge=1))
    same(f"{what}: a send in ERR", lab.polled(1), [(qp.qp_num, e.IBV_WC_WR_FLUSH_ERR)])


def count_receives(lab):
    """Uses all receives of the queue, and posts them again. None may be missing."""
    mine, peer = lab.pair()
    for _ in range(DEPTH):
        peer.post_send(SendWR(1, opcode=e.IBV_WR_SEND, sg=[lab.element(8)], num_sge=1))
        statuses = {status for _, status in lab.polled(2)}
        same("a SEND into the shared queue", statuses, {e.IBV_WC_SUCCESS})
    to_error(mine)
    lab.expect_last("the counting QP")
    for qp in (mine, peer):
        qp.close()
    lab.fill(DEPTH)


def main():
    lab = Lab(int(sys.argv[1]))

    def nothing_outstanding():
        mine, peer = lab.pair()
        to_error(mine)
        return mine, peer

    def after_traffic():
        mine, peer = lab.pair()
        peer.post_send(SendWR(1, opcode=e.IBV_WR_SEND, sg=[lab.element(8)], num_sge=1))
        lab.polled(2)
        lab.fill(1)
        to_error(mine)
        return mine, peer

    def remote_access_error():
        mine, peer = lab.pair()
        write = SendWR(1, opcode=e.IBV_WR_RDMA_WRITE, sg=[lab.element(8)], num_sge=1)
        write.set_wr_rdma(0xdead, 0)
        peer.post_send(write)
        same("a WRITE without a key", lab.polled(1), [(peer.qp_num, e.IBV_WC_REM_ACCESS_ERR)])
        return mine, peer

    def own_request():
        mine, peer = lab.pair()
        write = SendWR(1, opcode=e.IBV_WR_RDMA_WRITE, sg=[lab.element(8)], num_sge=1)
        write.set_wr_rdma(0xdead, 0)
        mine.post_send(write)
        same("its own WRITE without a key", lab.polled(1), [(mine.qp_num, e.IBV_WC_REM_ACCESS_ERR)])
        return mine, peer

    def never_connected():
        mine = lab.qp(True)
        mine.to_init(lab.attr(mine))
        to_error(mine)
        return mine, None

    def twice():
        mine, peer = nothing_outstanding()
        to_error(mine)
        return mine, peer

    for end in (nothing_outstanding, after_traffic, remote_access_error, own_request, never_connected, twice):
        what = end.__name__.replace("_", " ")
        mine, peer = end()
        lab.expect_last(what)
        beacon(lab, mine, what)
        mine.close()
        if peer is not None:
            peer.close()
        lab.nothing_polled(what)
        count_receives(lab)
        print(what, "ok")
    # Each QP gets exactly one event. A second event of an earlier QP would come before this one.
    mine, peer = lab.pair()
    to_error(mine)
    lab.expect_last("the last QP")
    print("ok")


main()
