//! Memory windows that are bound, invalidated, freed and used at random.
//!
//! A model knows what each key names at each moment. A key gives access to exactly those bytes of
//! memory.

use super::*;
use proptest::prelude::*;

/// Connections from A to B. The last one has another PD at B.
const CONNECTIONS: usize = 3;
/// Regions of B. The last is in the last connection's PD, the others in that of the other
/// connections.
const REGIONS: usize = 3;
/// Bytes of each region.
const LENGTH: u64 = 256;
const RIGHTS: [Access; REGIONS] = [Access::REGION, Access::MW_BIND, Access::REGION];
const NOTHING: Payload<'_> = Payload::Sges(&[]);

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        other_pd: bool,
        type_2b: bool,
    },
    Dealloc {
        window: usize,
    },
    Bind {
        by: usize,
        window: usize,
        region: usize,
        addr: u64,
        length: u64,
        access: u32,
        tag: u8,
        stale: bool,
    },
    Invalidate {
        by: usize,
        window: usize,
        stale: bool,
    },
    SendInvalidate {
        to: usize,
        window: usize,
        stale: bool,
    },
    Write {
        to: usize,
        key: usize,
        addr: u64,
        length: u64,
        stale: bool,
    },
    Read {
        to: usize,
        key: usize,
        addr: u64,
        length: u64,
        stale: bool,
    },
    Reset {
        connection: usize,
        destroy: bool,
    },
    Rereg {
        region: usize,
    },
    Poll,
}

fn op() -> impl Strategy<Value = Op> {
    let (connection, window, region) = (0..CONNECTIONS, 0..8usize, 0..REGIONS);
    // Mostly within the region.
    let addr = prop_oneof![8 => 0..LENGTH, 1 => Just(LENGTH), 1 => Just(u64::MAX - 0x5000)];
    let length = prop_oneof![8 => 1..LENGTH / 2, 1 => Just(0u64), 1 => Just(LENGTH + 1)];
    let stale = || prop::bool::weighted(0.1);
    // Mostly sets of remote rights, some of them zero-based.
    let access = prop_oneof![6 => (0u32..8).prop_map(|bits| bits << 1), 3 => (0u32..8).prop_map(|bits| bits << 1 | 32), 1 => 0u32..128];
    let place = (addr.clone(), length.clone());
    prop_oneof![
        2 => (prop::bool::weighted(0.2), any::<bool>()).prop_map(|(other_pd, type_2b)| Op::Alloc { other_pd, type_2b }),
        1 => window.clone().prop_map(|window| Op::Dealloc { window }),
        10 => (connection.clone(), window.clone(), region.clone(), place.clone(), access, any::<u8>(), stale()).prop_map(
            |(by, window, region, (addr, length), access, tag, stale)| Op::Bind { by, window, region, addr, length, access, tag, stale }
        ),
        4 => (connection.clone(), window.clone(), stale()).prop_map(|(by, window, stale)| Op::Invalidate { by, window, stale }),
        4 => (connection.clone(), window.clone(), stale()).prop_map(|(to, window, stale)| Op::SendInvalidate { to, window, stale }),
        10 => (connection.clone(), 0..12usize, place.clone(), stale())
            .prop_map(|(to, key, (addr, length), stale)| Op::Write { to, key, addr, length, stale }),
        10 => (connection.clone(), 0..12usize, place, stale())
            .prop_map(|(to, key, (addr, length), stale)| Op::Read { to, key, addr, length, stale }),
        1 => (connection, any::<bool>()).prop_map(|(connection, destroy)| Op::Reset { connection, destroy }),
        1 => region.prop_map(|region| Op::Rereg { region }),
        2 => Just(Op::Poll),
    ]
}

/// The memory that a window of the model gives access to.
#[derive(Copy, Clone, Debug)]
struct Shown {
    region: usize,
    offset: u64,
    length: u64,
    access: Access,
    /// Address of the first byte, for peers.
    iova: u64,
    /// Connection of the QP that bound it, for type 2B.
    by: Option<usize>,
}

