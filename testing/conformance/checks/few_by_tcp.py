#!/usr/bin/env python3
"""Runs a command in a VM, and fails if TCP meanwhile has more segments than the limit.

  few_by_tcp.py LIMIT COMMAND...

The check is necessary because programs with librspreload work either way. Their data goes over
RDMA, or by TCP if that library did not notice a socket.
"""

import subprocess
import sys


def segments():
    """Returns the number of TCP segments, over IPv4 and IPv6, in and out, since the VM booted."""
    with open("/proc/net/snmp") as file:
        names, values = (line.split() for line in file if line.startswith("Tcp:"))
    counters = dict(zip(names, values))
    return int(counters["InSegs"]) + int(counters["OutSegs"])


limit, command = int(sys.argv[1]), sys.argv[2:]
before = segments()
status = subprocess.run(command).returncode
passed = segments() - before
if passed > limit:
    sys.exit(f"TCP has had {passed} segments: this did not go over RDMA")
print(f"TCP has had {passed} segments of {limit}")
sys.exit(1 if status else 0)
