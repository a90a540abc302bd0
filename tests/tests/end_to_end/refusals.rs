//! The daemon's log about messages that it refuses.
//!
//! It names the message, its queue and value, and what to change.
//!
//! Shows: hostile-guest.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use vhost::vhost_user::VhostUserFrontend;
use vhost::{VhostBackend, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vrdma_backend::config::GuestConfig;
use vrdma_tests::abi::config::device;
use vrdma_tests::abi::control::Status;
use vrdma_tests::front_end::FrontEnd;
use vrdma_tests::guest::gid;
use vrdma_tests::memory::Memory;
use vrdma_tests::net::{RECEIVE, TRANSMIT};
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::{Lab, LabOptions, wait};

fn program() -> Option<PathBuf> {
    Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")))
}

fn lab() -> Lab {
    Lab::without_guests(3, LabOptions { program: program(), ..LabOptions::default() })
}

fn expect_message(lab: &Lab, words: &str) {
    let found = wait::within(wait::PATIENCE, || lab.daemon.messages().contains(words).then_some(()));
    assert!(found.is_some(), "no '{words}' in:\n{}", lab.daemon.messages());
}

#[test]
fn each_message_that_is_refused_is_named() {
    // Request, flags (version 1, reply wanted), size of the payload, and payload, in 32-bit words.
    // ADDRESS stands for an address in guest memory.
    const ADDRESS: u32 = u32::MAX;
    let mistakes: [(&str, &[u32]); 8] = [
        ("SET_VRING_NUM: queue 17: 17 are served; the VMM's num_vqs", &[8, 9, 8, 17, 256]),
        (
            "SET_VRING_NUM: queue 3: size 2048; a power of two up to 1024 is; the VMM's vq_size",
            &[8, 9, 8, 3, 2048],
        ),
        ("SET_VRING_NUM: queue 3: size 100;", &[8, 9, 8, 3, 100]),
        (
            "SET_VRING_ADDR: queue 2: its available ring, 0x123000, is not in the VMM's shared memory (QEMU: share=on)",
            &[9, 9, 40, 2, 0, ADDRESS, 0, ADDRESS, 0, 0x12_3000, 0, 0, 0],
        ),
        ("SET_VRING_BASE: queue 1: index 65536; 65535 is the last", &[10, 9, 8, 1, 65536]),
        ("SET_VRING_KICK: queue 20: 17 are served", &[12, 9, 8, 20 | 0x100, 0]),
        ("SET_FEATURES: features 0x10000000000 are not on offer", &[2, 9, 8, 0, 0x100]),
        ("request 77: ", &[77, 1, 0]),
    ];
    // The log is rate-limited, so a single daemon would not report all of them.
    for some in mistakes.chunks(4) {
        let lab = lab();
        for (message, words) in some {
            let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
            let front_end = FrontEnd::open(&lab.socket(0), 0, &memory).unwrap();
            let mut words = words.to_vec();
            while let Some(at) = words.iter().position(|word| *word == ADDRESS) {
                let address = memory.regions()[0].front_end_addr();
                (words[at], words[at + 1]) = (address as u32, (address >> 32) as u32);
            }
            say(&front_end, &words);
            expect_message(&lab, &format!("guest g0, RDMA: front-end disconnected: {message}"));
        }
    }
}

/// Returns the address of a region's last 16 bytes, which are too few for any of the rings.
fn last_bytes(memory: &Memory) -> u64 {
    let region = memory.regions()[0];
    region.front_end_addr() + region.len - 16
}

fn rings(size: u16, desc_table_addr: u64, avail_ring_addr: u64, used_ring_addr: u64) -> VringConfigData {
    VringConfigData {
        queue_max_size: size,
        queue_size: size,
        flags: 0,
        desc_table_addr,
        used_ring_addr,
        avail_ring_addr,
        log_addr: None,
    }
}

#[test]
fn rings_that_begin_in_guest_memory_and_end_elsewhere_are_refused() {
    let lab = lab();
    let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
    let (start, last) = (memory.regions()[0].front_end_addr(), last_bytes(&memory));
    let cases = [
        ("descriptor table, 4096 bytes", [last, start, start]),
        ("available ring, 518 bytes", [start, last, start]),
        ("used ring, 2054 bytes", [start, start, last]),
    ];
    for (what, [desc, avail, used]) in cases {
        let mut front_end = FrontEnd::open(&lab.net_socket(0), 0, &memory).unwrap();
        front_end.link().set_vring_num(1, 256).unwrap();
        assert!(front_end.link().set_vring_addr(1, &rings(256, desc, avail, used)).is_err(), "{what}");
        expect_message(
            &lab,
            &format!(
                "guest g0, Ethernet: front-end disconnected: SET_VRING_ADDR: queue 1: its {what} at {last:#x}, is not in one region of the VMM's shared memory"
            ),
        );
    }
    // Rings that end at the last byte are accepted.
    let mut front_end = FrontEnd::open(&lab.net_socket(0), 0, &memory).unwrap();
    front_end.link().set_vring_num(1, 256).unwrap();
    let ends = [4096, 518, 2056].map(|len| last + 16 - len);
    front_end.link().set_vring_addr(1, &rings(256, ends[0], ends[1], ends[2])).unwrap();
}

/// Bytes beyond the configuration space read as zero.
///
/// cloud-hypervisor reads as far as its guest does, and panics if it gets less than it asked for.
#[test]
fn what_lies_beyond_the_configuration_space_is_zero() {
    let lab = lab();
    let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
    let mut front_end = FrontEnd::open(&lab.socket(0), 0, &memory).unwrap();
    let all = front_end.config_space(0, 2048).unwrap();
    let size = device::CONFIG_SIZE as usize;
    let (space, beyond) = all.split_at(size);
    assert!(space.iter().any(|byte| *byte != 0) && beyond.iter().all(|byte| *byte == 0));
    for (offset, len) in
        [(0, 1), (0, size), (4, 8), (size - 1, 1), (size - 1, 2), (size, 1), (size + 100, 256), (2047, 1)]
    {
        let part = front_end.config_space(offset as u32, len as u32).unwrap();
        assert_eq!(part, all[offset..offset + len], "{len} bytes at {offset}");
    }
}

/// Sends a message that the vhost library would not send.
fn say(front_end: &FrontEnd, words: &[u32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // SAFETY: the descriptor is a socket that the front-end keeps open. Pointer and length describe
    // `bytes`.
    let sent = unsafe { libc::write(front_end.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(sent, bytes.len() as isize);
}

#[test]
fn a_second_front_end_is_refused_and_the_first_goes_on() {
    let mut lab = lab();
    lab.guests = vec![lab.connect(0), lab.connect(1)];
    let pingpong = PingPong::start(&lab.guests[0], &lab.guests[1]);
    for _ in 0..3 {
        let second = UnixStream::connect(lab.socket(0)).unwrap();
        second.set_read_timeout(Some(wait::PATIENCE)).unwrap();
        assert_eq!(std::io::Read::read(&mut &second, &mut [0]).unwrap(), 0, "closed, not silent");
    }
    expect_message(&lab, "guest g0, RDMA: another front-end was refused: ");
    pingpong.stop();
    // A front-end that connects after the first has left is served, whatever the first left unread.
    for _ in 0..100 {
        lab.guests.remove(0);
        let guest = lab.connect(0);
        assert!(guest.query_device().is_ok());
        lab.guests.insert(0, guest);
    }
}

#[test]
fn front_ends_that_come_and_go_do_not_fill_the_log() {
    let lab = lab();
    let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
    for _ in 0..200 {
        let mut front_end = FrontEnd::open(&lab.socket(0), 0, &memory).unwrap();
        assert!(front_end.link().set_vring_num(100, 1).is_err());
    }
    expect_few_lines(&lab);
}

fn expect_few_lines(lab: &Lab) {
    let messages = lab.daemon.messages();
    let lines = messages.lines().count();
    let last: Vec<&str> = messages.lines().rev().take(5).collect();
    assert!(lines < 100, "{lines} lines, such as {last:#?}");
}

#[test]
fn rings_that_cannot_be_started_do_not_fill_the_log() {
    let lab = lab();
    // The control queue, an event queue, and both queues of an Ethernet function.
    let queues =
        [(lab.socket(0), 0), (lab.socket(1), 1), (lab.net_socket(0), RECEIVE), (lab.net_socket(1), TRANSMIT)];
    for (socket, index) in queues {
        let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
        let mut front_end = FrontEnd::open(&socket, 0, &memory).unwrap();
        let (index, last, link) = (usize::from(index), last_bytes(&memory), front_end.link());
        // A ring of one entry would fit there. The number of entries is set after the address.
        link.set_vring_addr(index, &rings(1, last, last, last)).unwrap();
        link.set_vring_num(index, 256).unwrap();
        let kick = EventFd::new(EFD_NONBLOCK).unwrap();
        link.set_vring_kick(index, &kick).unwrap();
        for _ in 0..200 {
            link.set_vring_enable(index, true).unwrap();
            link.set_vring_enable(index, false).unwrap();
        }
        for _ in 0..200 {
            link.set_vring_enable(index, true).unwrap();
            link.get_vring_base(index).unwrap();
            link.set_vring_kick(index, &kick).unwrap();
        }
    }
    expect_message(
        &lab,
        "guest g0: the rings of its Ethernet queue 0 are not in guest memory, or not aligned",
    );
    expect_few_lines(&lab);
}

#[test]
fn an_available_ring_at_address_0_does_not_fill_the_log() {
    let lab = lab();
    let memory = Memory::new(&[(0, 1 << 20)]).unwrap();
    let start = memory.regions()[0].front_end_addr();
    let mut front_end = FrontEnd::open(&lab.socket(0), 0, &memory).unwrap();
    let link = front_end.link();
    link.set_vring_num(0, 256).unwrap();
    link.set_vring_addr(0, &rings(256, start + 0x1000, start, start + 0x2000)).unwrap();
    memory.word16(2).store(1, Ordering::Release);
    let kick = EventFd::new(EFD_NONBLOCK).unwrap();
    link.set_vring_kick(0, &kick).unwrap();
    link.set_vring_enable(0, true).unwrap();
    // Each message makes the device check the queue once more.
    for _ in 0..200 {
        kick.write(1).unwrap();
        link.get_features().unwrap();
    }
    expect_message(&lab, "the control queue's rings are not in guest memory, or not aligned");
    expect_few_lines(&lab);
}

#[test]
fn a_gid_that_is_refused_is_told_and_counted() {
    // 10.0.0.3 belongs to guest 2 alone. Any other address belongs to the guest that registers it
    // first.
    let host_says = |index, guest| {
        let gids = (index == 2).then(|| "10.0.0.3".parse().unwrap()).into_iter().collect();
        GuestConfig { any_gid: index != 2, gids, ..guest }
    };
    let mut lab =
        Lab::without_guests(3, LabOptions { program: program(), host_says, ..LabOptions::default() });
    lab.guests = (0..3).map(|index| lab.connect(index)).collect();
    let refused = |guest: usize| lab.stats().device(guest, "refused_gids");
    assert_eq!(lab.guests[0].add_gid(1, gid(2)), Err(Status::DENIED));
    expect_message(&lab, "guest g0: GID ::ffff:10.0.0.2 (untagged) is refused: guest g1 has it");
    assert_eq!([0, 1, 2].map(refused), [1, 0, 0]);
    assert_eq!(lab.guests[1].add_gid_in(Some(7), 1, gid(3)), Err(Status::DENIED));
    let policy =
        "guest g1: GID ::ffff:10.0.0.3 (VLAN 7) is refused: it is not among those it may use: gids, vlans";
    expect_message(&lab, policy);
    assert_eq!([0, 1, 2].map(refused), [1, 1, 0]);
    for _ in 0..200 {
        assert_eq!(lab.guests[0].add_gid(1, gid(2)), Err(Status::DENIED));
    }
    assert_eq!([0, 1, 2].map(refused), [201, 1, 0]);
    expect_few_lines(&lab);
}