#[derive(Copy, Clone, Debug)]
struct MwModel {
    key: Rkey,
    other_pd: bool,
    type_2b: bool,
    shown: Option<Shown>,
}

struct Model {
    pair: Pair,
    /// QPs of A and B.
    ends: Vec<[End; 2]>,
    regions: Vec<(u32, Mem, Vec<u8>)>,
    windows: Vec<MwModel>,
    next: u8,
}

fn is_other(connection: usize) -> bool {
    connection == CONNECTIONS - 1
}

fn is_region_of(region: usize, other_pd: bool) -> bool {
    (region == REGIONS - 1) == other_pd
}

impl Model {
    fn new() -> Model {
        let mut pair = Pair::new();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let other = pair.engine.alloc_pd(b.device, OWNER).unwrap();
        let ends = (0..CONNECTIONS).map(|connection| {
            let pd = if is_other(connection) { other } else { b.pd };
            let [a, b] = [a.clone(), End { pd, ..b.clone() }];
            [a, b].map(|end| End { qpn: pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end })
        });
        let ends: Vec<_> = ends.collect();
        let regions = (0..REGIONS).map(|region| {
            let pd = if is_region_of(region, true) { other } else { b.pd };
            let memory = Mem::new(LENGTH as usize);
            let key = pair.engine.reg_mr(b.device, pd, RIGHTS[region], IOVA, LENGTH, memory.clone()).unwrap();
            (key, memory, vec![0; LENGTH as usize])
        });
        let regions = regions.collect();
        let mut model = Model { pair, ends, regions, windows: Vec::new(), next: 0 };
        (0..CONNECTIONS).for_each(|connection| model.connect(connection));
        model
    }

    fn connect(&mut self, connection: usize) {
        let [a, b] = self.ends[connection].clone();
        for (own, peer) in [(&a, &b), (&b, &a)] {
            self.pair.connect(own, attr_to(peer), QpState::Rts);
        }
    }

    /// Resets or recreates both ends, which removes the windows of B's QP.
    fn reset(&mut self, connection: usize, destroy: bool) {
        for end in self.ends[connection].clone() {
            self.pair.go(&end, QpState::Reset);
            if destroy {
                let init = self.pair.engine.destroy_qp(end.device, end.qpn).unwrap();
                let qpn = self.pair.engine.create_qp(end.device, init).unwrap();
                let ends = &mut self.ends[connection];
                let at = usize::from(ends[1].device == end.device);
                ends[at].qpn = qpn;
            }
        }
        for window in &mut self.windows {
            window.shown = window.shown.filter(|shown| shown.by != Some(connection));
        }
        self.connect(connection);
    }

    /// Posts a request and asserts its status. After an error, connects again.
    fn ends_as(
        &mut self,
        connection: usize,
        from: usize,
        op: SendOp,
        payload: Payload<'_>,
        expected: WcStatus,
    ) {
        let end = self.ends[connection][from].clone();
        self.pair.post(&end, 1, op, payload).unwrap();
        self.pair.run();
        let sends = self.pair.log.completions.drain(..).filter(|(_, _, end)| end.opcode != WcOpcode::Recv);
        let statuses: Vec<_> = sends.map(|(_, _, end)| end.status).collect();
        assert_eq!(statuses, [expected], "{op:?}");
        if expected != WcStatus::Success {
            self.reset(connection, false);
        }
    }

    fn unbinding(&mut self) {
        let b = self.pair.b.device;
        while self.pair.engine.is_unbinding(b) {
            self.pair.engine.poll(self.pair.now, 1, &mut self.pair.log);
        }
    }

    /// Returns the region and offset that a key names for the peer of a connection's QP at B.
    fn named(
        &self,
        connection: usize,
        key: Rkey,
        right: Access,
        addr: u64,
        length: u64,
    ) -> Option<(usize, u64)> {
        let inside = |first: u64, room: u64| {
            let offset = addr.checked_sub(first)?;
            (offset <= room && length <= room - offset).then_some(offset)
        };
        if let Some(region) = self.regions.iter().position(|region| region.0 == key.0) {
            let reach = is_region_of(region, is_other(connection)) && RIGHTS[region].contains(right);
            return Some((region, inside(IOVA, LENGTH).filter(|_| reach)?));
        }
        let window = self.windows.iter().find(|window| window.key == key)?;
        let shown = window.shown?;
        let mine = window.other_pd == is_other(connection) && shown.by.is_none_or(|by| by == connection);
        let offset = inside(shown.iova, shown.length).filter(|_| mine && shown.access.contains(right))?;
        Some((shown.region, shown.offset + offset))
    }

