//! Saved connections with one changed value: they are refused, or go on without harm.

use super::script::{Cuts, PORTS, check};
use super::sim::Rng;
use crate::connection::Connection;
use crate::save::Saved;
use crate::{Config, Instant};
use ciborium::Value;
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

fn header(rng: &mut Rng, connection: &Connection) -> TcpHeader {
    let near = |rng: &mut Rng, number: u32| number.wrapping_add(rng.below(4000) as u32).wrapping_sub(1000);
    let una = connection.send_origin.wire(connection.board.una());
    let nxt = connection.receive_origin.wire(connection.received.nxt());
    let sacks = (0..rng.below(3)).map(|_| (near(rng, una), near(rng, una))).collect();
    TcpHeader {
        src_port: PORTS.remote,
        dst_port: PORTS.local,
        seq: near(rng, nxt),
        ack: near(rng, una),
        flags: Flags(rng.next() as u8 & 0x1f) | Flags::ACK,
        window: rng.next() as u16,
        urgent: 0,
        options: Options { timestamps: Some((rng.below(100) as u32, 0)), sacks, ..Options::default() },
    }
}

/// Returns a connection in any state, after some segments.
fn any_connection(rng: &mut Rng, cuts: &mut Cuts) -> Connection {
    let config = Config { mss: 1000, ..Config::default() };
    let mut connection = Connection::connect(config, PORTS, rng.next() as u32, 0, Instant(0));
    while connection.poll_transmit(Instant(0), cuts).is_some() {}
    let options =
        Options { sack_permitted: true, timestamps: Some((0, 0)), mss: Some(1000), ..Options::default() };
    let ack = connection.send_origin.0.wrapping_add(1);
    let flags = Flags::SYN | Flags::ACK;
    let syn = TcpHeader { flags, seq: 7, ack, window: 60_000, options, ..header(rng, &connection) };
    connection.handle_segment(Instant(1000), &syn, 0, &mut |arrival| arrival.at.len());
    go_on(rng, &mut connection, cuts, 6);
    connection
}

fn go_on(rng: &mut Rng, connection: &mut Connection, cuts: &mut Cuts, steps: u64) {
    let mut now = Instant(2000);
    for _ in 0..steps {
        let header = header(rng, connection);
        match rng.below(4) {
            0 => cuts.push(1 + rng.below(1000)),
            1 => {
                now = connection.poll_timeout().unwrap_or(now).max(now).min(Instant(1 << 60));
                connection.handle_timeout(now);
            }
            2 if rng.chance(100) => connection.close(),
            _ => connection
                .handle_segment(now, &header, rng.below(1500) as usize, &mut |arrival| arrival.at.len()),
        }
        let mut sent = 0;
        while connection.poll_transmit(now, cuts).is_some() {
            sent += 1;
            assert!(sent < 100_000, "it stops sending");
        }
        check(connection);
    }
}

/// Finds the numbers, booleans and nulls in a value.
fn leaves<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| leaves(value, found)),
        Value::Map(pairs) => pairs.iter_mut().for_each(|(_, value)| leaves(value, found)),
        Value::Integer(_) | Value::Bool(_) | Value::Null => found.push(value),
        _ => {}
    }
}

fn change(rng: &mut Rng, leaf: &mut Value) {
    *leaf = match leaf {
        Value::Integer(number) => {
            let number = i128::from(*number) as u64;
            let extremes = [0, 1, 0xffff, 1 << 31, 1 << 32, u64::MAX >> 1, u64::MAX];
            let changed = match rng.below(3) {
                0 => extremes[rng.below(7) as usize],
                1 => number.wrapping_add(rng.below(2000)).wrapping_sub(1000),
                _ => number ^ 1 << rng.below(64),
            };
            Value::Integer(changed.into())
        }
        Value::Bool(truth) => Value::Bool(!*truth),
        _ => Value::Integer(rng.next().into()),
    };
}

#[test]
fn records_with_a_value_changed_are_refused_or_go_on() {
    let (mut refused, mut went_on) = (0, 0);
    for seed in 0..6000 {
        let mut rng = Rng(seed);
        let mut cuts = Cuts::default();
        (0..20).for_each(|_| cuts.push(1 + rng.below(1000)));
        let connection = any_connection(&mut rng, &mut cuts);
        let mut value = Value::serialized(&connection.save()).unwrap();
        let mut found = Vec::new();
        leaves(&mut value, &mut found);
        assert!(found.len() > 80);
        let index = rng.below(found.len() as u64) as usize;
        change(&mut rng, found[index]);
        println!("seed {seed}, leaf {index}: {:?}", found[index]);
        let read = value.deserialized::<Saved>().ok().and_then(|saved| saved.restore().ok());
        match read {
            None => refused += 1,
            Some(mut connection) => {
                went_on += 1;
                go_on(&mut rng, &mut connection, &mut cuts, 20);
            }
        }
    }
    assert!(refused > 500 && went_on > 500, "{refused} refused, {went_on} went on");
}
