use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;
use vrdma_abi::wqe::WqeHeader;
use vrdma_abi::zerocopy::{FromBytes, IntoBytes};

use super::*;

const TAG: Tag = Tag { qpn: 0x0012_3456, wqe_id: 0x89ab_cdef };
const REMOTE: Remote = Remote { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };

/// Returns the bytes of a request.
fn bytes(request: &Request<'_>) -> Vec<u8> {
    let mut units = [Unit([u64::MAX; 8]); 9];
    let count = request.encode(&mut units).unwrap();
    assert!(units[count..].iter().all(|unit| *unit == Unit([u64::MAX; 8])), "wrote beyond its units");
    words(&units[..count])
}

fn words(units: &[Unit]) -> Vec<u8> {
    units.iter().flat_map(|unit| unit.0).flat_map(u64::to_ne_bytes).collect()
}

fn header(bytes: &[u8]) -> WqeHeader {
    WqeHeader::read_from_prefix(bytes).unwrap().0
}

fn sges(count: usize) -> Vec<Sge> {
    (0..count as u32)
        .map(|i| Sge { addr: 0x1000 + u64::from(i), length: 0x200 + i, lkey: 0x3000 + i })
        .collect()
}

#[test]
fn write_with_two_elements_has_the_bytes_of_the_abi() {
    let list = sges(2);
    let request = Request::write_imm(TAG, REMOTE, [1, 2, 3, 4], Data::Sges(&list)).signaled(true).fence(true);
    let expected: Vec<u8> = [
        &[1, 1, 5, 0][..],
        &[0x56, 0x34, 0x12, 0],
        &[0xef, 0xcd, 0xab, 0x89],
        &[2, 0, 0, 0],
        &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
        &[0xcc, 0xbb, 0xaa, 0x99],
        &[1, 2, 3, 4],
        &[0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0x30, 0, 0],
        &[1, 0x10, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 1, 0x30, 0, 0],
    ]
    .concat();
    assert_eq!(bytes(&request), expected);
}

#[test]
fn ud_send_names_address_handle_peer_and_key() {
    let to = UdTarget { ah: 0x0101_0202, qpn: 0x0303_0404, qkey: 0x0505_0606 };
    let bytes = bytes(&Request::ud_send_imm(TAG, to, [9, 8, 7, 6], Data::EMPTY).solicited(true));
    let body = UdBody::read_from_prefix(&bytes[16..]).unwrap().0;
    assert_eq!(header(&bytes).opcode, WrOpcode::SEND_WITH_IMM.0);
    assert_eq!(header(&bytes).flags.get(), flags::SOLICITED);
    assert_eq!((body.ah.get(), body.remote_qpn.get(), body.qkey.get()), (to.ah, to.qpn, to.qkey));
    assert_eq!(body.imm.as_bytes(), &[9, 8, 7, 6]);
    assert_eq!(bytes.len(), 64);
}

#[test]
fn atomics_have_their_operands_and_then_their_element() {
    let result = Sge { addr: 0xa1, length: 8, lkey: 0xa2 };
    let swap = bytes(&Request::compare_swap(TAG, REMOTE, 0xb1, 0xb2, &result));
    assert_eq!((swap[0], swap[1], swap[12]), (WrOpcode::ATOMIC_CMP_AND_SWP.0, 1, 1));
    let operands = AtomicOperands::read_from_prefix(&swap[32..]).unwrap().0;
    assert_eq!((operands.compare_add.get(), operands.swap.get()), (0xb1, 0xb2));
    let sge = vrdma_abi::wqe::Sge::read_from_prefix(&swap[48..]).unwrap().0;
    assert_eq!((sge.addr.get(), sge.length.get(), sge.lkey.get()), (0xa1, 8, 0xa2));
    let add = bytes(&Request::fetch_add(TAG, REMOTE, 0xb3, &result));
    assert_eq!(add[0], WrOpcode::ATOMIC_FETCH_AND_ADD.0);
    assert_eq!(u64::from_le_bytes(add[32..40].try_into().unwrap()), 0xb3);
}

