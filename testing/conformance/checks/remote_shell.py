#!/usr/bin/env python3
"""A shell in another VM, for launchers of MPI, which want a program that is called as rsh is.

remote_shell.py --serve PORT: runs the commands that come to this TCP port.
remote_shell.py [OPTION]... HOST COMMAND...: has the one on that host, whose port is $REMOTE_SHELL_PORT, run a command, and prints what
that prints. Options are those of rsh, and ignored.
"""

import json
import os
import socket
import subprocess
import sys


def serve(port):
    listener = socket.create_server(("", port))
    running = []
    while True:
        connection, _ = listener.accept()
        with connection:
            command = json.loads(connection.makefile().readline())
            # The command has the connection then, which ends with it.
            shell = subprocess.Popen(
                ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=connection, stderr=connection
            )
        running = [one for one in [*running, shell] if one.poll() is None]


def ask(host, command):
    with socket.create_connection((host, int(os.environ["REMOTE_SHELL_PORT"]))) as connection:
        connection.sendall(json.dumps(command).encode() + b"\n")
        while said := connection.recv(65536):
            sys.stdout.buffer.write(said)
            sys.stdout.flush()


arguments = sys.argv[1:]
if arguments[0] == "--serve":
    serve(int(arguments[1]))
while arguments[0].startswith("-"):
    arguments.pop(0)
ask(arguments[0], " ".join(arguments[1:]))
