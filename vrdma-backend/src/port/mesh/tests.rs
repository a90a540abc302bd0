use super::*;
use crate::port::{BURST, Burst, Cable, Port, pair};

/// Guests 1 and 2 are on workers 0 and 1, guest 3 is too; nobody is on worker 2.
const HOMES: [(u8, usize); 3] = [(1, 0), (2, 1), (3, 1)];

fn mac(last: u8) -> Mac {
    Mac([0x52, 0x54, 0, 0, 0, last])
}

/// The ports of three workers, and, if there shall be a NIC, the port of another host.
fn ports(with_nic: bool) -> (Vec<Port>, Option<(Port, Cable)>) {
    let mut table = WorkerOf::default();
    HOMES.into_iter().for_each(|(guest, worker)| table.insert(mac(guest), worker));
    let (nic, outside) = match with_nic {
        true => {
            let (near, far, cable) = pair(1500).unwrap();
            (Some(Box::new(near) as Box<dyn Driver>), Some((Port::new(Box::new(far)), cable)))
        }
        false => (None, None),
    };
    let ports = mesh(3, table, 1500, nic).unwrap();
    (ports.into_iter().map(|port| Port::new(Box::new(port))).collect(), outside)
}

/// A frame from one to another; `ff` is all.
fn frame(from: u8, to: u8) -> Vec<u8> {
    let dst = if to == 0xff { Mac([0xff; 6]) } else { mac(to) };
    [&dst.0[..], &mac(from).0, &[0x08, 0x00], &[from; 46]].concat()
}

fn send(port: &mut Port, bytes: &[u8], origin: Origin) {
    let mut token = port.transmit(bytes.len()).expect("room");
    token.made_by(origin);
    token.buf()[..bytes.len()].copy_from_slice(bytes);
    token.commit(bytes.len());
    port.flush();
}

/// What came, with who made it.
fn take(port: &mut Port) -> Vec<(Vec<u8>, Origin)> {
    let mut burst = Burst::default();
    let mut frames = Vec::new();
    while port.receive(&mut burst) != 0 {
        frames.extend(burst.frames().iter().map(|frame| (frame.to_vec(), frame.origin())));
        port.recycle(&mut burst);
    }
    frames
}

#[test]
fn frames_go_to_the_worker_of_their_guest() {
    for with_nic in [false, true] {
        let (mut ports, outside) = ports(with_nic);
        send(&mut ports[0], &frame(1, 2), Origin::Guest);
        send(&mut ports[0], &frame(1, 3), Origin::Engine);
        send(&mut ports[1], &frame(2, 1), Origin::Engine);
        assert_eq!(take(&mut ports[1]), [(frame(1, 2), Origin::Guest), (frame(1, 3), Origin::Engine)]);
        assert_eq!(take(&mut ports[0]), [(frame(2, 1), Origin::Engine)]);
        assert_eq!(take(&mut ports[2]), []);
        assert!(outside.is_none_or(|(mut far, _)| take(&mut far).is_empty()));
    }
}

#[test]
fn frames_for_all_go_to_all_but_where_they_came_from() {
    let (mut ports, outside) = ports(true);
    let (mut far, _cable) = outside.unwrap();
    let all = frame(2, 0xff);
    send(&mut ports[1], &all, Origin::Guest);
    assert_eq!([0, 1, 2].map(|at| take(&mut ports[at]).len()), [1, 0, 1]);
    assert_eq!(take(&mut far), [(all.clone(), Origin::Wire)]);
    // More than a guest may send to others goes out alone.
    send(&mut ports[1], &all, Origin::Flooder);
    assert_eq!([0, 1, 2].map(|at| take(&mut ports[at]).len()), [0, 0, 0]);
    assert_eq!(take(&mut far).len(), 1);
    send(&mut far, &frame(9, 0xff), Origin::Wire);
    let came = [0, 1, 2].map(|at| take(&mut ports[at]));
    assert_eq!(came, [(); 3].map(|()| vec![(frame(9, 0xff), Origin::Wire)]));
    assert_eq!(take(&mut far), []);
    // Under an address of ours it is dropped by the first worker's switch, and counted once.
    send(&mut far, &frame(2, 0xff), Origin::Wire);
    assert_eq!([0, 1, 2].map(|at| take(&mut ports[at]).len()), [1, 0, 0]);
}

