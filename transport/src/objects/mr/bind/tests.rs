use super::*;
use crate::objects::mr::Holder;
use vrdma_wire::num::Lkey;

const PD: PdId = PdId(3);
const OTHER_PD: PdId = PdId(4);
const RW: Access = Access(Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0);

/// A region of 100 bytes from 1000 on, and two QPs.
struct Bench {
    mrs: Mrs<char>,
    region: u32,
    /// Lives of QPs 1 and 2.
    lives: [QpLife; 2],
}

impl Bench {
    fn new() -> Bench {
        let mut mrs = Mrs::new(20);
        let region = add(&mut mrs, PD, Access::LOCAL_WRITE | Access::MW_BIND, 'a');
        Bench { mrs, region, lives: [QpLife::NONE; 2] }
    }

    fn window(&mut self, mw_type: MwType) -> Rkey {
        self.mrs.add_window(|_| 7, PD, mw_type).unwrap()
    }

    /// Binds 10 bytes from 1020 on by QP `qp`, and returns the window's new key.
    fn bind_10(&mut self, qp: usize, rkey: Rkey) -> Result<Rkey, BindError> {
        let new_rkey = Rkey(rkey.0 ^ 1);
        let bind = self.ten_bytes(rkey);
        self.bind(qp, &Bind { new_rkey, ..bind }).map(|()| new_rkey)
    }

    fn ten_bytes(&self, rkey: Rkey) -> Bind {
        Bind { rkey, new_rkey: rkey, lkey: Lkey(self.region), access: RW, addr: 1020, length: 10 }
    }

    fn bind(&mut self, qp: usize, bind: &Bind) -> Result<(), BindError> {
        let qpn = Qpn::new(qp as u32 + 1).unwrap();
        self.mrs.bind(bind, Binder { pd: PD, qpn, life: &mut self.lives[qp] })
    }

    /// Returns what the peer of QP `qp` finds at an address of a window.
    fn finds(&self, qp: usize, key: Rkey, addr: u64, length: u64) -> Option<u64> {
        let holder = Holder { pd: PD, life: &self.lives[qp] };
        self.mrs.remote(key, holder, Access::REMOTE_READ, addr, length).map(|(memory, offset)| {
            assert_eq!(*memory, 'a');
            offset
        })
    }

    fn may_invalidate(&self, qp: usize, key: Rkey) -> bool {
        self.mrs.may_invalidate(key, Holder { pd: PD, life: &self.lives[qp] })
    }

    fn has_windows(&self) -> bool {
        self.mrs.region(self.region).unwrap().1.has_windows()
    }
}

fn add(mrs: &mut Mrs<char>, pd: PdId, access: Access, memory: char) -> u32 {
    mrs.keys.insert(|_| 9, |key| Key::region(key, pd, access, (1000, 100), memory)).unwrap()
}

#[test]
fn a_window_shows_its_part_of_the_region_and_no_more() {
    for mw_type in [MwType::Type1, MwType::Type2B] {
        let mut bench = Bench::new();
        let old = bench.window(mw_type);
        assert_eq!(
            (bench.finds(0, old, 1020, 1), bench.finds(0, old, 0, 0)),
            (None, None),
            "it is not bound"
        );
        let key = bench.bind_10(0, old).unwrap();
        assert_eq!(bench.finds(0, key, 1020, 10), Some(20));
        assert_eq!(bench.finds(0, key, 1029, 1), Some(29));
        for (addr, length) in [(1019, 1), (1020, 11), (1030, 1), (0, 1), (u64::MAX, 1), (1020, u64::MAX)] {
            assert_eq!(bench.finds(0, key, addr, length), None, "{addr} {length}");
        }
        assert_eq!(bench.finds(0, old, 1020, 1), None, "the tag is another");
        let holder = Holder { pd: PD, life: &bench.lives[0] };
        let atomic = bench.mrs.remote(key, holder, Access::REMOTE_ATOMIC, 1020, 8);
        assert!(atomic.is_none(), "it was bound without");
        let holder = Holder { pd: OTHER_PD, ..holder };
        assert!(bench.mrs.remote(key, holder, Access::REMOTE_READ, 1020, 8).is_none(), "another PD");
        assert!(bench.mrs.local(Lkey(key.0), PD, Access::NONE, 1020, 1).is_none(), "it is for peers");
    }
}

