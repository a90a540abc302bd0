#!/usr/bin/env python3
"""One end of a live migration of QEMU over RDMA.

Runs in a VM. QEMU is in /tmp/qemu.

Usage: migrate.py incoming ADDRESS [KEY=VALUE...]
       migrate.py source ADDRESS MODE [KEY=VALUE...]

The source's machine changes its memory while it is migrated. If MODE is `whole`, the migration
completes. If MODE is `cancel`, it is cancelled, and the machine continues here. An end whose
machine has stopped prints the checksum of its memory in the last line. KEY=VALUE sets a capability
of migration, e.g. rdma-pin-all=1.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time

HOME, MIB = "/tmp/qemu", 32
PORT = 4444
MONITOR = "/tmp/migrate.monitor"
# A 16-bit boot sector that adds 1 to each byte from 64 KiB to 512 KiB, forever:
# cli; mov ax, 0x1000; begin: mov ds, ax; xor bx, bx; each: inc byte [bx]; inc bx; jnz each;
# add ax, 0x1000; cmp ax, 0x8000; jb begin; mov ax, 0x1000; jmp begin
FIRST, LAST = 0x10000, 0x7FFFF
SECTOR = bytes.fromhex("fa b80010 8ed8 31db fe07 43 75fb 050010 3d0080 72ef b80010 ebea".replace(" ", ""))


class Machine:
    def __init__(self, more):
        for name in (MONITOR, "/tmp/migrate.memory"):
            if os.path.exists(name):
                os.remove(name)
        with open("/tmp/migrate.disk", "wb") as file:
            file.write(SECTOR.ljust(510, b"\0") + b"\x55\xaa" + bytes(1 << 20))
        command = [f"{HOME}/qemu-system-x86_64", "-L", HOME, "-nodefaults", "-no-user-config", "-display", "none",
                   "-accel", "tcg", "-machine", "pc", "-m", str(MIB), "-qmp", f"unix:{MONITOR},server=on,wait=off",
                   "-drive", "if=floppy,format=raw,file=/tmp/migrate.disk", "-boot", "a", *more]
        # Other libraries are those of QEMU's distribution, but libraries of verbs are this VM's.
        self.process = subprocess.Popen(command, env={**os.environ, "LD_LIBRARY_PATH": f"{HOME}/lib"})
        link = socket.socket(socket.AF_UNIX)
        while True:
            try:
                link.connect(MONITOR)
                break
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"QEMU ended with {self.process.returncode}")
                time.sleep(0.1)
        self.file = link.makefile("rw")
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        print(json.dumps({"execute": command, "arguments": arguments}), file=self.file, flush=True)
        while True:
            answer = json.loads(self.file.readline())
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                sys.exit(f"{command}: {answer['error']['desc']}")

    def switch(self, words):
        for word in words:
            name, value = word.split("=")
            self.ask("migrate-set-capabilities", capabilities=[{"capability": name, "state": value == "1"}])

    def expect(self, *wanted):
        """Waits until a migration has one of these states.

        If none comes, the caller ends this program.
        """
        while (found := self.ask("query-migrate")).get("status") not in wanted:
            if found.get("status") == "failed":
                sys.exit(f"the migration failed: {found}")
            time.sleep(0.1)
        return found

    def memory(self, start, size):
        self.ask("pmemsave", val=start, size=size, filename="/tmp/migrate.memory")
        with open("/tmp/migrate.memory", "rb") as file:
            return file.read()

    def wait_for_work(self):
        """Waits until the boot sector has changed its first byte and its last byte.

        If it never does, the caller ends this program.
        """
        before = self.memory(FIRST, LAST + 1 - FIRST)
        while (now := self.memory(FIRST, LAST + 1 - FIRST))[0] == before[0] or now[-1] == before[-1]:
            time.sleep(0.1)

    def finish(self):
        """Prints the status and the checksum of the memory of a stopped machine, and ends it."""
        memory = self.memory(0, MIB << 20)
        if memory.count(0) == len(memory):
            sys.exit("all memory is zero")
        print("status", self.ask("query-status")["status"])
        print("sum", hashlib.sha256(memory).hexdigest(), flush=True)
        self.ask("quit")
        self.process.wait()


def main():
    role, address, *words = sys.argv[1:]
    if role == "incoming":
        machine = Machine(["-S", "-incoming", "defer"])
        machine.switch(words)
        machine.ask("migrate-incoming", uri=f"rdma:{address}:{PORT}")
        print("listening", flush=True)
        machine.expect("completed")
        machine.finish()
        return
    mode, *words = words
    machine = Machine([])
    machine.switch(words)
    machine.wait_for_work()
    machine.ask("migrate", uri=f"rdma:{address}:{PORT}")
    if mode == "cancel":
        machine.expect("setup", "active")
        machine.ask("migrate_cancel")
        machine.expect("cancelled")
        print("status", machine.ask("query-status")["status"], flush=True)
        machine.ask("quit")
        machine.process.wait()
        return
    found = machine.expect("completed")
    print("total time", found.get("total-time"), "ms, transferred", found.get("ram", {}).get("transferred"))
    machine.finish()


main()