#[test]
fn the_first_worker_s_nic_is_everybody_s() {
    let (mut ports, outside) = ports(true);
    let (mut far, cable) = outside.unwrap();
    for worker in [0, 1] {
        send(&mut ports[worker], &frame(worker as u8 + 1, 9), Origin::Engine);
        take(&mut ports[0]);
        assert_eq!(take(&mut far), [(frame(worker as u8 + 1, 9), Origin::Wire)]);
    }
    send(&mut far, &frame(9, 1), Origin::Wire);
    send(&mut far, &frame(9, 2), Origin::Wire);
    send(&mut far, &frame(9, 8), Origin::Wire);
    // What nobody knows is its switch's business.
    let own = vec![(frame(9, 1), Origin::Wire), (frame(9, 8), Origin::Wire)];
    assert_eq!(take(&mut ports[0]), own);
    assert_eq!(take(&mut ports[1]), [(frame(9, 2), Origin::Wire)]);
    let stats = ports[0].stats();
    assert_eq!((stats["frames_sent"], stats["frames_received"]), (2, 3));
    assert_eq!((stats["bytes_sent"], stats["bytes_received"]), (120, 180));
    // Without a link, guests of other workers are reached still.
    cable.plug(false);
    assert_eq!([0, 1].map(|at| ports[at].poll_link()), [Some(false); 2]);
    send(&mut ports[0], &frame(1, 9), Origin::Engine);
    send(&mut ports[1], &frame(2, 9), Origin::Engine);
    send(&mut ports[0], &frame(1, 2), Origin::Engine);
    assert_eq!((take(&mut ports[0]).len(), take(&mut ports[1]).len()), (0, 1));
    assert_eq!(ports[0].stats()["tx_link_down"], 2);
    cable.plug(true);
    assert_eq!([0, 1].map(|at| ports[at].poll_link()), [Some(true); 2]);
    send(&mut ports[1], &frame(2, 9), Origin::Engine);
    take(&mut ports[0]);
    assert_eq!(take(&mut far).len(), 1);
}

#[test]
fn a_worker_that_takes_nothing_loses_what_is_its_own_alone() {
    let (mut ports, _) = ports(false);
    for _ in 0..lane::DEPTH + 10 {
        send(&mut ports[1], &frame(2, 1), Origin::Engine);
    }
    assert!(!ports[1].way_to(mac(1)).has_room, "who can wait does");
    assert!(
        ports[1].way_to(mac(9)).has_room
            && ports[1].way_to(mac(3)).has_room
            && ports[2].way_to(mac(1)).has_room
    );
    let stats = ports[1].worker_stats();
    assert_eq!((stats["frames_sent"], stats["frames_lost"]), (lane::DEPTH as u64, 10));
    // Others are reached, by the same worker and by others.
    send(&mut ports[1], &frame(2, 0xff), Origin::Engine);
    assert_eq!(take(&mut ports[2]).len(), 1);
    send(&mut ports[2], &frame(3, 2), Origin::Engine);
    assert_eq!(take(&mut ports[1]).len(), 1);
    assert_eq!(take(&mut ports[0]).len(), lane::DEPTH);
    assert!(ports[1].way_to(mac(1)).has_room);
    assert_eq!([1, 2, 3, 9].map(|last| ports[0].way_to(mac(last)).stays_here), [false, true, true, false]);
    send(&mut ports[1], &frame(2, 1), Origin::Engine);
    assert_eq!(take(&mut ports[0]).len(), 1);
}

#[test]
fn buffers_come_back_to_who_made_them() {
    let mut table = WorkerOf::default();
    table.insert(mac(1), 0);
    table.insert(mac(2), 1);
    let mut ends = mesh(2, table, 1500, None).unwrap();
    let (mut to, mut from) = (ends.remove(0), ends.remove(0));
    let mut frames = Vec::new();
    for _ in 0..100 {
        from.allocate(&mut frames);
        for each in &mut frames {
            each.room()[..60].copy_from_slice(&frame(2, 1));
            each.set_len(60);
        }
        from.send(&mut frames);
        let mut came = Vec::new();
        to.receive(&mut came);
        assert_eq!(came.len(), BURST);
        to.recycle(&mut came);
    }
    assert_eq!((from.counters.sent, from.counters.lost, to.counters.received), (6400, 0, 6400));
    assert_eq!((from.counters.buffers, to.counters.buffers), (BURST as u64, 0), "the same again and again");
}
