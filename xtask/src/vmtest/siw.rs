//! iWARP between two hosts, and with Linux's soft-iWARP at one end.

use anyhow::{Result, bail};

use crate::lineup::{Family, Round, Sizes, iwarp};
use crate::vm::Pair;

/// Both ends ours.
pub fn two_hosts(pair: &mut Pair) -> Result<()> {
    iwarp::prepare(pair)?;
    go_through(pair, Family::V4)?;
    go_through(pair, Family::V6)
}

/// siw at one end.
pub fn quick(pair: &mut Pair) -> Result<()> {
    iwarp::prepare(pair)?;
    let capture = pair.wire()?.capture_tcp("a", &pair.directory().join("siw.pcap"))?;
    let v4 = go_through(pair, Family::V4);
    let v6 = go_through(pair, Family::V6);
    println!("{}", capture.finish()?.display());
    v4?;
    v6
}

fn go_through(pair: &Pair, family: Family) -> Result<()> {
    let mut failures = Vec::new();
    let mut port = 20_000;
    for server in [&pair.a, &pair.b] {
        let round = Round::new(pair, server, family)?;
        for row in iwarp::rows(family, Sizes::One) {
            port += 1;
            match round.run(&row, port) {
                Ok(time) => println!("  ok {:6.1} s {} {}", time.as_secs_f64(), round.name(), row.what),
                Err(error) => {
                    println!("FAIL {} {}: {error:#}", round.name(), row.what);
                    failures.push(row.what.clone())
                }
            }
        }
    }
    if !failures.is_empty() {
        bail!("{failures:?}")
    }
    Ok(())
}
