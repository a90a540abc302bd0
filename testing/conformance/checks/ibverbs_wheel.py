#!/usr/bin/env python3
"""Tests PyPI's `ibverbs` between two VMs.

It tests messages, one-sided operations, atomics, datagrams, a shared receive queue, and events.

  ibverbs_wheel.py serve ADDRESS PORT DEVICE GID
  ibverbs_wheel.py connect ADDRESS PORT DEVICE GID

Both ends exchange QP numbers, addresses and keys over TCP. The client checks all data that arrives
at either end.
"""

import ctypes
import json
import random
import select
import socket
import sys

sys.path.insert(0, "/share/wheels")

import ibverbs as ib

PORT = 1
SIZE = 1 << 20
GRH = 40
QKEY = 0x11111111
RECEIVES = 16
# The offset of each test's data in each end's memory.
MESSAGES, ONE_SIDED, WORDS, DATAGRAMS = (index * SIZE for index in range(4))
ACCESS = (
    ib.AccessFlags.LOCAL_WRITE
    | ib.AccessFlags.REMOTE_WRITE
    | ib.AccessFlags.REMOTE_READ
    | ib.AccessFlags.REMOTE_ATOMIC
)


class End:
    """An end: a connected QP with a shared receive queue, a UD QP, and memory."""

    def __init__(self, device, gid_index):
        self.gid_index = gid_index
        (found,) = [each for each in ib.get_device_list() if each.name == device]
        self.context = found.open()
        self.pd = self.context.alloc_pd()
        self.channel = self.context.create_comp_channel()
        self.cq = self.context.create_cq(256, channel=self.channel)
        self.srq = self.pd.create_srq(max_wr=RECEIVES)
        self.rc = self.pd.create_qp(ib.QPInitAttr(send_cq=self.cq, recv_cq=self.cq, qp_type=ib.QPType.RC, srq=self.srq))
        self.ud = self.pd.create_qp(ib.QPInitAttr(send_cq=self.cq, recv_cq=self.cq, qp_type=ib.QPType.UD))
        self.buffer = (ctypes.c_char * (4 * SIZE))()
        self.view = memoryview(self.buffer).cast("B")
        self.mr = self.pd.reg_mr(ctypes.addressof(self.buffer), 4 * SIZE, ACCESS)

    def info(self):
        """Returns what the peer has to know."""
        port, gid = self.context.query_port(PORT), self.context.query_gid(PORT, self.gid_index)
        local = ib.local_qp_info(self.rc, port, gid, port=PORT, psn=5)
        return {"rc": local.to_bytes().hex(), "ud": self.ud.qp_num, "addr": self.mr.addr, "rkey": self.mr.rkey}

    def connect(self, peer):
        """Moves both QPs to RTS."""
        remote = ib.QPInfo.from_bytes(bytes.fromhex(peer["rc"]))
        ib.connect_rc(self.rc, remote, port=PORT, sgid_index=self.gid_index, access=ACCESS, local_psn=5, timeout=20)
        self.ud.to_init(PORT, qkey=QKEY)
        self.ud.to_rtr(remote, sgid_index=self.gid_index)
        self.ud.to_rts(0)
        attr = ib.AHAttr(dgid=remote.gid, sgid_index=self.gid_index, port_num=PORT, hop_limit=64)
        self.ah = self.pd.create_ah(attr)

    def completion(self):
        """Waits for the next completion, by an event, and returns it."""
        while True:
            completions = self.cq.poll(1)
            if completions:
                completions[0].raise_for_status()
                return completions[0]
            self.cq.req_notify()
            # A completion may have come before the CQ was armed.
            completions = self.cq.poll(1)
            if completions:
                completions[0].raise_for_status()
                return completions[0]
            readable, _, _ = select.select([self.channel.fd], [], [], 60)
            assert readable, "no completion came within a minute"
            self.channel.get_cq_event()
            self.cq.ack_events()

    def send(self, request):
        """Posts a request and waits for its completion."""
        request.send_flags |= ib.SendFlags.SIGNALED
        self.rc.post_send(request)
        return self.completion()

    def close(self):
        for each in (self.ah, self.rc, self.ud, self.srq, self.mr, self.cq, self.channel, self.pd, self.context):
            each.close()


def receive(end, offset, length):
    return ib.RecvWR(wr_id=offset, sg_list=[end.mr.sge(length, offset)])


def say(peer, what):
    print(json.dumps(what), file=peer, flush=True)


def serve(address, port, device, gid_index):
    end = End(device, gid_index)
    with socket.create_server((address, port)) as listener:
        connection, _ = listener.accept()
    with connection, connection.makefile("rw") as peer:
        other = json.loads(peer.readline())
        end.connect(other)
        slot = SIZE // RECEIVES
        for index in range(RECEIVES):
            end.srq.post_recv(receive(end, MESSAGES + index * slot, slot))
            end.ud.post_recv(receive(end, DATAGRAMS + index * slot, slot))
        end.view[ONE_SIDED : ONE_SIDED + SIZE] = random.Random(1).randbytes(SIZE)
        say(peer, end.info())
        for line in peer:
            match json.loads(line):
                case ["next"]:
                    got = end.completion()
                    say(peer, [got.wr_id, got.byte_len, int(got.wc_flags), got.imm_data])
                case ["held", offset, length]:
                    say(peer, end.view[offset : offset + length].hex())
    end.close()


