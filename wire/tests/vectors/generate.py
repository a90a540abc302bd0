#!/usr/bin/env python3
"""Makes packets.txt: RoCEv2 packets by scapy, each read back by tshark.

usage: generate.py [packets.txt]      needs scapy (pip install scapy) and tshark

Scapy (scapy.contrib.roce) writes Ethernet, 802.1Q, IP, UDP, BTH and the ICRC. The extended headers
that it lacks are declared here after the IBTA's figures. tshark's InfiniBand dissector then has to
find every value in its place, and must have no remarks.
"""

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from scapy.all import Dot1Q, Ether, IP, IPv6, Packet, Raw, UDP, raw, wrpcap
from scapy.contrib.roce import AETH, BTH, CNPPadding
from scapy.fields import XBitField, XIntField, XLongField


class RETH(Packet):
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), XIntField("length", 0)]


class AtomicETH(Packet):
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), XLongField("swap", 0), XLongField("compare", 0)]


class AtomicAckETH(Packet):
    fields_desc = [XLongField("original", 0)]


class DETH(Packet):
    fields_desc = [XIntField("qkey", 0), XBitField("reserved", 0, 8), XBitField("srcqp", 0, 24)]


class ImmDt(Packet):
    fields_desc = [XIntField("imm", 0)]


class IETH(Packet):
    fields_desc = [XIntField("invalidate", 0)]


class XRCETH(Packet):
    fields_desc = [XBitField("reserved", 0, 8), XBitField("srqn", 0, 24)]


class FETH(Packet):
    fields_desc = [XBitField("reserved", 0, 26), XBitField("sel", 0, 2), XBitField("plt", 0, 4)]


# Name -> opcode, headers, whether it has a payload.
SEND = {
    "send_first": (0x00, [], True),
    "send_middle": (0x01, [], True),
    "send_last": (0x02, [], True),
    "send_last_imm": (0x03, [ImmDt], True),
    "send_only": (0x04, [], True),
    "send_only_imm": (0x05, [ImmDt], True),
    "write_first": (0x06, [RETH], True),
    "write_middle": (0x07, [], True),
    "write_last": (0x08, [], True),
    "write_last_imm": (0x09, [ImmDt], True),
    "write_only": (0x0A, [RETH], True),
    "write_only_imm": (0x0B, [RETH, ImmDt], True),
}
RC = {
    "read_request": (0x0C, [RETH], False),
    "read_response_first": (0x0D, [AETH], True),
    "read_response_middle": (0x0E, [], True),
    "read_response_last": (0x0F, [AETH], True),
    "read_response_only": (0x10, [AETH], True),
    "ack": (0x11, [AETH], False),
    "atomic_ack": (0x12, [AETH, AtomicAckETH], False),
    "compare_swap": (0x13, [AtomicETH], False),
    "fetch_add": (0x14, [AtomicETH], False),
    "send_last_invalidate": (0x16, [IETH], True),
    "send_only_invalidate": (0x17, [IETH], True),
    "flush": (0x1C, [FETH, RETH], False),
    "atomic_write": (0x1D, [RETH], True),
}
OPCODES = {f"rc_{n}": o for n, o in (SEND | RC).items()}
OPCODES |= {f"uc_{n}": (c + 0x20, h, p) for n, (c, h, p) in SEND.items()}
OPCODES |= {"ud_send_only": (0x64, [DETH], True), "ud_send_only_imm": (0x65, [DETH, ImmDt], True)}
OPCODES |= {"cnp": (0x81, [CNPPadding], False)}
# XRC has the operations of RC, with opcodes that are 0xA0 higher. Its requests have an XRCETH right
# after the BTH (annex A14).
ANSWERS = ("read_response", "ack", "atomic_ack")
OPCODES |= {
    f"xrc_{n}": (c + 0xA0, h if n.startswith(ANSWERS) else [XRCETH, *h], p) for n, (c, h, p) in (SEND | RC).items()
}
SYNDROMES = [0x00, 0x1F, 0x0B, 0x20, 0x3F, 0x2E, 0x60, 0x61, 0x62, 0x63, 0x64]

