#!/usr/bin/env python3
"""Tests Mooncake's Transfer Engine between two VMs, over RDMA, with peer-to-peer handshakes.

  mooncake_transfer.py serve ADDRESS PORT DEVICE
  mooncake_transfer.py connect ADDRESS PORT DEVICE OWN

The server offers memory, and sends by TCP its address and hashes of its content. The client writes
and reads that memory, and compares hashes. The lengths include those at which transfers are cut into
slices, and their neighbours.
"""

import ctypes
import hashlib
import json
import os
import random
import socket
import sys

sys.path.insert(0, "/share/wheels")

from mooncake.engine import TransferEngine

KIB = 1 << 10
SIZE = 8 << 20
LENGTHS = (1, 4 * KIB - 1, 64 * KIB, 64 * KIB + 1, 1 << 20, SIZE)
BATCH = 32
# Offset from which on clients only read the server's memory.
SERVED = SIZE


def engine(address, device):
    """Returns an engine on a device, with this address."""
    engine = TransferEngine()
    status = engine.initialize(address, "P2PHANDSHAKE", "rdma", device)
    assert status == 0, f"initialize: {status}"
    return engine


def memory(engine):
    """Returns registered memory, as a view and its address."""
    buffer = (ctypes.c_char * (2 * SIZE))()
    address = ctypes.addressof(buffer)
    status = engine.register_memory(address, 2 * SIZE)
    assert status == 0, f"register_memory: {status}"
    return memoryview(buffer).cast("B"), address


def digest(data):
    return hashlib.sha256(data).hexdigest()


def serve(address, port, device):
    server = engine(address, device)
    view, base = memory(server)
    view[SERVED:] = random.Random(1).randbytes(SIZE)
    with socket.create_server((address, port)) as listener:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as peer:
            where = {"session": f"{address}:{server.get_rpc_port()}", "base": base}
            print(json.dumps(where), file=peer, flush=True)
            for line in peer:
                offset, length = json.loads(line)
                print(json.dumps(digest(view[offset : offset + length])), file=peer, flush=True)
    assert server.unregister_memory(base) == 0


def connect(address, port, device, own):
    client = engine(own, device)
    view, base = memory(client)
    with socket.create_connection((address, port)) as connection, connection.makefile("rw") as peer:
        where = json.loads(peer.readline())
        session, remote = where["session"], where["base"]

        def held(offset, length):
            print(json.dumps([offset, length]), file=peer, flush=True)
            return json.loads(peer.readline())

        transfers = 0
        for length in LENGTHS:
            view[:length] = random.Random(length).randbytes(length)
            status = client.transfer_sync_write(session, base, remote, length)
            assert status == 0, f"a write of {length}: {status}"
            assert held(0, length) == digest(view[:length]), f"a write of {length} arrived otherwise"
            view[SIZE : SIZE + length] = bytes(length)
            status = client.transfer_sync_read(session, base + SIZE, remote + SERVED, length)
            assert status == 0, f"a read of {length}: {status}"
            assert held(SERVED, length) == digest(view[SIZE : SIZE + length]), f"a read of {length} differs"
            transfers += 2

        step = SIZE // BATCH
        offsets = [step * index for index in range(BATCH)]
        view[:SIZE] = random.Random(2).randbytes(SIZE)
        status = client.batch_transfer_sync_write(
            session, [base + offset for offset in offsets], [remote + offset for offset in offsets], [step - 3] * BATCH
        )
        assert status == 0, f"a batch: {status}"
        for offset in offsets:
            part = view[offset : offset + step - 3]
            assert held(offset, step - 3) == digest(part), f"what a batch wrote at {offset} arrived otherwise"
        transfers += BATCH

    assert client.unregister_memory(base) == 0
    print(f"{transfers} transfers are right")


if __name__ == "__main__":
    os.environ.setdefault("MC_LOG_LEVEL", "WARNING")
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        connect(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
