#!/usr/bin/env python3
"""Recomputes the ICRC of every RoCEv2 packet of a capture with scapy, and compares it.

Usage: icrc.py FILE

Prints the number of packets of each opcode, and the first packets whose ICRC differs. Exit status 1
if there is one. Ignores packets that are not UDP to port 4791.
"""

import collections
import multiprocessing
import os
import sys

from scapy.config import conf
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.utils import RawPcapReader

PORT = 4791
SHOWN = 10


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    # Only these layers are dissected: payload may look like another protocol by chance.
    conf.layers.filter([Ether, Dot1Q, IP, IPv6, UDP, BTH])
    opcodes, bad = collections.Counter(), []
    for part in in_processes(len(os.sched_getaffinity(0)), lambda index, of: check(sys.argv[1], index, of)):
        opcodes.update(part[0])
        bad += part[1]
    names = BTH.fields_desc[0].i2s
    for opcode, count in sorted(opcodes.items()):
        print(f"{count:9} {names.get(opcode, f'opcode {opcode:#04x}')}")
    for line in sorted(bad)[:SHOWN]:
        print("packet %d: ICRC %s, scapy computes %s" % line)
    total = sum(opcodes.values())
    print(f"{total} packets, {len(bad)} with a wrong ICRC")
    sys.exit(1 if bad else 0)


def check(file, index, of):
    """Checks every `of`th packet. Returns the counts of opcodes, and the bad packets."""
    opcodes, bad = collections.Counter(), []
    for number, (data, meta) in enumerate(RawPcapReader(file), 1):
        if number % of != index:
            continue
        if meta.caplen != meta.wirelen:
            bad.append((number, "cut off", "nothing"))
            continue
        packet = Ether(data)
        if UDP not in packet or packet[UDP].dport != PORT:
            continue
        if BTH not in packet:
            bad.append((number, "missing", "nothing"))
            continue
        bth = packet[BTH]
        opcodes[bth.opcode] += 1
        found, computed = bth.icrc.to_bytes(4, "big"), bth.compute_icrc(b"")
        if found != computed:
            bad.append((number, found.hex(), computed.hex()))
    return opcodes, bad


def in_processes(count, work):
    """Runs work(0, count) to work(count - 1, count) in a process each. Yields the results."""
    # It uses pipes only: the locks of queues need /dev/shm, which a bare root lacks.
    context = multiprocessing.get_context("fork")
    ends = []
    for index in range(count):
        ours, theirs = context.Pipe(duplex=False)
        context.Process(target=lambda: theirs.send(attempt(work, index, count)), daemon=True).start()
        theirs.close()
        ends.append(ours)
    for end in ends:
        result = end.recv()
        if isinstance(result, str):
            sys.exit(result)
        yield result


def attempt(work, *arguments):
    try:
        return work(*arguments)
    except Exception as error:  # No capture, or a truncated one. The parent reports it once.
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