# Our field -> tshark's field, whose printed value int(_, 0) can parse.
TSHARK = {
    "solicited": "infiniband.bth.se",
    "mig": "infiniband.bth.m",
    "pad": "infiniband.bth.padcnt",
    "pkey": "infiniband.bth.p_key",
    "dest": "infiniband.bth.destqp",
    "ack_req": "infiniband.bth.a",
    "psn": "infiniband.bth.psn",
    "va": "infiniband.reth.va",
    "rkey": "infiniband.reth.r_key",
    "length": "infiniband.reth.dmalen",
    "atomic_va": "infiniband.reth.va",
    "atomic_rkey": "infiniband.reth.r_key",
    "swap": "infiniband.atomiceth.swapdt",
    "compare": "infiniband.atomiceth.cmpdt",
    "original": "infiniband.atomicacketh.origremdt",
    "qkey": "infiniband.deth.q_key",
    "srcqp": "infiniband.deth.srcqp",
    "imm": "infiniband.immdt",
    "invalidate": "infiniband.ieth",
    "syndrome": "infiniband.aeth.syndrome",
    "msn": "infiniband.aeth.msn",
    "icrc": "infiniband.invariant.crc",
}


def values(rng, headers):
    """Returns values for the fields of these headers, most of them random and of full width."""
    wide = lambda bits: rng.getrandbits(bits) | 1 << (bits - 1)
    found = {}
    for header in headers:
        if header is RETH:
            found |= {"va": wide(64), "rkey": wide(32), "length": wide(31)}
        elif header is AtomicETH:
            found |= {"atomic_va": wide(64) & ~7, "atomic_rkey": wide(32), "swap": wide(64), "compare": wide(64)}
        elif header is AtomicAckETH:
            found |= {"original": wide(64)}
        elif header is DETH:
            found |= {"qkey": wide(32), "srcqp": wide(24)}
        elif header is ImmDt:
            found |= {"imm": wide(32)}
        elif header is IETH:
            found |= {"invalidate": wide(32)}
        elif header is XRCETH:
            found |= {"srqn": wide(24)}
        elif header is FETH:
            found |= {"plt": rng.choice([1, 2, 3]), "sel": rng.choice([0, 1])}
        elif header is AETH:
            found |= {"syndrome": SYNDROMES[0], "msn": wide(24)}
            SYNDROMES.append(SYNDROMES.pop(0))
    return found


def build(rng, name, version, tagged, size):
    opcode, headers, has_payload = OPCODES[name]
    v = values(rng, headers)
    if name.endswith("rc_atomic_write"):
        size = 8
    payload = rng.randbytes(size) if has_payload else b""
    pad = -len(payload) % 4
    mac = lambda first: ":".join(f"{b:02x}" for b in [first, *rng.randbytes(5)])
    path = {"src_mac": mac(2), "dst_mac": mac(6), "version": version}
    frame = Ether(src=path["src_mac"], dst=path["dst_mac"])
    if tagged:
        path["vlan"] = rng.getrandbits(16) & 0xFFFE
        frame /= Dot1Q(prio=path["vlan"] >> 13, id=path["vlan"] >> 12 & 1, vlan=path["vlan"] & 0xFFF)
    path |= {"traffic_class": rng.randrange(1, 256), "hop_limit": rng.randrange(1, 256)}
    if version == 4:
        address = lambda: ".".join(str(b) for b in [10, *rng.randbytes(3)])
        path |= {"src": address(), "dst": address(), "flow_label": 0}
        frame /= IP(src=path["src"], dst=path["dst"], id=0, flags="DF", tos=path["traffic_class"], ttl=path["hop_limit"])
    else:
        address = lambda: "2001:db8:" + ":".join(f"{rng.getrandbits(16) | 0x1000:x}" for _ in range(6))
        path |= {"src": address(), "dst": address(), "flow_label": rng.randrange(1, 1 << 20)}
        frame /= IPv6(
            src=path["src"], dst=path["dst"], tc=path["traffic_class"], fl=path["flow_label"], hlim=path["hop_limit"]
        )
    path["src_port"] = rng.randrange(0xC000, 0x10000)
    frame /= UDP(sport=path["src_port"], dport=4791, chksum=0)
    b = {
        "solicited": rng.getrandbits(1),
        "mig": rng.getrandbits(1),
        "pkey": rng.randrange(1, 1 << 16),
        "fecn": rng.getrandbits(1),
        "becn": rng.getrandbits(1),
        "dest": rng.randrange(1 << 16, 1 << 24),
        "ack_req": rng.getrandbits(1),
        "psn": rng.randrange(1 << 16, 1 << 24),
    }
    frame /= BTH(
        opcode=opcode, solicited=b["solicited"], migreq=b["mig"], padcount=pad, pkey=b["pkey"], fecn=b["fecn"],
        becn=b["becn"], dqpn=b["dest"], ackreq=b["ack_req"], psn=b["psn"],
    )
    for header in headers:
        names = {"va": "atomic_va", "rkey": "atomic_rkey"} if header is AtomicETH else {}
        fields = [f.name for f in header.fields_desc if not f.name.startswith("reserved")]
        frame /= header(**{f: v[names.get(f, f)] for f in fields})
    if payload:
        frame /= Raw(payload + bytes(pad))
    wire = raw(frame)
    record = {"name": name, **path, **b, **v, "pad": pad, "payload": payload.hex()}
    return record, wire


