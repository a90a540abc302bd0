//! Guests that want to send all the time, messages or frames.

use crate::cm::connect_streams;
use crate::lab::Lab;
use crate::net::{HEADER, Header, NetGuest, NetOptions, frame, mac};
use crate::virtqueue::Piece;
use crate::{Context, Cq, Mr, Qp, QpOptions, connect, wait};
use vrdma_abi::config::transport;
use vrdma_abi::cqe::WcStatus;
use vrdma_guest::verbs::{Data, Request};

/// QPs of the guest.
const QPS: u32 = 8;
/// Requests that each of them has pending. The daemon needs milliseconds for those of all QPs, so a
/// thread that is kept from its processor for less leaves it enough to do.
const PENDING: u32 = 128;
/// Bytes of a long message.
pub const LONG: u32 = 64 << 10;

/// A guest that sends all the time, and its peer.
#[derive(Debug)]
pub struct Greedy {
    process: Context,
    cq: Cq,
    from: Mr,
    to: Mr,
    qps: Vec<(Qp, Qp)>,
    /// QPs without a pending request, by position. A QP appears once for each request to post.
    idle: Vec<u32>,
    length: u32,
    /// Messages that ended.
    pub messages: u64,
    /// Whether all requests had ended when completions were last taken. The daemon may have had
    /// nothing to do for the guest then.
    pub ran_dry: bool,
    outstanding: usize,
}

impl Greedy {
    /// Connects the QPs of guest `own` of a lab with those of the next guest.
    ///
    /// Messages have `length` bytes, at most [`LONG`].
    pub fn new(lab: &Lab, own: usize, length: u32) -> Greedy {
        let (process, peer) = (&lab.guests[own], &lab.guests[own + 1]);
        let process = Context::open(process).expect("a context");
        let peer = Context::open(peer).expect("a context");
        let (cq, peer_cq) = (process.cq(2 * QPS * PENDING), peer.cq(16));
        let options = QpOptions { send_wr: PENDING, recv_wr: 1, sges: 1, inline: 0, ..QpOptions::default() };
        let pairs = (0..QPS).map(|_| {
            let ends = (process.qp(&cq, &cq, &options), peer.qp(&peer_cq, &peer_cq, &options));
            match process.guest.config.transport {
                transport::ROCE => connect(&ends.0, &ends.1),
                _ => {
                    connect_streams(&ends.0, &ends.1);
                }
            }
            ends
        });
        let qps = pairs.collect();
        let (from, to) = (process.mr(LONG.into()), peer.mr(LONG.into()));
        let idle = (0..PENDING).flat_map(|_| 0..QPS).collect();
        Greedy { process, cq, from, to, qps, idle, length, messages: 0, ran_dry: true, outstanding: 0 }
    }

    /// Takes some completions, and posts as many requests.
    pub fn step(&mut self) {
        self.reap();
        let mut posted = false;
        while let Some(&at) = self.idle.last() {
            let own = [self.from.sge(0, self.length)];
            let request =
                Request::write(self.qps[at as usize].0.tag(at), self.to.remote(0), Data::Sges(&own));
            if self.process.channel.driver.push(&request.signaled(true)).is_err() {
                break;
            }
            self.idle.pop();
            self.outstanding += 1;
            posted = true;
        }
        if posted {
            self.process.channel.driver.ring();
        }
    }

    /// Takes completions.
    pub fn reap(&mut self) {
        while let Some(wc) = self.cq.poll() {
            assert_eq!(wc.status(), WcStatus::SUCCESS, "a request failed");
            self.outstanding -= 1;
            self.messages += 1;
            self.idle.push(wc.id());
        }
        self.ran_dry = self.outstanding == 0;
    }

    /// Waits until all requests have ended.
    pub fn end(&mut self) {
        wait::until("the end of all requests", || {
            self.reap();
            (self.outstanding == 0).then_some(())
        });
    }
}

/// A guest that sends Ethernet frames all the time, and the guest that gets them.
#[derive(Debug)]
pub struct Frames {
    sender: NetGuest,
    receiver: NetGuest,
    /// The only frame, which is sent again and again.
    frame: Piece,
    /// Frames that arrived.
    pub messages: u64,
    /// Whether the daemon had taken all frames when that was last looked at.
    pub ran_dry: bool,
    under_way: usize,
}

/// EtherType for experiments (IEEE 802).
const TEST: u16 = 0x88b5;

impl Frames {
    /// Connects the Ethernet functions of guest `own` of a lab and of the next guest.
    ///
    /// Frames have `length` bytes with their headers. One receive buffer takes each.
    pub fn new(lab: &Lab, own: u8, length: u32) -> Frames {
        let options = NetOptions::default();
        let connect = |index| NetGuest::connect(&lab.net_socket(index), options.clone());
        let [sender, receiver] = [own, own + 1].map(|index| connect(index).expect("it connects"));
        let header = Header::default().to_bytes();
        // Both addresses and the type are before the payload.
        let payload = vec![7; length as usize - 14];
        let bytes = [&header[..], &frame(mac(own + 2), mac(own + 1), TEST, &payload)].concat();
        let len = HEADER as u32 + length;
        assert!(len <= options.buffer_len, "a frame fills one buffer");
        let gpa = sender.memory.alloc(len.into());
        sender.memory.write(gpa, &bytes);
        let frame = Piece { gpa, len, writable: false };
        Frames { sender, receiver, frame, messages: 0, ran_dry: true, under_way: 0 }
    }

    /// Takes the frames that have arrived, and fills the transmit queue.
    pub fn step(&mut self) {
        self.reap();
        while self.sender.transmit().add(&[self.frame]).is_some() {
            self.under_way += 1;
        }
    }

    fn reap(&mut self) {
        self.messages += self.receiver.discard();
        while self.sender.transmit().take_used().is_some() {
            self.under_way -= 1;
        }
        self.ran_dry = self.under_way == 0;
    }

    /// Waits until the daemon has taken all frames.
    pub fn end(&mut self) {
        wait::until("the end of all frames", || {
            self.reap();
            self.ran_dry.then_some(())
        });
    }
}
