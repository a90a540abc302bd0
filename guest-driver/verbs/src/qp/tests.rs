use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn ring(limit: u32) -> WrRing<Vec<AtomicU64>> {
    let wr_ids = (0..WrRing::<Vec<AtomicU64>>::storage_len(limit)).map(|_| AtomicU64::new(0)).collect();
    WrRing::new(wr_ids, limit).unwrap()
}

fn post(ring: &WrRing<Vec<AtomicU64>>, wr_id: u64) -> Option<u32> {
    let wqe_id = ring.next()?;
    ring.push(wr_id);
    Some(wqe_id)
}

#[test]
fn takes_as_many_as_allowed() {
    let ring = ring(5);
    let ids: Vec<u32> = (0..5).map(|i| post(&ring, i).unwrap()).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    assert_eq!((ring.next(), ring.outstanding(), ring.limit()), (None, 5, 5));
    assert_eq!(ring.complete(0), Some(0));
    assert_eq!(ring.next(), Some(5));
}

#[test]
fn a_queue_of_none_takes_none() {
    let ring = ring(0);
    assert_eq!((ring.next(), ring.complete(0)), (None, None));
}

#[test]
fn a_completion_retires_the_unsignaled_before_it() {
    let ring = ring(4);
    let ids: Vec<u32> = (0..4).map(|i| post(&ring, 10 + i).unwrap()).collect();
    assert_eq!(ring.complete(ids[2]), Some(12));
    assert_eq!(ring.outstanding(), 1);
    for id in &ids[..3] {
        assert_eq!(ring.complete(*id), None, "retired already");
    }
    assert_eq!(ring.complete(ids[3]), Some(13));
}

#[test]
fn completions_of_nothing_are_refused() {
    let ring = ring(4);
    post(&ring, 1);
    for wqe_id in [1, 2, u32::MAX, 1 << 31] {
        assert_eq!(ring.complete(wqe_id), None);
    }
    assert_eq!(ring.outstanding(), 1);
}

#[test]
fn requests_that_were_not_released_can_be_taken_back() {
    let ring = ring(4);
    for i in 0..3 {
        post(&ring, i);
    }
    ring.take_back(2);
    assert_eq!((ring.outstanding(), ring.next()), (1, Some(1)));
    assert_eq!(ring.complete(1), None);
    post(&ring, 77);
    assert_eq!(ring.complete(1), Some(77));
}

#[test]
fn what_a_device_says_it_completed_before_it_had_it_is_not_taken_back_as_well() {
    let ring = ring(4);
    let ids: Vec<u32> = (0..2).map(|i| post(&ring, i).unwrap()).collect();
    assert_eq!(ring.complete(ids[1]), Some(1));
    ring.take_back(2);
    assert_eq!(ring.outstanding(), 0);
    let ids: Vec<u32> = (0..4).map(|i| post(&ring, 50 + i).unwrap()).collect();
    assert_eq!((ring.next(), ring.outstanding()), (None, 4));
    assert_eq!(ring.complete(ids[3]), Some(53));
}

#[test]
fn completions_from_before_a_reset_are_refused() {
    let ring = ring(4);
    let old: Vec<u32> = (0..4).map(|i| post(&ring, i).unwrap()).collect();
    ring.reset();
    assert_eq!(ring.outstanding(), 0);
    let new = post(&ring, 50).unwrap();
    for id in old {
        assert_eq!(ring.complete(id), None);
    }
    assert_eq!(ring.complete(new), Some(50));
}

#[test]
fn storage_must_be_a_power_of_two_and_large_enough() {
    let storage = |len| (0..len).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    assert!(WrRing::new(storage(4), 5).is_none());
    assert!(WrRing::new(storage(6), 5).is_none());
    assert!(WrRing::new(storage(0), 0).is_none());
    assert!(WrRing::new(storage(8), 5).is_some());
    assert_eq!(WrRing::<Vec<AtomicU64>>::storage_len(5), 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Compares it with a queue of the standard library, also where the 32-bit counter wraps.
    #[test]
    fn behaves_like_a_queue(
        limit in 1u32..20,
        start in prop_oneof![Just(0u32), (u32::MAX - 40)..=u32::MAX],
        steps in prop::collection::vec((any::<bool>(), 0usize..20), 0..200),
    ) {
        let ring = ring(limit);
        ring.head.store(start, Ordering::Relaxed);
        ring.tail.store(start, Ordering::Relaxed);
        let mut model = VecDeque::new();
        for (number, (posts, pick)) in steps.into_iter().enumerate() {
            if posts {
                let wqe_id = post(&ring, number as u64);
                prop_assert_eq!(wqe_id.is_some(), model.len() < limit as usize);
                if let Some(wqe_id) = wqe_id {
                    model.push_back((wqe_id, number as u64));
                }
            } else if let Some((wqe_id, wr_id)) = model.get(pick).copied() {
                prop_assert_eq!(ring.complete(wqe_id), Some(wr_id));
                model.drain(..=pick);
            }
            prop_assert_eq!(ring.outstanding() as usize, model.len());
        }
    }
}
