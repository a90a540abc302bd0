#!/usr/bin/env python3
"""Makes iwarp.txt: MPA, DDP and RDMAP over TCP, each TCP segment read back by tshark.

usage: iwarp.py [iwarp.txt]      needs scapy (pip install scapy) and tshark

Scapy writes Ethernet, IP and TCP. This script writes the payload of TCP after the RFCs' figures,
and computes CRC32c bit by bit. tshark's dissectors iwarp_mpa and iwarp_ddp_rdmap then have to find
every value in its place. `unseen` names what tshark 4.0 does not read.
"""

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from scapy.all import Ether, IP, IPv6, Raw, TCP, wrpcap


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def be(width, *values):
    return b"".join(v.to_bytes(width, "big") for v in values)


def fpdu(ulpdu, at, markers, crc):
    """Returns an FPDU, `at` bytes after full operation began, and the pointers of its markers."""
    out, pointers = b"", []
    length_at = 4 if markers and at % 512 == 0 else 0

    def put(word):
        nonlocal out
        if markers and (at + len(out)) % 512 == 0:
            pointers.append(max(len(out) - length_at, 0))
            out += be(2, 0, pointers[-1])
        out += word

    body = be(2, len(ulpdu)) + ulpdu
    body += bytes(-len(body) % 4)
    for i in range(0, len(body), 4):
        put(body[i : i + 4])
    # There may be a marker before the CRC, which covers the marker.
    put(b"")
    return out + (crc32c(out) if crc else bytes(4)), pointers


# Opcode, and queue of untagged messages (None: tagged).
KINDS = {
    "write": (0, None),
    "read_request": (1, 1),
    "read_response": (2, None),
    "send": (3, 0),
    "send_inv": (4, 0),
    "send_se": (5, 0),
    "send_se_inv": (6, 0),
    "terminate": (7, 2),
    "immediate": (8, 0),
    "immediate_se": (9, 0),
    "fetch_add": (10, 1),
    "swap": (10, 1),
    "compare_swap": (10, 1),
    "atomic_response": (11, 3),
}
ATOMICS = {"fetch_add": 0, "swap": 1, "compare_swap": 2}
# Layer, type, code, and the headers that the TERMINATE carries: those of a tagged segment, of an
# untagged one, of a READ request, of an untagged one without its length, or none.
TERMINATES = [
    (0, 0, 0x00, None), (0, 1, 0x00, "read"), (0, 1, 0x02, "tagged"), (0, 2, 0x05, "untagged"), (0, 2, 0x06, "read"),
    (0, 2, 0xFF, "untagged"), (1, 0, 0x00, None), (1, 1, 0x01, "tagged"), (1, 1, 0x04, "tagged"),
    (1, 2, 0x02, "untagged"), (1, 2, 0x06, "untagged"), (2, 0, 0x02, None), (2, 0, 0x07, None), (0, 2, 0x07, "no_length"),
]


def ddp(rng, kind, v):
    """Returns a DDP header, and adds the values of its fields to `v`."""
    wide = lambda bits: rng.getrandbits(bits) | 1 << (bits - 1)
    opcode, queue = KINDS[kind]
    has_parts = kind.startswith(("write", "read_response", "send"))
    v["last"] = rng.getrandbits(1) if has_parts else 1
    rdmap = 0x40 | opcode
    control = 0x01 | v["last"] << 6
    if queue is None:
        v |= {"stag": wide(32), "to": wide(63)}
        return be(1, 0x80 | control, rdmap) + be(4, v["stag"]) + be(8, v["to"])
    v |= {"qn": queue, "msn": wide(32), "mo": wide(31) if has_parts else 0}
    if kind.endswith("_inv"):
        v["invalidate"] = wide(32)
    return be(1, control, rdmap) + be(4, v.get("invalidate", 0), v["qn"], v["msn"], v["mo"])


def read_request(rng, v):
    wide = lambda bits: rng.getrandbits(bits) | 1 << (bits - 1)
    v |= {"sink": wide(32), "sink_to": wide(63), "size": wide(31), "source": wide(32), "source_to": wide(63)}
    return be(4, v["sink"]) + be(8, v["sink_to"]) + be(4, v["size"], v["source"]) + be(8, v["source_to"])


