#!/usr/bin/env python3
"""Runs TCP programs on SMC-R sockets, which carry data by RDMA or fall back to TCP.

Runs in two VMs.

serve ADDRESS: sends back what it receives, until it is ended.
connect ADDRESS: opens several connections at once. Each compares what comes back.
hold ADDRESS: opens a connection, exchanges data, prints `holding`, and keeps the connection.
"""

import hashlib
import socket
import sys
import threading

# IPPROTO_SMC of <linux/in.h>: an ordinary stream socket that uses SMC.
IPPROTO_SMC = 256
PORT = 17777
CONNECTIONS = 8
LENGTH = 1 << 20


def new():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC)


def echo(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def serve(address):
    listener = new()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, PORT))
    listener.listen(CONNECTIONS)
    print("listening", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def opened(address):
    connection = new()
    connection.connect((address, PORT))
    return connection


def transfer(address, number, ended):
    data = hashlib.shake_256(bytes([number])).digest(LENGTH)
    connection = opened(address)
    threading.Thread(target=connection.sendall, args=(data,), daemon=True).start()
    back = bytearray()
    while len(back) < LENGTH and (part := connection.recv(65536)):
        back += part
    connection.close()
    if bytes(back) == data:
        ended.append(number)


def connect(address):
    ended = []
    threads = [threading.Thread(target=transfer, args=(address, n, ended)) for n in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if sorted(ended) != list(range(CONNECTIONS)):
        sys.exit(f"right data came back by connections {sorted(ended)} alone")
    print("ok")


def hold(address):
    connection = opened(address)
    connection.sendall(b"hello")
    if connection.recv(5) != b"hello":
        sys.exit("another answer than what was sent")
    print("holding", flush=True)
    connection.recv(1)


{"serve": serve, "connect": connect, "hold": hold}[sys.argv[1]](sys.argv[2])
