//! iWARP between two hosts, and with Linux's soft-iWARP at one end. All that passes the wire meanwhile is sound.

use anyhow::{Result, ensure};

use crate::capture;
use crate::demo::iwarp::{Turn, go_through, refused_crc, refused_operations};
use crate::lineup::{Family, Sizes, iwarp::prepare};
use crate::paths;
use crate::siw::{self, Variant};
use crate::storage::{Load, Protocol, Storage};
use crate::vm::Pair;

/// Each VM as server, each kind of addresses once.
const SHORT: [Turn; 2] = [(0, Family::V4, Sizes::One), (1, Family::V6, Sizes::One)];

/// Both ends ours.
pub fn two_hosts(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    captured(pair, "iwarp.pcap", |pair| go_through(pair, &SHORT, &|_| true, &mut |_| {}).map(|_| ()))
}

/// NVMe over Fabrics between them.
pub fn nvme(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    Storage::new(Protocol::Nvme, 0).whole(pair, &Load::SMALL)
}

/// siw at one end, as Linux has it, and as one of two peers.
pub fn quick(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    captured(pair, "siw.pcap", |pair| {
        siw::load(&pair.b, Variant::Stock, pair.patience(6))?;
        go_through(pair, &SHORT, &|_| true, &mut |_| {})?;
        siw::load(&pair.b, Variant::PeerToPeer, pair.patience(6))?;
        go_through(pair, &SHORT[..1], &|_| true, &mut |_| {}).map(|_| ())
    })
}

/// What siw refuses ends, and does not hang.
pub fn refused(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    siw::load(&pair.b, Variant::Stock, pair.patience(6))?;
    refused_operations(pair, &mut |_| {})?;
    refused_crc(pair)
}

fn captured(pair: &mut Pair, file: &str, programs: impl FnOnce(&mut Pair) -> Result<()>) -> Result<()> {
    let capture = pair.wire()?.capture_tcp("a", &pair.directory().join(file))?;
    let result = programs(pair);
    let file = capture.finish()?;
    let checked = capture::iwarp::check(&file);
    result?;
    ensure!(checked?.packets > 500, "hardly an FPDU passed the wire");
    // It is large; one with a fault stays to be looked at.
    paths::remove(&file)
}
