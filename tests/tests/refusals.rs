//! What the daemon says of messages that it refuses: which, of which queue, with what value, and what to change.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use vhost::VhostBackend;
use vrdma_tests::front_end::FrontEnd;
use vrdma_tests::memory::Memory;
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::{Lab, LabOptions, wait};

fn lab() -> Lab {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    Lab::without_guests(3, LabOptions { program, ..LabOptions::default() })
}

fn expect_message(lab: &Lab, words: &str) {
    let found = wait::within(wait::PATIENCE, || lab.daemon.messages().contains(words).then_some(()));
    assert!(found.is_some(), "no '{words}' in:\n{}", lab.daemon.messages());
}

#[test]
fn each_message_that_is_refused_is_named() {
    // Request, flags (version 1, wants an answer), size of the payload, payload, in words of 32 bits; ADDRESS is in guest memory.
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
    // Messages are limited to some in each while, so that not one daemon can be asked for all.
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

/// Sends a message that the library would not send.
fn say(front_end: &FrontEnd, words: &[u32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // SAFETY: the descriptor is a socket that the front-end keeps open, and the bytes are there.
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
    // Who comes when the first has left is served, whatever that one left unread.
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
    let lines = lab.daemon.messages().lines().count();
    assert!(lines < 100, "{lines} lines");
}
