#!/usr/bin/env python3
"""Sends forged RoCEv2 packets, from a third host on the wire of two hosts that are connected.

Usage: forge.py INTERFACE VICTIM_MAC VICTIM_IP PEER_MAC PEER_IP QPN COUNT

The victim's QP is connected to the peer's. COUNT packets of each kind are sent:

source   right QPN, from an address that belongs to nobody
psn      as if from the peer, with random PSNs
icrc     as if from the peer, with a wrong ICRC
qpn      as if from the peer, to a QP that does not exist
own      from the victim's own IP address
gid      to the victim's MAC, for an IP address that the victim does not have
"""

import random
import sys

from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.sendrecv import sendp

SEND_ONLY, WRITE_ONLY, READ_REQUEST, ACKNOWLEDGE = 0x04, 0x0A, 0x0C, 0x11
STRANGER = ("52:54:00:77:00:99", "10.77.0.99")


def main():
    interface, victim_mac, victim, peer_mac, peer, qpn, count = sys.argv[1:]
    qpn, count = int(qpn), int(count)
    rng = random.Random(1)

    def packet(src=peer, dst=victim, mac=peer_mac, dqpn=qpn, opcode=None, **bth):
        opcode = opcode or rng.choice([SEND_ONLY, WRITE_ONLY, READ_REQUEST, ACKNOWLEDGE])
        body = {
            SEND_ONLY: lambda: Raw(rng.randbytes(64)),
            WRITE_ONLY: lambda: Raw(rng.randbytes(8 + 4) + (64).to_bytes(4, "big") + rng.randbytes(64)),
            READ_REQUEST: lambda: Raw(rng.randbytes(8 + 4) + (4096).to_bytes(4, "big")),
            ACKNOWLEDGE: lambda: AETH(syndrome=rng.choice([0x1F, 0x60, 0x62]), msn=rng.getrandbits(24)),
        }[opcode]()
        bth = {"opcode": opcode, "dqpn": dqpn, "psn": rng.getrandbits(24), "ackreq": 1, **bth}
        frame = Ether(src=mac, dst=victim_mac) / IP(src=src, dst=dst, flags="DF")
        return frame / UDP(sport=rng.randrange(0xC000, 0x10000), dport=4791, chksum=0) / BTH(**bth) / body

    packets = []
    for _ in range(count):
        packets += [
            packet(src=STRANGER[1], mac=STRANGER[0]),
            packet(opcode=SEND_ONLY),
            packet(icrc=rng.getrandbits(32)),
            packet(dqpn=qpn ^ 0x5A5A5A),
            packet(src=victim, mac=STRANGER[0]),
            packet(dst="10.77.0.77", src=STRANGER[1], mac=STRANGER[0]),
        ]
    sendp(packets, iface=interface, verbose=False)
    print(f"{len(packets)} packets sent")


if __name__ == "__main__":
    main()