def segment(rng, kind, size, terminate):
    """Returns a ULPDU, the values of its fields, and its payload."""
    wide = lambda bits: rng.getrandbits(bits) | 1 << (bits - 1)
    v = {}
    head = ddp(rng, kind, v)
    if kind == "read_request":
        return head + read_request(rng, v), v, b""
    if kind.startswith("immediate"):
        v["imm"] = wide(64)
        return head + be(8, v["imm"]), v, b""
    if kind in ATOMICS:
        v |= {"id": wide(32), "atomic_stag": wide(32), "atomic_to": wide(63), "data": wide(64), "mask": wide(64)}
        compare = {"compare": wide(64), "compare_mask": wide(64)} if kind == "compare_swap" else {}
        v |= compare
        head += be(4, ATOMICS[kind], v["id"], v["atomic_stag"]) + be(8, v["atomic_to"], v["data"], v["mask"])
        return head + be(8, v.get("compare", 0), v.get("compare_mask", 0)), v, b""
    if kind == "atomic_response":
        v |= {"id": wide(32), "original": wide(64)}
        return head + be(4, v["id"]) + be(8, v["original"]), v, b""
    if kind == "terminate":
        layer, etype, code, headers = terminate
        v |= {"layer": layer, "etype": etype, "code": code}
        flags = {None: 0, "tagged": 0xC0, "untagged": 0xC0, "read": 0xE0, "no_length": 0x40}[headers]
        v |= {"m": flags >> 7, "d": flags >> 6 & 1, "r": flags >> 5 & 1}
        head += be(1, layer << 4 | etype, code, flags, 0)
        if headers:
            its = {"tagged": "write", "untagged": "send", "read": "read_request", "no_length": "send"}[headers]
            its_head, its_read = ddp(rng, its, {}), read_request(rng, {}) if headers == "read" else b""
            length = 0 if headers == "no_length" else len(its_head) + (len(its_read) or rng.randrange(1, 1400))
            head += be(2, length) + its_head + its_read
            v |= {"its_length": length, "its_ddp": its_head.hex()}
            if its_read:
                v["its_read"] = its_read.hex()
        return head, v, b""
    payload = rng.randbytes(size)
    return head + payload, v, payload


def set_up(rng, kind, c, size):
    """Returns an MPA request or reply, and the values of its fields."""
    v = {"m": c["markers"], "c": c["crc"], "r": c.get("reject", 0) if kind == "reply" else 0, "rev": c["rev"]}
    private = rng.randbytes(size)
    words = b""
    if c.get("enhanced"):
        v |= {"s": 1, "ird": rng.getrandbits(14), "ord": rng.getrandbits(14)}
        # The flag C of RFC 6581 (`c_`) is not the flag C of RFC 5044 (`c`).
        v |= {"a": 1, "b": 0, "c_": 1, "d": 1} if kind == "request" else {b: rng.getrandbits(1) for b in ("a", "b", "c_", "d")}
        if c.get("automatic"):
            v["ird"] = 0x3FFF
        words = be(2, v["a"] << 15 | v["b"] << 14 | v["ird"], v["c_"] << 15 | v["d"] << 14 | v["ord"])
    flags = v["m"] << 7 | v["c"] << 6 | v["r"] << 5 | v.get("s", 0) << 4
    key = b"MPA ID Req Frame" if kind == "request" else b"MPA ID Rep Frame"
    frame = key + be(1, flags, v["rev"]) + be(2, len(words + private)) + words + private
    return frame, v | {"private": private.hex()}


CONNECTIONS = [
    {"rev": 1, "markers": 0, "crc": 1, "private": (0, 17)},
    {"rev": 1, "markers": 1, "crc": 1, "private": (512, 1)},
    {"rev": 1, "markers": 0, "crc": 0, "private": (40, 0)},
    {"rev": 1, "markers": 1, "crc": 0, "private": (3, 4)},
    {"rev": 2, "markers": 0, "crc": 1, "private": (0, 508), "enhanced": 1},
    {"rev": 2, "markers": 1, "crc": 1, "private": (30, 0), "enhanced": 1, "automatic": 1},
    {"rev": 2, "markers": 0, "crc": 1, "private": (5, 6)},
    {"rev": 1, "markers": 0, "crc": 1, "private": (7, 8), "reject": 1},
]
SIZES = [1, 2, 3, 4, 0, 7, 64, 255, 444, 512, 1030, 1400]


