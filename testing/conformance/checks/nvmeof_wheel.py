#!/usr/bin/env python3
"""Tests PyPI's `nvmeof` with the kernel's target in the other VM.

`nvmeof` is an initiator of NVMe over Fabrics in user space.

  nvmeof_wheel.py ADDRESS SUBSYSTEM OWN

Writes blocks, reads them and compares. A new controller then checks that the disk still has the
data, and repeats the test.
"""

import random
import sys

sys.path.insert(0, "/share/wheels")

import nvmeof

BLOCKS = 1024
ROUNDS = 3


def main(address, subsystem, own):
    compared = 0
    before = None
    for seed in range(ROUNDS):
        with nvmeof.Controller.connect(address, subsystem, source=own) as controller:
            disk = controller.namespace(1)
            size = BLOCKS * disk.lba_size
            with controller.allocate(size) as buffer:
                if before is not None:
                    disk.read(buffer, slba=0, blocks=BLOCKS)
                    assert buffer.read() == before, "the disk does not hold what the controller before wrote"
                before = random.Random(seed).randbytes(size)
                buffer.write(before)
                disk.write(buffer, slba=0, blocks=BLOCKS)
                disk.flush()
                buffer.write(bytes(size))
                for first, blocks in ((0, BLOCKS), (1, 1), (7, 255)):
                    disk.read(buffer, slba=first, blocks=blocks)
                    part = before[first * disk.lba_size :][: blocks * disk.lba_size]
                    assert buffer.read(len(part)) == part, f"{blocks} blocks from {first} on differ"
                    compared += blocks
    print(f"{compared} blocks are right")


if __name__ == "__main__":
    main(*sys.argv[1:])
