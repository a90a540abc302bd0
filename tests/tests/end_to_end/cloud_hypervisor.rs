//! A front-end that sends the messages of cloud-hypervisor, in its order.
//!
//! [`vrdma_tests::cloud_hypervisor`] says of which releases. cloud-hypervisor itself is not run.

use std::path::PathBuf;
use std::sync::Arc;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vrdma_tests::abi::config::device;
use vrdma_tests::abi::control::{QpState, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::cloud_hypervisor::{self, Agreed};
use vrdma_tests::front_end::{EVENT_IDX, VERSION_1};
use vrdma_tests::memory::Memory;
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Arm, Data, Request};
use vrdma_tests::{Guest, GuestOptions, Lab, LabOptions, QpOptions, wait};

/// 2 queues, 2 completion vectors and 13 channels, as labs have by default.
const QUEUES: u16 = 17;

/// Starts a daemon that is a process of its own, and whose log can be read.
fn lab() -> Lab {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    Lab::without_guests(2, LabOptions { program, ..LabOptions::default() })
}

fn connect(lab: &Lab, index: u8) -> (Arc<Guest>, Agreed) {
    let options = GuestOptions { host: index + 1, ..GuestOptions::default() };
    let connected = cloud_hypervisor::connect(&lab.socket(index), QUEUES, options);
    let (guest, agreed) = connected.expect("the daemon accepts the guest");
    guest.set_gid();
    (guest, agreed)
}

/// Sends a message from `a` to `b`, and waits for its completions: for that of `b` by an event.
fn expect_a_message(a: &mut Side, b: &mut Side, id: u32) {
    b.recv_any(id);
    assert_eq!(b.cq.arm(Arm::Next), None);
    a.post(&Request::send(a.qp.tag(id), Data::Inline(b"hello")).signaled(true));
    a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
    assert_eq!(b.guest().clone().comp_events(0).recv().object, b.cq.number);
    b.cq.expect(b.qp.number, id, WcStatus::SUCCESS);
}

fn pair(a: &Arc<Guest>, b: &Arc<Guest>) -> (Side, Side) {
    pair_between(a, b, 4096, &QpOptions { timeout: 0, ..QpOptions::default() })
}

/// What is agreed on is all that the daemon has of what cloud-hypervisor would take.
///
/// It has no log of written pages, no state that a VMM can save, and no list of requests in flight.
/// So cloud-hypervisor neither migrates nor saves the VM.
#[test]
fn features_and_protocol_features_are_agreed_on() {
    use VhostUserProtocolFeatures as F;
    let lab = lab();
    let (mut front_end, agreed) = cloud_hypervisor::create(&lab.socket(0), QUEUES).unwrap();
    let protocol_bit = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    assert_eq!(agreed.features, VERSION_1 | EVENT_IDX | protocol_bit);
    assert_eq!(agreed.protocol, F::CONFIG | F::MQ | F::CONFIGURE_MEM_SLOTS | F::REPLY_ACK);
    assert_eq!(front_end.link().get_queue_num().unwrap(), u64::from(QUEUES));
    assert_eq!(cloud_hypervisor::read_config(&mut front_end).unwrap().num_channels.get(), 13);
}

#[test]
fn a_vm_with_more_virtqueues_than_the_daemon_serves_is_not_created() {
    let lab = lab();
    let error = cloud_hypervisor::create(&lab.socket(0), QUEUES + 1).unwrap_err();
    assert_eq!(error.to_string(), "18 virtqueues of 17");
    // With fewer, the driver misses some of its channels. The VMM does not notice.
    assert!(cloud_hypervisor::create(&lab.socket(1), QUEUES - 1).is_ok());
}

/// The VMM panics if an access to the configuration space fails, and a guest may read all of its
/// 4,096 bytes by accesses of any length.
#[test]
fn a_guest_may_read_anywhere_in_the_configuration_space() {
    let lab = lab();
    let (mut front_end, _) = cloud_hypervisor::create(&lab.socket(0), QUEUES).unwrap();
    for len in [1, 2, 4, 8] {
        for at in [0, device::CONFIG_SIZE - len, device::CONFIG_SIZE, 256, 1000, 4096 - len] {
            let bytes = front_end.config_space(at, len).unwrap();
            let beyond = at >= device::CONFIG_SIZE;
            assert!(!beyond || bytes.iter().all(|byte| *byte == 0), "{len} bytes at {at}: {bytes:?}");
        }
    }
}