#[test]
fn what_names_a_queue_of_the_peer_stands_before_the_rest() {
    let (list, result) = (sges(32), Sge { addr: 0xa1, length: 8, lkey: 0xa2 });
    let named = |request: Request<'_>| {
        let bytes = bytes(&request.xrc(0x0012_3456));
        assert_ne!(header(&bytes).flags.get() & flags::XRC, 0);
        assert_eq!(bytes[32..48], [0x56, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    };
    let write = named(Request::write(TAG, REMOTE, Data::Sges(&list[..1])));
    assert_eq!(write.len(), 64);
    assert_eq!(write[48..56], 0x1000u64.to_le_bytes());
    let inline = named(Request::send(TAG, Data::Inline(b"inline")));
    assert_eq!(inline[48..54], *b"inline");
    let swap = named(Request::compare_swap(TAG, REMOTE, 0xb1, 0xb2, &result));
    assert_eq!(swap.len(), 128);
    assert_eq!(swap[48..56], 0xb1u64.to_le_bytes());
    assert_eq!(swap[64..72], 0xa1u64.to_le_bytes());
    // The largest request can still name a queue.
    let most = named(Request::send(TAG, Data::Sges(&list)));
    assert_eq!(most.len(), 9 * 64);
    assert_eq!(most[48 + 31 * 16..][..8], 0x101fu64.to_le_bytes());
}

#[test]
fn an_atomic_write_is_one_unit_with_its_value() {
    let bytes = bytes(&Request::atomic_write(TAG, REMOTE, Data::Inline(b"12345678")));
    assert_eq!(
        (bytes.len(), header(&bytes).opcode, header(&bytes).sge_count),
        (64, WrOpcode::ATOMIC_WRITE.0, 0)
    );
    assert_eq!((header(&bytes).flags.get(), header(&bytes).inline_len.get()), (flags::INLINE, 8));
    let body = RdmaBody::read_from_prefix(&bytes[16..]).unwrap().0;
    assert_eq!((body.remote_addr.get(), body.rkey.get()), (REMOTE.addr, REMOTE.rkey));
    assert_eq!(bytes[32..40], *b"12345678");
}

#[test]
fn a_bind_names_both_keys_of_the_window_and_its_range() {
    let bind = Bind {
        rkey: 0x0102_0304,
        new_rkey: 0x0102_0305,
        lkey: 0x1112_1314,
        access: 0x26,
        addr: 0x2122_2324_2526_2728,
        length: 0x3132_3334_3536_3738,
    };
    let expected: Vec<u8> = [
        &[8, 1, 5, 0][..],
        &[0x56, 0x34, 0x12, 0],
        &[0xef, 0xcd, 0xab, 0x89],
        &[0, 0, 0, 0],
        &[4, 3, 2, 1],
        &[5, 3, 2, 1],
        &[0x14, 0x13, 0x12, 0x11],
        &[0x26, 0, 0, 0],
        &[0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21],
        &[0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31],
        &[0; 16],
    ]
    .concat();
    assert_eq!(bytes(&Request::bind_mw(TAG, &bind).signaled(true).fence(true)), expected);
}

#[test]
fn a_flush_says_of_what_and_how_far() {
    let expected = |level: u8| -> Vec<u8> {
        [
            &[14, 1, 1, 0][..],
            &[0x56, 0x34, 0x12, 0],
            &[0xef, 0xcd, 0xab, 0x89],
            &[0, 0, 0, 0],
            &REMOTE.addr.to_le_bytes(),
            &REMOTE.rkey.to_le_bytes(),
            &[2, level, 0, 0],
            &[4, 3, 2, 1],
            &[0; 28],
        ]
        .concat()
    };
    for (whole, level) in [(false, 0), (true, 1)] {
        let flush = Flush { placement: 2, whole, length: 0x0102_0304 };
        assert_eq!(bytes(&Request::flush(TAG, REMOTE, flush).signaled(true)), expected(level));
    }
}

#[test]
fn invalidations_name_their_key() {
    let list = sges(1);
    let rkey = 0x99aa_bbcc;
    for (request, opcode, elements) in [
        (Request::local_inv(TAG, rkey), WrOpcode::LOCAL_INV, 0),
        (Request::send_inv(TAG, rkey, Data::Sges(&list)), WrOpcode::SEND_WITH_INV, 1),
    ] {
        let bytes = bytes(&request);
        let (header, body) = (header(&bytes), RdmaBody::read_from_prefix(&bytes[16..]).unwrap().0);
        assert_eq!((header.opcode, header.units, header.sge_count), (opcode.0, 1, elements));
        assert_eq!((body.remote_addr.get(), body.rkey.get(), body.imm.get()), (0, rkey, 0));
    }
}

#[test]
fn opcode_of_each_kind() {
    let list = sges(1);
    let data = Data::Sges(&list);
    let to = UdTarget { ah: 0, qpn: 0, qkey: 0 };
    for (request, opcode) in [
        (Request::send(TAG, data), WrOpcode::SEND),
        (Request::send_imm(TAG, [0; 4], data), WrOpcode::SEND_WITH_IMM),
        (Request::write(TAG, REMOTE, data), WrOpcode::RDMA_WRITE),
        (Request::write_imm(TAG, REMOTE, [0; 4], data), WrOpcode::RDMA_WRITE_WITH_IMM),
        (Request::read(TAG, REMOTE, &list), WrOpcode::RDMA_READ),
        (Request::atomic_write(TAG, REMOTE, data), WrOpcode::ATOMIC_WRITE),
        (Request::ud_send(TAG, to, data), WrOpcode::SEND),
        (Request::recv(TAG, &list), WrOpcode::RECV),
    ] {
        let header = header(&bytes(&request));
        assert_eq!((header.opcode, header.sge_count, header.units), (opcode.0, 1, 1));
        assert_eq!((header.object.get(), header.wqe_id.get()), (TAG.qpn, TAG.wqe_id));
    }
}

#[test]
fn flags_can_be_set_and_cleared() {
    let request = Request::send(TAG, Data::EMPTY).signaled(true).fence(true).signaled(false);
    assert_eq!(header(&bytes(&request)).flags.get(), flags::FENCE);
}

#[test]
fn units_are_the_least_that_hold_the_request() {
    for (elements, units) in [(0, 1), (2, 1), (3, 2), (6, 2), (7, 3), (30, 8), (32, 9)] {
        assert_eq!(Request::recv(TAG, &sges(elements)).units(), Ok(units), "{elements} elements");
    }
    for (len, units) in [(0, 1), (1, 1), (32, 1), (33, 2), (96, 2), (97, 3), (480, 8), (512, 9)] {
        assert_eq!(Request::send(TAG, Data::Inline(&vec![0; len])).units(), Ok(units), "{len} bytes");
    }
    assert_eq!(Request::recv(TAG, &sges(33)).units(), Err(WqeError::TooManyElements));
    assert_eq!(Request::send(TAG, Data::Inline(&[0; 513])).units(), Err(WqeError::InlineTooLong));
}

#[test]
fn a_gather_of_many_gigabytes_is_too_long_and_not_read() {
    let list = [Sge { addr: 1, length: u32::MAX, lkey: 0 }; 16];
    // SAFETY: not read, because it is refused.
    let gather = unsafe { Gather::new(&list) };
    assert!(!gather.is_empty());
    assert_eq!(Request::send(TAG, Data::Gather(gather)).units(), Err(WqeError::InlineTooLong));
}

#[test]
fn an_empty_inline_payload_is_an_empty_message() {
    // SAFETY: an SGE of length 0 is not read.
    let gather = unsafe { Gather::new(&[Sge { addr: 0, length: 0, lkey: 0 }]) };
    for data in [Data::Inline(&[]), Data::Gather(gather), Data::EMPTY] {
        let header = header(&bytes(&Request::send(TAG, data)));
        assert_eq!((header.flags.get(), header.inline_len.get(), header.sge_count), (0, 0, 0));
    }
}

#[test]
fn a_buffer_too_small_is_left_alone() {
    let mut units = [Unit([7; 8]); 2];
    let list = sges(7);
    assert_eq!(Request::recv(TAG, &list).encode(&mut units), Err(WqeError::TooManyUnits));
    assert_eq!(units, [Unit([7; 8]); 2]);
}

#[test]
fn encoding_leaves_no_old_bytes_behind_the_request() {
    let bytes = bytes(&Request::send(TAG, Data::Inline(&[0xff; 5])));
    assert_eq!(&bytes[32..37], &[0xff; 5]);
    assert!(bytes[37..].iter().all(|byte| *byte == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

    /// Inline data arrives whole, wherever the end of the ring is within it, and however it was
    /// cut.
    #[test]
    fn inline_data_survives_the_end_of_the_ring(
        payload in prop::collection::vec(any::<u8>(), 0..=512),
        cuts in prop::collection::vec(0usize..=512, 0..5),
        first in 0usize..16,
        gather: bool,
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(payload.len())).collect();
        cuts.extend([0, payload.len()]);
        cuts.sort_unstable();
        let pieces: Vec<Sge> = cuts
            .windows(2)
            .map(|cut| {
                let piece = &payload[cut[0]..cut[1]];
                Sge { addr: piece.as_ptr().expose_provenance() as u64, length: piece.len() as u32, lkey: 0 }
            })
            .collect();
        let data = if gather {
            // SAFETY: the pieces are of `payload`.
            Data::Gather(unsafe { Gather::new(&pieces) })
        } else {
            Data::Inline(&payload)
        };
        let request = Request::send(TAG, data);
        let units = request.units().unwrap();
        let mut ring = [Unit::default(); 16];
        // SAFETY: sixteen units are enough for any request.
        unsafe { request.write_to(&Span::ring(ring.as_mut_ptr(), first, 16), units) };
        ring.rotate_left(first);
        let bytes = words(&ring);
        prop_assert_eq!(usize::from(header(&bytes).inline_len.get()), payload.len());
        prop_assert_eq!(&bytes[32..32 + payload.len()], &payload[..], "{}", format!("{cuts:?}"));
        prop_assert!(bytes[units * 64..].iter().all(|byte| *byte == 0));
    }

    /// SGEs arrive whole, wherever the end of the ring is within them.
    #[test]
    fn elements_survive_the_end_of_the_ring(count in 0usize..=32, first in 0usize..16) {
        let list = sges(count);
        let request = Request::recv(TAG, &list);
        let mut ring = [Unit::default(); 16];
        // SAFETY: sixteen units are enough for any request.
        unsafe { request.write_to(&Span::ring(ring.as_mut_ptr(), first, 16), request.units().unwrap()) };
        ring.rotate_left(first);
        prop_assert_eq!(words(&ring[..request.units().unwrap()]), bytes(&request));
        prop_assert_eq!(header(&words(&ring)).sge_count, count as u8);
    }
}