#[test]
fn a_window_counts_from_zero_if_it_was_bound_so() {
    let mut bench = Bench::new();
    let key = bench.window(MwType::Type2B);
    let bind = bench.ten_bytes(key);
    bench.bind(0, &Bind { access: RW | Access::ZERO_BASED, ..bind }).unwrap();
    assert_eq!((bench.finds(0, key, 0, 10), bench.finds(0, key, 9, 1)), (Some(20), Some(29)));
    assert_eq!((bench.finds(0, key, 10, 1), bench.finds(0, key, 1020, 1)), (None, None));
}

#[test]
fn type_1_is_every_qps_and_type_2b_its_binders() {
    let mut bench = Bench::new();
    let (one, two) = (bench.window(MwType::Type1), bench.window(MwType::Type2B));
    let (one, two) = (bench.bind_10(0, one).unwrap(), bench.bind_10(0, two).unwrap());
    assert_eq!((bench.finds(0, one, 1020, 1), bench.finds(1, one, 1020, 1)), (Some(20), Some(20)));
    assert_eq!((bench.finds(0, two, 1020, 1), bench.finds(1, two, 1020, 1)), (Some(20), None));
    // Any QP may bind and unbind type 1 again. Only its own QP may invalidate type 2B.
    let one = bench.bind_10(1, one).unwrap();
    assert_eq!(bench.bind_10(0, two), Err(BindError));
    assert_eq!([one, two].map(|key| bench.may_invalidate(1, key)), [false, false]);
    assert_eq!([one, two].map(|key| bench.may_invalidate(0, key)), [false, true]);
    let holder = Holder { pd: PD, life: &bench.lives[0] };
    assert!(bench.mrs.invalidate(two, holder) && !bench.mrs.invalidate(two, holder));
    assert_eq!(bench.finds(0, two, 1020, 1), None);
    assert!(bench.has_windows());
    let nothing = Bind { length: 0, lkey: Lkey(0), ..bench.ten_bytes(one) };
    bench.bind(1, &nothing).unwrap();
    assert_eq!((bench.finds(0, one, 1020, 1), bench.has_windows()), (None, false));
    // Then another QP may bind it.
    let two = bench.bind_10(1, two).unwrap();
    assert_eq!((bench.finds(0, two, 1020, 1), bench.finds(1, two, 1020, 1)), (None, Some(20)));
}

#[test]
fn of_the_new_key_the_low_8_bits_count_alone() {
    for mw_type in [MwType::Type1, MwType::Type2B] {
        for rest in [0, 0x100, 0x5500, 0xffff_ff00] {
            let mut bench = Bench::new();
            let old = bench.window(mw_type);
            let bind = bench.ten_bytes(old);
            bench.bind(0, &Bind { new_rkey: Rkey(rest | 0xab), ..bind }).unwrap();
            let key = Rkey(old.0 & !0xff | 0xab);
            assert_eq!(bench.finds(0, key, 1020, 10), Some(20), "{rest:#x}");
            assert_eq!(bench.finds(0, Rkey(rest | 0xab), 1020, 10), None, "{rest:#x}");
            if mw_type == MwType::Type1 {
                let nothing = Bind { rkey: key, new_rkey: Rkey(rest | 0xcd), length: 0, ..bind };
                bench.bind(0, &nothing).unwrap();
                assert_eq!(bench.mrs.remove_window(Rkey(old.0 & !0xff | 0xcd)), Some(PD));
            }
        }
    }
}

