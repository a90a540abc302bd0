//! Cost of a packet's headers and ICRC, and of an FPDU's headers and CRC.
//!
//! Each run also measures the CRC alone, and a copy of the bytes.
//!
//! `cargo bench -p vrdma-wire`

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use vrdma_wire::icrc::Icrc;
use vrdma_wire::iwarp::crc;
use vrdma_wire::iwarp::framing::MAX_FPDU;
use vrdma_wire::iwarp::num::Stag;
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, Tagged};
use vrdma_wire::iwarp::{Deframer, Encoder, Framing, Segment, StreamOffset};
use vrdma_wire::num::*;
use vrdma_wire::roce::*;

fn packet(v4: bool, body: Body) -> Packet {
    let gid = |last| match v4 {
        true => Gid::from_ipv4([10, 0, 0, last]),
        false => Gid([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
    };
    let path = Path {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlan: None,
        src: gid(1),
        dst: gid(2),
        traffic_class: 0,
        flow_label: FlowLabel::default(),
        hop_limit: 64,
        src_port: 0xc001,
    };
    let bth = Bth { dest: Qpn::new(0x11).expect("small"), psn: Psn::truncate(0x123), ..Bth::default() };
    Packet { path, bth, body }
}

fn write() -> Body {
    let reth = Reth { va: 0x7f00_1234_5000, rkey: Rkey(0x1234), length: 64 };
    Body::Rc(Rc::Write(Part::Only(reth, WriteTail::Plain)))
}

/// Writes headers, payload and ICRC.
fn frame(packet: &Packet, payload: &[u8], buf: &mut [u8]) -> usize {
    let headers = packet.emit(payload.len(), buf);
    let end = headers + payload.len();
    buf[headers..end].copy_from_slice(payload);
    let mut icrc = Icrc::new(&buf[..headers]);
    icrc.update(payload);
    buf[end..end + 4].copy_from_slice(&icrc.finish());
    end + 4
}

fn headers(c: &mut Criterion) {
    let mut group = c.benchmark_group("headers");
    for (name, v4) in [("ipv4", true), ("ipv6", false)] {
        let packet = packet(v4, write());
        let mut buf = [0; MAX_FRAME];
        group.bench_function(BenchmarkId::new("emit", name), |b| {
            b.iter(|| black_box(&packet).emit(black_box(64), black_box(&mut buf)));
        });
        let len = frame(&packet, &[7; 64], &mut buf);
        group.bench_function(BenchmarkId::new("parse", name), |b| {
            b.iter(|| Packet::parse(black_box(&buf[..len])).map(|p| (p.packet.bth.psn, p.payload.len())));
        });
    }
    group.finish();
}

fn icrc(c: &mut Criterion) {
    let mut group = c.benchmark_group("icrc");
    for size in [64, 1024, 4096] {
        group.throughput(Throughput::Bytes(size as u64));
        let packet = packet(true, write());
        let payload = vec![0x5a; size];
        let mut buf = [0; MAX_FRAME];
        let len = frame(&packet, &payload, &mut buf);
        let headers = packet.header_len();
        group.bench_function(BenchmarkId::new("make", size), |b| {
            b.iter(|| {
                let mut icrc = Icrc::new(black_box(&buf[..headers]));
                icrc.update(black_box(&payload));
                icrc.finish()
            });
        });
        let parsed = Packet::parse(&buf[..len]).expect("it was written so");
        group.bench_function(BenchmarkId::new("check", size), |b| {
            b.iter(|| black_box(&parsed).check_icrc().is_ok());
        });
        group.bench_function(BenchmarkId::new("crc32fast alone", size), |b| {
            b.iter(|| crc32fast::hash(black_box(&payload)));
        });
        let mut copy = vec![0; size];
        group.bench_function(BenchmarkId::new("memcpy", size), |b| {
            b.iter(|| {
                copy.copy_from_slice(black_box(&payload));
                black_box(&mut copy);
            });
        });
    }
    group.finish();
}

/// Measures writing and reading an FPDU with a WRITE, and the CRC32c alone.
fn fpdu(c: &mut Criterion) {
    let mut group = c.benchmark_group("fpdu");
    let write = Segment::Write(Tagged { stag: Stag(0x1234), offset: 0x7f00_1234_5000, last: true });
    for size in [64, 1024, 4096, 8900] {
        group.throughput(Throughput::Bytes(size as u64));
        let payload = vec![0x5a; size];
        let ulpdu = write.header_len() + size;
        for (name, markers) in [("", false), (" with markers", true)] {
            let framing = Framing { markers, crc: true };
            let mut buf = vec![0; framing.fpdu_len(StreamOffset::START, ulpdu)];
            let make = |buf: &mut [u8]| {
                let mut headers = [0; MAX_HEADERS];
                let headers_len = black_box(&write).emit(&mut headers);
                let mut encoder = Encoder::new(framing, StreamOffset::START, ulpdu, buf);
                encoder.put(&headers[..headers_len]);
                encoder.put(black_box(&payload));
                encoder.finish()
            };
            group
                .bench_function(BenchmarkId::new(format!("make{name}"), size), |b| b.iter(|| make(&mut buf)));
            let mut scratch = vec![0; MAX_FPDU];
            group.bench_function(BenchmarkId::new(format!("take{name}"), size), |b| {
                b.iter(|| {
                    let ulpdu = Deframer::new(framing).next(&mut black_box(&buf[..]), &mut scratch);
                    let ulpdu = ulpdu.expect("it was written so").expect("it is whole");
                    Segment::parse(ulpdu).map(|parsed| parsed.payload.len())
                });
            });
        }
        group.bench_function(BenchmarkId::new("CRC alone", size), |b| {
            b.iter(|| crc::of(black_box(&payload)));
        });
    }
    group.finish();
}

criterion_group!(benches, headers, icrc, fpdu);
criterion_main!(benches);