def check_with_tshark(records, frames):
    with tempfile.NamedTemporaryFile(suffix=".pcap") as pcap:
        wrpcap(pcap.name, [Ether(f) for f in frames])
        assert_raw = Path(pcap.name).read_bytes()
        assert all(f in assert_raw for f in frames), "scapy rewrote a frame"
        args = ["tshark", "-r", pcap.name, "-T", "fields", "-E", "occurrence=f", "-o", "ip.check_checksum:TRUE"]
        # Annex A17 allows UDP checksums of 0 over IPv6; RFC 8200 does not.
        args += ["-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
        # These dissectors guess what a payload is, and the payloads here are random.
        for protocol in ["rpcordma", "smb_direct", "nvme-rdma", "iser"]:
            args += ["--disable-protocol", protocol]
        columns = ["_ws.malformed", "_ws.expert.message", "infiniband.bth.opcode", *dict.fromkeys(TSHARK.values())]
        for column in columns:
            args += ["-e", column]
        out = subprocess.run(args, check=True, capture_output=True, text=True).stdout
        verbose = subprocess.run(["tshark", "-r", pcap.name, "-V"], check=True, capture_output=True, text=True).stdout
    names = re.findall("^ *Opcode: (.*) \\([0-9]+\\)$", verbose, re.MULTILINE)
    for record, name in zip(records, names, strict=True):
        unknown = record["name"].endswith(("rc_flush", "rc_atomic_write"))
        assert unknown or record["name"].startswith("xrc") == ("(XRC)" in name), f"{record['name']}: {name}"
    lines = out.split("\n")[: len(records)]
    for record, frame, line in zip(records, frames, lines, strict=True):
        got = dict(zip(columns, line.split("\t"), strict=True))
        where = f"{record['name']} over IPv{record['version']}: {line!r}"
        assert not got["_ws.malformed"] and not got["_ws.expert.message"], where
        assert int(got["infiniband.bth.opcode"], 0) == OPCODES[record["name"]][0], where
        for ours, theirs in TSHARK.items():
            value = int.from_bytes(frame[-4:]) if ours == "icrc" else record.get(ours)
            if value is None:
                continue
            text = got[theirs]
            if not text and (record["name"], ours) in UNSEEN:
                continue
            read = {"True": 1, "False": 0}.get(text)
            if read is None:
                # tshark prints a field that it takes for bytes in hexadecimal without 0x.
                read = int(text, 16) if re.fullmatch("([0-9a-f]{2})+", text) and theirs in HEX else int(text, 0)
            assert read == value, f"{ours}: {read:#x} for {value:#x} in {where}"


# Fields that tshark 4.0 does not show. It reads FLUSH, ATOMIC WRITE and all of XRC only up to the
# BTH, though it has names for XRC's opcodes. It takes the ICRC of a CNP for a part of the padding.
OF_BTH = {"solicited", "mig", "pad", "pkey", "dest", "ack_req", "psn"}
UNSEEN = {(n, f) for n in ("rc_flush", "rc_atomic_write") for f in ("va", "rkey", "length", "icrc")} | {("cnp", "icrc")}
UNSEEN |= {(n, f) for n in OPCODES if n.startswith("xrc") for f in TSHARK if f not in OF_BTH}
HEX = {"infiniband.immdt", "infiniband.ieth"}


def main():
    rng = random.Random(4791)
    records, frames = [], []
    sizes = [*range(1, 9), 33, 64, 255, 256]
    for i, name in enumerate(OPCODES):
        for version in (4, 6):
            record, frame = build(rng, name, version, i % 3 == (0 if version == 4 else 1), sizes[i % len(sizes)])
            records.append(record)
            frames.append(frame)
    check_with_tshark(records, frames)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("packets.txt")
    text = "".join(
        " ".join(f"{k}={v:#x}" if isinstance(v, int) else f"{k}={v}" for k, v in r.items()) + f" frame={f.hex()}\n"
        for r, f in zip(records, frames)
    )
    out.write_text(text)
    print(f"{len(records)} packets")


main()