    /// Returns a key of B, or a former key.
    fn key(&self, number: usize, stale: bool) -> Rkey {
        let keys =
            self.regions.iter().map(|region| Rkey(region.0)).chain(self.windows.iter().map(|it| it.key));
        let keys: Vec<_> = keys.collect();
        Rkey(keys[number % keys.len()].0 ^ u32::from(stale))
    }

    /// Returns the window of a key, if a connection's QP may invalidate it.
    fn invalidable(&mut self, connection: usize, key: Rkey) -> Option<&mut MwModel> {
        let found = self.windows.iter_mut().find(|window| window.key == key)?;
        (found.shown?.by == Some(connection)).then_some(found)
    }

    fn transfer(&mut self, (to, key, addr, length): (usize, Rkey, u64, u64), write: bool) {
        self.next = self.next.wrapping_add(1).max(1);
        let right = if write { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
        // A request without bytes needs no key.
        let named = self.named(to, key, right, addr, length);
        let right = named.is_some() || length == 0;
        let expected = if right { WcStatus::Success } else { WcStatus::RemAccess };
        let remote = Remote { addr, rkey: key };
        let a = self.ends[to][0].clone();
        let sges = [a.sge(0, length as u32)];
        a.memory.fill(0, &vec![self.next; length as usize]);
        let op = if write { write_to(remote) } else { SendOp::Read { remote } };
        self.ends_as(to, 0, op, Payload::Sges(&sges), expected);
        if let Some((region, offset)) = named.filter(|_| length > 0) {
            let range = offset as usize..(offset + length) as usize;
            match write {
                true => self.regions[region].2[range].fill(self.next),
                false => assert_eq!(a.memory.bytes(0, length as usize), self.regions[region].2[range]),
            }
        } else if !write {
            assert_eq!(a.memory.bytes(0, length as usize), vec![self.next; length as usize]);
        }
        for (_, memory, expected) in &self.regions {
            assert_eq!(&memory.bytes(0, LENGTH as usize), expected);
        }
    }

    fn bind(&mut self, by: usize, window: usize, bind: Bind, region: usize) {
        let Bind { rkey, access, addr, length, .. } = bind;
        let MwModel { key, other_pd, type_2b, shown } = self.windows[window];
        let writes = access.has_any(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let zero_based = access.contains(Access::ZERO_BASED);
        let inside = addr.checked_sub(IOVA).filter(|at| *at <= LENGTH && length <= LENGTH - at);
        let of_window = rkey == key
            && other_pd == is_other(by)
            && access.0 & !(2 | 4 | 8 | 32) == 0
            && if type_2b { shown.is_none() && length > 0 } else { !zero_based };
        let of_region = length == 0
            || is_region_of(region, is_other(by))
                && inside.is_some()
                && (!writes || RIGHTS[region].contains(Access::LOCAL_WRITE));
        if type_2b {
            // A window whose QP is gone is unbound a little later. Commands wait for that.
            self.unbinding();
        }
        let right = of_window && of_region;
        if right {
            let iova = if zero_based { 0 } else { addr };
            let offset = inside.unwrap_or(0);
            let shown = Shown { region, offset, length, access, iova, by: type_2b.then_some(by) };
            let window = &mut self.windows[window];
            (window.key, window.shown) = (bind.new_rkey, (length > 0).then_some(shown));
        }
        let expected = if right { WcStatus::Success } else { WcStatus::MwBind };
        self.ends_as(by, 1, SendOp::BindMw(bind), NOTHING, expected);
    }

    fn apply(&mut self, op: Op) {
        let (device, pds) = (self.pair.b.device, [&self.ends[0], &self.ends[2]].map(|ends| ends[1].pd));
        let windows = self.windows.len().max(1);
        match op {
            Op::Alloc { other_pd, type_2b } => {
                if self.windows.len() < 8 {
                    let mw_type = if type_2b { MwType::Type2B } else { MwType::Type1 };
                    let key = self.pair.engine.alloc_mw(device, pds[usize::from(other_pd)], mw_type).unwrap();
                    self.windows.push(MwModel { key, other_pd, type_2b, shown: None });
                }
            }
            Op::Poll => _ = self.pair.engine.poll(self.pair.now, 1, &mut self.pair.log),
            Op::Reset { connection, destroy } => self.reset(connection, destroy),
            Op::Rereg { region } => {
                self.unbinding();
                let busy =
                    self.windows.iter().any(|window| window.shown.is_some_and(|it| it.region == region));
                let change = Rereg { pd: None, access: None, memory: None };
                match self.pair.engine.rereg_mr(device, self.regions[region].0, change) {
                    Ok((key, _)) => {
                        assert!(!busy);
                        self.regions[region].0 = key;
                    }
                    Err(error) => assert!(busy && error == Error::Busy, "{error:?}"),
                }
            }
            Op::Write { to, key, addr, length, stale } => {
                let place = self.place(key, addr);
                self.transfer((to, self.key(key, stale), place, length), true);
            }
            Op::Read { to, key, addr, length, stale } => {
                let place = self.place(key, addr);
                self.transfer((to, self.key(key, stale), place, length), false);
            }
            _ if self.windows.is_empty() => {}
            Op::Dealloc { window } => {
                let window = self.windows.swap_remove(window % windows);
                self.pair.engine.dealloc_mw(device, window.key).unwrap();
            }
            Op::Bind { by, window, region, addr, length, access, tag, stale } => {
                let window = window % windows;
                let rkey = Rkey(self.windows[window].key.0 ^ u32::from(stale));
                let bind = Bind {
                    rkey,
                    new_rkey: Rkey(rkey.0 & !0xff | u32::from(tag)),
                    lkey: Lkey(self.regions[region].0),
                    access: Access(access),
                    addr: IOVA.wrapping_add(addr),
                    length,
                };
                self.bind(by, window, bind, region);
            }
            Op::Invalidate { by, window, stale } => {
                let key = Rkey(self.windows[window % windows].key.0 ^ u32::from(stale));
                let right = self.invalidable(by, key).map(|window| window.shown = None).is_some();
                let expected = if right { WcStatus::Success } else { WcStatus::LocQpOp };
                self.ends_as(by, 1, SendOp::LocalInvalidate { key }, NOTHING, expected);
            }
            Op::SendInvalidate { to, window, stale } => {
                let key = Rkey(self.windows[window % windows].key.0 ^ u32::from(stale));
                let b = self.ends[to][1].clone();
                self.pair.post_recv(&b, 2, &[]).unwrap();
                let right = self.invalidable(to, key).map(|window| window.shown = None).is_some();
                let expected = if right { WcStatus::Success } else { WcStatus::RemAccess };
                self.ends_as(to, 0, SendOp::SendInvalidate { key }, NOTHING, expected);
            }
        }
    }

    /// Returns an address for a key. Addresses of zero-based windows count from 0.
    fn place(&self, number: usize, addr: u64) -> u64 {
        let at = number % (self.regions.len() + self.windows.len());
        let window = at.checked_sub(self.regions.len()).and_then(|at| self.windows[at].shown);
        let first = window.map_or(IOVA, |shown| if shown.iova == 0 { 0 } else { IOVA });
        first.wrapping_add(addr)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn a_key_reaches_what_it_names_then_and_nothing_else(ops in proptest::collection::vec(op(), 1..150)) {
        let mut model = Model::new();
        ops.into_iter().for_each(|op| model.apply(op));
        let device = model.pair.b.device;
        for window in &model.windows {
            model.pair.engine.dealloc_mw(device, window.key).unwrap();
        }
        for (key, ..) in &model.regions {
            model.pair.engine.dereg_mr(device, *key).expect("no window is bound any more");
        }
    }
}