#[test]
fn what_cannot_be_bound_changes_nothing() {
    let mut bench = Bench::new();
    let (one, two) = (bench.window(MwType::Type1), bench.window(MwType::Type2B));
    let one = bench.bind_10(0, one).unwrap();
    let elsewhere = bench.mrs.add_window(|_| 7, OTHER_PD, MwType::Type1).unwrap();
    let regions =
        [(PD, Access::LOCAL_WRITE), (PD, Access::MW_BIND), (OTHER_PD, Access::LOCAL_WRITE | Access::MW_BIND)];
    let [unbindable, read_only, of_other_pd] =
        regions.map(|(pd, access)| Lkey(add(&mut bench.mrs, pd, access, 'b')));
    let (bind_1, bind_2) = (bench.ten_bytes(one), bench.ten_bytes(two));
    let cases = [
        ("the region", Bind { rkey: Rkey(bench.region), new_rkey: Rkey(bench.region), ..bind_1 }),
        ("a stale tag", Bind { rkey: Rkey(one.0 ^ 1), ..bind_1 }),
        ("another PD's window", Bind { rkey: elsewhere, new_rkey: elsewhere, ..bind_1 }),
        ("another PD's region", Bind { lkey: of_other_pd, ..bind_1 }),
        ("no region", Bind { lkey: Lkey(0x00de_ad00), ..bind_1 }),
        ("a window as region", Bind { lkey: Lkey(one.0), ..bind_2 }),
        ("no right to bind", Bind { lkey: unbindable, ..bind_1 }),
        ("writing what is not writable", Bind { lkey: read_only, ..bind_1 }),
        (
            "atomics of what is not writable",
            Bind { lkey: read_only, access: Access::REMOTE_ATOMIC, ..bind_1 },
        ),
        ("local rights", Bind { access: Access::LOCAL_WRITE, ..bind_1 }),
        ("unknown rights", Bind { access: Access(64), ..bind_1 }),
        ("type 1 from zero", Bind { access: RW | Access::ZERO_BASED, ..bind_1 }),
        ("before the region", Bind { addr: 999, ..bind_1 }),
        ("behind the region", Bind { addr: 1091, ..bind_1 }),
        ("far too much", Bind { length: u64::MAX, ..bind_1 }),
        ("nothing, of type 2B", Bind { length: 0, ..bind_2 }),
    ];
    for (case, bind) in cases {
        assert_eq!(bench.bind(0, &bind), Err(BindError), "{case}");
        assert_eq!((bench.finds(0, one, 1020, 10), bench.finds(0, two, 1020, 1)), (Some(20), None), "{case}");
    }
    for lkey in [unbindable, read_only, of_other_pd] {
        assert!(!bench.mrs.region(lkey.0).unwrap().1.has_windows());
    }
    // Everything is right except the right to read.
    bench.bind(0, &Bind { lkey: read_only, access: Access::REMOTE_READ, ..bind_2 }).unwrap();
    assert!(bench.mrs.region(read_only.0).unwrap().1.has_windows());
}

#[test]
fn a_qp_that_is_gone_takes_its_windows_along() {
    let mut bench = Bench::new();
    let keys = [MwType::Type2B, MwType::Type1, MwType::Type2B].map(|mw_type| bench.window(mw_type));
    let [a, b, c] =
        [(0, keys[0]), (0, keys[1]), (1, keys[2])].map(|(qp, key)| bench.bind_10(qp, key).unwrap());
    // The QP was reset: its number is unchanged.
    let gone = std::mem::replace(&mut bench.lives[0], QpLife::NONE);
    assert_eq!(bench.finds(0, a, 1020, 1), None, "at once");
    assert!(!bench.may_invalidate(0, a));
    bench.mrs.qp_gone(gone);
    let lives = bench.lives;
    let life = |qpn: Qpn| lives.get(qpn.number() as usize - 1).copied();
    assert_eq!(bench.bind_10(0, a), Err(BindError), "not before it is unbound");
    let mut slices = 0;
    while bench.mrs.is_unbinding() {
        bench.mrs.unbind_some(&mut 1, life);
        slices += 1;
    }
    assert_eq!(slices, bench.mrs.keys.indices());
    assert_eq!([b, c].map(|key| bench.finds(1, key, 1020, 1)), [Some(20); 2], "others stay");
    let a = bench.bind_10(0, a).unwrap();
    assert_eq!((bench.finds(0, a, 1020, 1), bench.finds(1, a, 1020, 1)), (Some(20), None));
    // The QP has bound none of type 2B, so there is nothing to look for.
    bench.mrs.qp_gone(QpLife::NONE);
    assert!(!bench.mrs.is_unbinding());
    for key in [a, b, c] {
        assert!(bench.has_windows());
        assert_eq!(bench.mrs.remove_window(Rkey(key.0 ^ 0x55)), Some(PD), "whatever the tag");
        assert_eq!(bench.mrs.remove_window(key), None);
    }
    assert_eq!((bench.has_windows(), bench.mrs.num_windows(), bench.mrs.num_regions()), (false, 0, 1));
    assert_eq!(bench.mrs.remove_window(Rkey(bench.region)), None, "a region is none");
}

#[test]
fn the_next_user_of_an_index_does_not_get_the_tag_that_a_bind_chose() {
    let mut bench = Bench::new();
    let old = bench.window(MwType::Type2B);
    let key = bench.bind_10(0, old).unwrap();
    bench.mrs.remove_window(key);
    let mut seen = None;
    for _ in 0..200 {
        let next = bench.mrs.add_window(|last| last + 1, PD, MwType::Type1).unwrap();
        if KEYS.index(next.0) == KEYS.index(key.0) {
            seen = Some(next);
            break;
        }
        bench.mrs.remove_window(next);
    }
    assert_eq!(seen, Some(Rkey(key.0 + 1)));
}