def connect(address, port, device, gid_index):
    end = End(device, gid_index)
    with socket.create_connection((address, port)) as connection, connection.makefile("rw") as peer:
        say(peer, end.info())
        other = json.loads(peer.readline())
        end.connect(other)

        def ask(*what):
            say(peer, what)
            return json.loads(peer.readline())

        def remote(offset):
            return {"remote_addr": other["addr"] + offset, "rkey": other["rkey"]}

        def held(offset, length):
            return bytes.fromhex(ask("held", offset, length))

        done = 0
        for length in (0, 1, 4097, SIZE // RECEIVES):
            end.view[:length] = random.Random(length).randbytes(length)
            data = [end.mr.sge(length, 0)] if length else []
            end.send(ib.SendWR(sg_list=data, opcode=ib.WROpcode.SEND_WITH_IMM, imm_data=length))
            place, received, flags, immediate = ask("next")
            assert (received, immediate) == (length, length), (received, immediate)
            assert flags == ib.WCFlags.WITH_IMM, flags
            assert held(place, length) == bytes(end.view[:length]), f"a message of {length} arrived otherwise"
            done += 1

        end.view[:SIZE] = random.Random(2).randbytes(SIZE)
        end.send(ib.SendWR(sg_list=[end.mr.sge(SIZE, 0)], opcode=ib.WROpcode.RDMA_READ, **remote(ONE_SIDED)))
        assert bytes(end.view[:SIZE]) == random.Random(1).randbytes(SIZE), "a READ brought something else"
        end.view[:SIZE] = random.Random(2).randbytes(SIZE)
        parts = [end.mr.sge(SIZE - 7, 0)]
        end.send(ib.SendWR(sg_list=parts, opcode=ib.WROpcode.RDMA_WRITE, **remote(ONE_SIDED)))
        assert held(ONE_SIDED, SIZE - 7) == bytes(end.view[: SIZE - 7]), "a WRITE arrived otherwise"
        request = ib.SendWR(opcode=ib.WROpcode.RDMA_WRITE_WITH_IMM, imm_data=9, **remote(ONE_SIDED))
        request.sg_list = [end.mr.sge(3, 0)]
        end.send(request)
        assert ask("next")[1:] == [3, int(ib.WCFlags.WITH_IMM), 9]
        done += 3

        word = [end.mr.sge(8, WORDS)]
        for expected in range(3):
            add = {"sg_list": word, "opcode": ib.WROpcode.ATOMIC_FETCH_AND_ADD, "compare_add": 1}
            end.send(ib.SendWR(**add, **remote(WORDS)))
            assert int.from_bytes(end.view[WORDS : WORDS + 8], sys.byteorder) == expected
        swap = {"sg_list": word, "opcode": ib.WROpcode.ATOMIC_CMP_AND_SWP, "compare_add": 3, "swap": 1 << 40}
        end.send(ib.SendWR(**swap, **remote(WORDS)))
        assert int.from_bytes(held(WORDS, 8), sys.byteorder) == 1 << 40
        done += 4

        for length in (1, 1000):
            end.view[:length] = random.Random(length).randbytes(length)
            datagram = {"ah": end.ah, "remote_qpn": other["ud"], "remote_qkey": QKEY}
            request = ib.SendWR(sg_list=[end.mr.sge(length, 0)], opcode=ib.WROpcode.SEND, **datagram)
            request.send_flags = ib.SendFlags.SIGNALED
            end.ud.post_send(request)
            end.completion()
            place, received, flags, _ = ask("next")
            assert (received, flags) == (GRH + length, int(ib.WCFlags.GRH)), (received, flags)
            assert held(place + GRH, length) == bytes(end.view[:length]), "a datagram arrived otherwise"
            done += 1

        # A wrong rkey moves the QP to ERR, with a completion status that says why.
        wrong = remote(ONE_SIDED) | {"rkey": other["rkey"] ^ 0x100}
        try:
            end.send(ib.SendWR(sg_list=[end.mr.sge(8, 0)], opcode=ib.WROpcode.RDMA_WRITE, **wrong))
        except ib.CompletionError as error:
            assert "remote access" in str(error).lower() or "REM_ACCESS" in str(error), error
        else:
            raise AssertionError("a WRITE with a wrong key succeeded")
        assert end.rc.state == ib.QPState.ERR
    end.close()
    print(f"{done} operations are right")


if __name__ == "__main__":
    action, address, port, device, gid = sys.argv[1:]
    {"serve": serve, "connect": connect}[action](address, int(port), device, int(gid))