class Conversation:
    """The TCP segments of a connection. Each has one FPDU, as tshark expects."""

    def __init__(self, rng, index):
        self.ports = (50000 + index, 60000 + index)
        self.seq = [rng.randrange(1 << 16, 1 << 20), rng.randrange(1 << 16, 1 << 20)]
        self.v6 = index % 2
        self.frames = []

    def send(self, side, data):
        a, b = ("2001:db8::1", "2001:db8::2") if self.v6 else ("10.0.0.1", "10.0.0.2")
        ips = (a, b) if side == 0 else (b, a)
        ip = IPv6(src=ips[0], dst=ips[1]) if self.v6 else IP(src=ips[0], dst=ips[1])
        tcp = TCP(sport=self.ports[side], dport=self.ports[1 - side], seq=self.seq[side], ack=self.seq[1 - side], flags="PA")
        self.seq[side] += len(data)
        self.frames.append(bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / tcp / Raw(data)))


def build(rng):
    records, frames = [], []
    for index, c in enumerate(CONNECTIONS):
        conversation = Conversation(rng, index)

        def add(side, data, record):
            conversation.send(side, data)
            records.append(record | {"bytes": data.hex()})

        for side, kind in enumerate(("request", "reply")):
            data, v = set_up(rng, kind, c, c["private"][side])
            add(side, data, {"kind": kind} | v)
        at = [0, 0]
        messages = [] if c.get("reject") else [(k, t) for k in KINDS for t in (TERMINATES if k == "terminate" else [None])]
        first = []
        if messages and c["markers"]:
            # Each side begins with an FPDU that has a marker before its length, and more after it.
            # At the end there are WRITEs and SENDs of all sizes, so that markers lie anywhere.
            first = [("write", None), ("send", None)]
            messages += [(k, None) for k in ("write", "send") for _ in SIZES]
        for n, (kind, terminate) in enumerate([*first, *messages]):
            side = n % 2
            size = 1100 + n if n < len(first) else SIZES[(n + index) % len(SIZES)]
            ulpdu, v, payload = segment(rng, kind, size, terminate)
            data, pointers = fpdu(ulpdu, at[side], c["markers"], c["crc"])
            while pointers and (at[side] + len(data)) % 512 == 0:
                # tshark counts a marker right after an FPDU as one of its own.
                assert payload, f"a {kind} ends where a marker begins: take another seed"
                size += 4
                ulpdu, v, payload = segment(rng, kind, size, terminate)
                data, pointers = fpdu(ulpdu, at[side], c["markers"], c["crc"])
            framing = {"markers": c["markers"], "crc": c["crc"], "at": at[side], "ulpdu_length": len(ulpdu)}
            if pointers:
                framing["pointers"] = ",".join(map(str, pointers))
            add(side, data, {"kind": kind} | framing | v | {"payload_length": len(payload)})
            at[side] += len(data)
        frames += conversation.frames
    return records, frames


