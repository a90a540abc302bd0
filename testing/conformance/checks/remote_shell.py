#!/usr/bin/env python3
"""A shell in another VM, for MPI launchers, which need a program with the arguments of rsh.

  remote_shell.py --serve PORT
  remote_shell.py [OPTION]... HOST COMMAND...

The server runs the commands that arrive at this TCP port. The client sends a command to the server
on HOST, at port $REMOTE_SHELL_PORT, and prints the command's output. Options are those of rsh, and
ignored.
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
            # The command inherits the connection, which closes when it ends.
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