#[test]
fn verbs_work_between_guests_and_events_arrive() {
    let lab = lab();
    let ((one, _), (other, _)) = (connect(&lab, 0), connect(&lab, 1));
    let (mut a, mut b) = pair(&one, &other);
    for id in 0..10 {
        expect_a_message(&mut a, &mut b, id);
        expect_a_message(&mut b, &mut a, id);
    }
}

#[test]
fn a_paused_vm_goes_on_where_it_was() {
    let lab = lab();
    let ((one, _), (other, _)) = (connect(&lab, 0), connect(&lab, 1));
    let (mut a, mut b) = pair(&one, &other);
    for round in 0..3 {
        expect_a_message(&mut a, &mut b, round);
        cloud_hypervisor::pause(&other).unwrap();
        let write = Request::write(a.qp.tag(100 + round), b.mr.remote(0), Data::Inline(&[7; 8]));
        a.post(&write.signaled(true));
        cloud_hypervisor::resume(&other).unwrap();
        a.cq.expect(a.qp.number, 100 + round, WcStatus::SUCCESS);
        assert_eq!((b.mr.get(0, 8), b.qp.state()), (vec![7; 8], QpState::RTS));
    }
}

/// A reset gives memory back before it ends, though no message says that the device is reset.
#[test]
fn a_guest_that_reboots_gets_a_device_without_objects() {
    let lab = lab();
    let ((one, _), (other, _)) = (connect(&lab, 0), connect(&lab, 1));
    for round in 0..3 {
        let (mut a, mut b) = pair(&one, &other);
        expect_a_message(&mut a, &mut b, round);
        b.mr.fill(0);
        cloud_hypervisor::reset(&other).unwrap();
        a.post(&Request::write(a.qp.tag(7), b.mr.remote(0), Data::Inline(b"late")).signaled(true));
        // The device answers this command after it has seen the request.
        assert_eq!(a.qp.state(), QpState::RTS);
        assert_eq!(b.mr.get(0, 4), [0; 4], "memory of a guest that is reset is written");
        a.close();
        cloud_hypervisor::start_driver(&other).unwrap();
        assert_eq!(lab.stats().all_objects(1), [], "round {round}");
        assert_eq!(other.query_qp(b.qp.number).err(), Some(Status::NOT_FOUND));
        assert_eq!(b.mr.get(0, 4), [0; 4], "the write came after the reset");
        other.set_gid();
    }
}

#[test]
fn memory_that_is_plugged_in_is_added_to_the_table() {
    let lab = lab();
    let (guest, _) = connect(&lab, 0);
    let more = Memory::new(&[(1 << 40, 4 << 20)]).unwrap();
    guest.front_end().add_region(&more, &more.regions()[0]).unwrap();
    let (mut a, mut b) = pair(&guest, &guest);
    expect_a_message(&mut a, &mut b, 1);
}

/// After a restart of the daemon, cloud-hypervisor connects again and goes on with the virtqueues.
///
/// The objects are gone. The driver is not told, and works again once it starts anew.
#[test]
fn a_vm_that_connects_again_works_once_its_driver_starts_anew() {
    let lab = lab();
    let (other, _) = connect(&lab, 1);
    let (guest, agreed) = connect(&lab, 0);
    for round in 0..3 {
        let (mut a, mut b) = pair(&guest, &other);
        expect_a_message(&mut a, &mut b, round);
        // The daemon has nothing left of the guest, as after its own restart.
        guest.front_end().disconnect();
        lab.expect_nothing_left(0);
        wait::until("the function to be free", || {
            cloud_hypervisor::reconnect(&guest, &lab.socket(0), agreed).ok()
        });
        assert_eq!(guest.query_qp(a.qp.number).err(), Some(Status::NOT_FOUND), "round {round}");
        cloud_hypervisor::reset(&guest).unwrap();
        cloud_hypervisor::start_driver(&guest).unwrap();
        assert_eq!(lab.stats().all_objects(0), []);
        guest.set_gid();
        b.qp.gives_up_soon().unwrap();
        b.close();
    }
    let (mut a, mut b) = pair(&guest, &other);
    expect_a_message(&mut a, &mut b, 9);
    expect_a_message(&mut b, &mut a, 9);
}