# Our field -> tshark's field.
SET_UP = {
    "m": "iwarp_mpa.marker_flag", "c": "iwarp_mpa.crc_flag", "r": "iwarp_mpa.rej_flag", "rev": "iwarp_mpa.rev",
}
FPDU = {
    "ulpdu_length": "iwarp_mpa.ulpdulength", "last": "iwarp_ddp.last_flag", "stag": "iwarp_ddp.stag",
    "to": "iwarp_ddp.tagged_offset", "qn": "iwarp_ddp.qn", "msn": "iwarp_ddp.msn", "mo": "iwarp_ddp.mo",
    "invalidate": "iwarp_rdma.inval_stag", "sink": "iwarp_rdma.sinkstag", "sink_to": "iwarp_rdma.sinkto",
    "size": "iwarp_rdma.rdmardsz", "source": "iwarp_rdma.srcstag", "source_to": "iwarp_rdma.srcto",
    "layer": "iwarp_rdma.term_layer", "m": "iwarp_rdma.term_hdrct_m", "d": "iwarp_rdma.hdrct_d",
    "r": "iwarp_rdma.hdrct_r", "id": "iwarp_rdma.atomic.request_identifier",
    "atomic_stag": "iwarp_rdma.atomic.remote_stag", "atomic_to": "iwarp_rdma.atomic.remote_tagged_offset",
    "compare": "iwarp_rdma.atomic.compare_data", "compare_mask": "iwarp_rdma.atomic.compare_mask",
    "original": "iwarp_rdma.atomic.original_remote_data_value",
}
ETYPES = {0: "iwarp_rdma.term_etype_rdma", 1: "iwarp_rdma.term_etype_ddp", 2: "iwarp_rdma.term_etype_llp"}
CODES = [
    "iwarp_rdma.term_errcode_rdma", "iwarp_rdma.term_errcode_ddp_tagged", "iwarp_rdma.term_errcode_ddp_untagged",
    "iwarp_rdma.term_errcode", "iwarp_rdma.term_errcode_llp",
]
OTHERS = [
    "iwarp_mpa.privatedata", "iwarp_mpa.res", "iwarp_mpa.pad", "iwarp_mpa.crc", "iwarp_mpa.crc_check",
    "iwarp_mpa.marker_fpduptr", "iwarp_ddp.tagged_flag", "iwarp_ddp.dv", "iwarp_rdma.version", "iwarp_rdma.opcode",
    "iwarp_rdma.term_ddp_seg_len", "iwarp_rdma.term_ddp_h", "iwarp_rdma.term_rdma_h", "iwarp_rdma.atomic.opcode",
    "iwarp_rdma.atomic.add_data", "iwarp_rdma.atomic.add_mask", "iwarp_rdma.atomic.swap_data",
    "iwarp_rdma.atomic.swap_mask", "iwarp_rdma.atomic.original_request_identifier",
]


def number(text):
    """Returns the number that tshark prints; None if it prints nothing."""
    return {"True": 1, "False": 0, "": None}[text] if text in ("True", "False", "") else int(text, 0)


def unseen(record, field):
    """Whether tshark 4.0 does not read this field, or reads it wrongly."""
    kind = record["kind"]
    # It takes the words after a swap's offset for those of a compare-and-swap.
    if kind == "swap" and field in ("data", "mask", "compare", "compare_mask"):
        return True
    # It shows only the private data and the reserved bits of RFC 5044.
    if kind in ("request", "reply"):
        return field in ("s", "ird", "ord", "a", "b", "c_", "d")
    # It takes the immediate data of RFC 7306 for payload.
    if kind.startswith("immediate"):
        return field == "imm"
    # It derives the length of the segment's header from the error type, whatever the layer is.
    if kind == "terminate" and record["d"]:
        tagged = int(record["its_ddp"][:2], 16) >= 0x80
        return field in ("its_ddp", "its_read") and tagged != (record["etype"] == 1)
    return False


