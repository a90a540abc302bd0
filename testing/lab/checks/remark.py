#!/usr/bin/env python3
"""A cable between two interfaces that changes the DS field of IP packets, and marks some congested.

Usage: remark.py INTERFACE INTERFACE

Other people's networks do so, too. All IP packets leave with class CS1 (RFC 2474). Each tenth
leaves with "congestion experienced" (RFC 3168), whether its sender supports ECN or not. After each
hundred packets of an interface it prints a line with their number.
"""

import select
import socket
import sys

ETH_P_ALL, PACKET_OUTGOING, SO_RCVBUFFORCE = 3, 4, 33
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
CLASS, CONGESTED, EACH = 8 << 2, 3, 10
LONGEST, ROOM = 65536, 1 << 26


def opened(interface):
    side = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    side.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
    side.bind((interface, 0))
    return side


def field(old, number):
    """Returns the new DS field of a packet with this field and this number."""
    return CLASS | (CONGESTED if number % EACH == 0 else old & 3)


def remark(frame, number):
    """Changes the DS field, and the checksum of an IPv4 header accordingly (RFC 1624).

    Returns whether the frame is an IP packet.
    """
    if frame[12:14] == IPV4:
        new = field(frame[15], number)
        total = (~int.from_bytes(frame[24:26]) & 0xFFFF) + (~frame[15] & 0xFFFF) + new
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        frame[15] = new
        frame[24:26] = (~total & 0xFFFF).to_bytes(2)
    elif frame[12:14] == IPV6:
        new = field((frame[14] << 4 | frame[15] >> 4) & 0xFF, number)
        frame[14] = frame[14] & 0xF0 | new >> 4
        frame[15] = (new & 0xF) << 4 | frame[15] & 0xF
    else:
        return False
    return True


def main():
    sides = [opened(interface) for interface in sys.argv[1:]]
    counts = [0, 0]
    print("ready", flush=True)
    while True:
        for side in select.select(sides, [], [])[0]:
            at = sides.index(side)
            data, address = side.recvfrom(LONGEST)
            if address[2] == PACKET_OUTGOING:
                continue
            frame = bytearray(data)
            if remark(frame, counts[at] + 1):
                counts[at] += 1
                if counts[at] % 100 == 0:
                    print(f"{sys.argv[1 + at]}: {counts[at]}", flush=True)
            sides[1 - at].send(frame)


main()
