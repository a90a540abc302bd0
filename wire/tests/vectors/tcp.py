#!/usr/bin/env python3
"""Makes tcp.txt: TCP segments over IPv4 and IPv6 by scapy, each read back by tshark.

usage: tcp.py [tcp.txt]      needs scapy (pip install scapy) and tshark

Scapy writes headers, options and checksums. tshark has to find every value in its place, and a
right checksum.
"""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

from scapy.all import Ether, IP, IPv6, Raw, TCP, raw, wrpcap

FLAGS = {"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32, "ECE": 64, "CWR": 128}

# Flags of a segment, and its options in the order in which they are written.
SHAPES = {
    "syn": (FLAGS["SYN"], ["mss", "sackok", "ts", "ws"]),
    "syn_ecn": (FLAGS["SYN"] | FLAGS["ECE"] | FLAGS["CWR"], ["mss", "ws"]),
    "syn_ack": (FLAGS["SYN"] | FLAGS["ACK"], ["mss", "sackok", "ws"]),
    "syn_ack_plain": (FLAGS["SYN"] | FLAGS["ACK"], ["mss"]),
    "bare": (FLAGS["SYN"], []),
    "data": (FLAGS["ACK"] | FLAGS["PSH"], ["ts"]),
    "data_plain": (FLAGS["ACK"], []),
    "urgent": (FLAGS["ACK"] | FLAGS["URG"], []),
    "sack_1": (FLAGS["ACK"], ["ts", "sack1"]),
    "sack_2": (FLAGS["ACK"], ["ts", "sack2"]),
    "sack_3": (FLAGS["ACK"], ["ts", "sack3"]),
    "sack_4": (FLAGS["ACK"], ["sack4"]),
    "fin": (FLAGS["FIN"] | FLAGS["ACK"], ["ts"]),
    "reset": (FLAGS["RST"], []),
    "reset_ack": (FLAGS["RST"] | FLAGS["ACK"], []),
}

COLUMNS = {
    "src_port": "tcp.srcport",
    "dst_port": "tcp.dstport",
    "seq": "tcp.seq_raw",
    "ack": "tcp.ack_raw",
    "flags": "tcp.flags",
    "window": "tcp.window_size_value",
    "urgent": "tcp.urgent_pointer",
    "mss": "tcp.options.mss_val",
    "ws": "tcp.options.wscale.shift",
    "ts_value": "tcp.options.timestamp.tsval",
    "ts_echo": "tcp.options.timestamp.tsecr",
}


def build(rng, name, version, size):
    flags, options = SHAPES[name]
    wide = lambda bits: rng.getrandbits(bits) | 1 << (bits - 1)
    v = {
        "src_port": wide(16), "dst_port": wide(16), "seq": wide(32), "ack": wide(32), "flags": flags,
        "window": wide(16), "urgent": wide(16) if flags & FLAGS["URG"] else 0,
    }
    written = []
    for option in options:
        if option == "mss":
            v["mss"] = wide(16)
            written.append(("MSS", v["mss"]))
        elif option == "sackok":
            v["sackok"] = 1
            # With timestamps, this option takes the place of their padding.
            written += ([] if "ts" in options else [("NOP", None)] * 2) + [("SAckOK", b"")]
        elif option == "ts":
            v |= {"ts_value": wide(32), "ts_echo": wide(32)}
            written += ([] if "sackok" in options else [("NOP", None)] * 2) + [("Timestamp", (v["ts_value"], v["ts_echo"]))]
        elif option == "ws":
            v["ws"] = rng.randrange(15)
            written += [("NOP", None), ("WScale", v["ws"])]
        else:
            edges = [wide(32) for _ in range(2 * int(option[4:]))]
            v["sacks"] = ",".join(f"{edge:#x}" for edge in edges)
            written += [("NOP", None)] * 2 + [("SAck", tuple(edges))]
    payload = rng.randbytes(size) if name.startswith(("data", "urgent")) else b""
    if version == 4:
        address = lambda: ".".join(str(b) for b in [10, *rng.randbytes(3)])
        path = {"src": address(), "dst": address()}
        frame = Ether() / IP(src=path["src"], dst=path["dst"])
    else:
        address = lambda: "2001:db8:" + ":".join(f"{rng.getrandbits(16) | 0x1000:x}" for _ in range(6))
        path = {"src": address(), "dst": address()}
        frame = Ether() / IPv6(src=path["src"], dst=path["dst"])
    frame /= TCP(
        sport=v["src_port"], dport=v["dst_port"], seq=v["seq"], ack=v["ack"], flags=v["flags"], window=v["window"],
        urgptr=v["urgent"], options=written,
    )
    if payload:
        frame /= Raw(payload)
    wire = raw(frame)
    headers = 34 if version == 4 else 54
    return {"name": name, "version": version, **path, **v, "payload": payload.hex()}, wire, wire[headers:]


def check_with_tshark(records, frames):
    columns = [*COLUMNS.values(), "tcp.checksum.status", "tcp.options.sack_le", "tcp.options.sack_re", "tcp.options.sack_perm"]
    with tempfile.NamedTemporaryFile(suffix=".pcap") as pcap:
        wrpcap(pcap.name, [Ether(f) for f in frames])
        args = ["tshark", "-r", pcap.name, "-T", "fields", "-o", "tcp.check_checksum:TRUE"]
        args += ["-o", "tcp.relative_sequence_numbers:FALSE", "-o", "tcp.analyze_sequence_numbers:FALSE"]
        for column in columns:
            args += ["-e", column]
        out = subprocess.run(args, check=True, capture_output=True, text=True).stdout
    for record, line in zip(records, out.split("\n")[: len(records)], strict=True):
        got = dict(zip(columns, line.split("\t"), strict=True))
        where = f"{record['name']} over IPv{record['version']}: {line!r}"
        assert got["tcp.checksum.status"] == "1", where
        assert bool(got["tcp.options.sack_perm"]) == ("sackok" in record), where
        for ours, theirs in COLUMNS.items():
            if ours in record:
                assert int(got[theirs], 0) == record[ours], f"{ours} in {where}"
            else:
                assert not got[theirs], f"{ours} in {where}"
        edges = [int(edge, 0) for edge in record.get("sacks", "").split(",") if edge]
        for column, theirs in (("tcp.options.sack_le", edges[::2]), ("tcp.options.sack_re", edges[1::2])):
            assert [int(edge, 0) for edge in got[column].split(",") if edge] == theirs, where


def main():
    rng = random.Random(9293)
    records, frames, segments = [], [], []
    for i, name in enumerate(SHAPES):
        for version in (4, 6):
            record, frame, segment = build(rng, name, version, 7 + 6 * i + version)
            records.append(record)
            frames.append(frame)
            segments.append(segment)
    check_with_tshark(records, frames)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("tcp.txt")
    text = "".join(
        " ".join(f"{k}={v:#x}" if isinstance(v, int) else f"{k}={v}" for k, v in r.items()) + f" segment={s.hex()}\n"
        for r, s in zip(records, segments)
    )
    out.write_text(text)
    print(f"{len(records)} segments")


main()