def compare(record, got, check):
    kind = record["kind"]
    table = SET_UP if kind in ("request", "reply") else FPDU
    for ours, theirs in table.items():
        if ours in record and not unseen(record, ours):
            if (kind, ours) == ("atomic_response", "id"):
                theirs = "iwarp_rdma.atomic.original_request_identifier"
            check(number(got[theirs]) == record[ours], f"{ours}: {got[theirs]} for {record[ours]:#x}")
    if kind in ("request", "reply"):
        enhanced = bytes.fromhex(record["bytes"])[20:].hex()
        check(got["iwarp_mpa.privatedata"] == enhanced)
        check(number(got["iwarp_mpa.res"]) == record.get("s", 0) << 4)
        return
    opcode, queue = KINDS[kind]
    check(number(got["iwarp_rdma.opcode"]) == opcode and number(got["iwarp_rdma.version"]) == 1)
    check(number(got["iwarp_ddp.dv"]) == 1 and number(got["iwarp_ddp.tagged_flag"]) == (queue is None))
    crc = got["iwarp_mpa.crc_check" if record["crc"] else "iwarp_mpa.crc"]
    check(number(crc) == int(record["bytes"][-8:], 16))
    check(got["iwarp_mpa.marker_fpduptr"] == record.get("pointers", ""))
    if kind in ATOMICS and not unseen(record, "data"):
        name = "add" if kind == "fetch_add" else "swap"
        check(number(got["iwarp_rdma.atomic.opcode"]) == ATOMICS[kind])
        for field in ("data", "mask"):
            check(number(got[f"iwarp_rdma.atomic.{name}_{field}"]) == record[field])
    if kind == "terminate":
        check(number(got[ETYPES[record["layer"]]]) == record["etype"])
        check([number(got[c]) for c in CODES if got[c]] == [record["code"]])
        if record["d"]:
            check(got["iwarp_rdma.term_ddp_seg_len"] == f"{record['its_length']:04x}")
            if not unseen(record, "its_ddp"):
                check(got["iwarp_rdma.term_ddp_h"] == record["its_ddp"])
                check(got["iwarp_rdma.term_rdma_h"] == record.get("its_read", ""))


def check_with_tshark(records, frames):
    columns = [*dict.fromkeys([*SET_UP.values(), *FPDU.values(), *ETYPES.values(), *CODES, *OTHERS])]
    columns += ["_ws.malformed", "_ws.expert.message", "_ws.expert.severity"]
    with tempfile.NamedTemporaryFile(suffix=".pcap") as pcap:
        wrpcap(pcap.name, [Ether(f) for f in frames])
        args = ["tshark", "-r", pcap.name, "-o", "tcp.check_checksum:TRUE", "-o", "tcp.try_heuristic_first:TRUE"]
        args += ["-o", "iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE"]
        # These dissectors guess what a payload is, and the payloads here are random.
        for protocol in ["rpcordma", "smb_direct", "nvme-rdma", "iser"]:
            args += ["--disable-protocol", protocol]
        fields = ["-T", "fields", "-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=,"]
        for column in columns:
            fields += ["-e", column]
        run = lambda more: subprocess.run([*args, *more], check=True, capture_output=True, text=True).stdout
        out, verbose = run(fields), run(["-V"])
    wrong = []
    for record, line in zip(records, out.split("\n")[: len(records)], strict=True):
        got = dict(zip(columns, line.split("|"), strict=True))

        def check(right, what="a field"):
            if not right:
                wrong.append(f"{what} of {record} is read as { {k: v for k, v in got.items() if v} }")

        # tshark knows revision 1 only, and has a remark about a reply that rejects.
        excused = record.get("rev") == 2 or record.get("r") == 1 and record["kind"] == "reply"
        check(not got["_ws.malformed"] and (excused or not got["_ws.expert.message"]), "an expert's remark")
        compare(record, got, check)
    good = len(re.findall("Good CRC32", verbose))
    if good != sum(r.get("crc", 0) for r in records):
        wrong.append(f"{good} right CRCs")
    assert not wrong, "\n".join(line[:400] for line in wrong[:20])


def empty_fpdus():
    """Yields FPDUs without a ULPDU (RFC 6581), which tshark does not read."""
    for markers, crc, at in [(0, 1, 0), (0, 0, 0), (1, 1, 0), (1, 1, 504), (1, 1, 508)]:
        data, pointers = fpdu(b"", at, markers, crc)
        record = {"kind": "empty", "markers": markers, "crc": crc, "at": at, "ulpdu_length": 0}
        if pointers:
            record["pointers"] = ",".join(map(str, pointers))
        yield record | {"bytes": data.hex()}


def main():
    records, frames = build(random.Random(5044))
    check_with_tshark(records, frames)
    records += empty_fpdus()
    text = "".join(
        " ".join(f"{k}={v:#x}" if isinstance(v, int) else f"{k}={v}" for k, v in r.items()) + "\n" for r in records
    )
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("iwarp.txt")
    out.write_text(text)
    print(f"{len(records)} frames")


main()
