//! RC WRITEs between two engines over `net_ring`, and over `net_af_packet` on a veth; beside each rate what `dpdk-testpmd` moves in
//! the same run: packets of the same size, over the same device, on one processor too. Testpmd's mode `io` hands on the same few packets
//! (on `net_ring`: pointers to them) and is what the device can do; its mode `flowgen` makes a new packet each time, as we do.
//!
//! Without root the veth is left out; without testpmd (Debian: `dpdk`) the ratios are.

use std::cell::UnsafeCell;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant as Clock;
use vrdma_backend::port::{Burst, Eal, Ethdev, External, Port};
use vrdma_transport::{
    Access, AttrMask, Completion, CqId, DeviceId, Engine, Event, Fault, Instant, Limits, Outlet, OwnerId,
    Payload, Piece, Pieces, QpAttr, QpInit, QpState, QpType, Receives, Region, Remote, SendOp, SendRequest,
    Sge, Sink, WcStatus, write_frame,
};
use vrdma_wire::icrc::Icrc;
use vrdma_wire::num::{Gid, Lkey, Mac, Mtu, Psn, Qpn, Rkey};
use vrdma_wire::roce::Packet;

/// Seconds of each measurement, and how many there are; the best counts.
const SECONDS: f64 = 0.7;
const ROUNDS: usize = 3;
/// Requests outstanding.
const DEPTH: u32 = 128;
const MEMORY: usize = 1 << 20;
const OWNER: OwnerId = OwnerId(1);
const LINK_MTU: u16 = 4500;
/// Packets of a turn.
const BUDGET: usize = 256;

/// Memory that both the engine and frames on their way have.
#[derive(Clone)]
struct Memory(Arc<Bytes>);

struct Bytes(Box<[UnsafeCell<u8>]>);

// SAFETY: one thread writes, and what frames carry may change.
unsafe impl Sync for Bytes {}

impl Memory {
    fn new() -> Memory {
        Memory(Arc::new(Bytes((0..MEMORY).map(|i| UnsafeCell::new(i as u8)).collect())))
    }

    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        self.0.0[offset as usize..][..len].as_ptr().cast_mut().cast()
    }
}

impl Region for Memory {
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: both ranges were checked by `at`.
        unsafe { self.at(offset, len as usize).copy_to(dst.at(dst_offset, len as usize), len as usize) };
        Ok(())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: the range was checked by `at`; the buffer is other memory.
        unsafe { self.at(offset, buf.len()).copy_to_nonoverlapping(buf.as_mut_ptr(), buf.len()) };
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        // SAFETY: the range was checked by `at`; the data are other memory.
        unsafe { self.at(offset, data.len()).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }

    fn with_word<T>(&self, _: u64, _: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        Err(Fault)
    }
}

/// How payload gets into frames.
#[derive(Clone, Copy, PartialEq)]
enum Placement {
    Copied,
    Attached,
}

struct Out<'a> {
    port: &'a mut Port,
    placement: Placement,
}

impl Outlet<Memory> for Out<'_> {
    fn has_room(&mut self) -> bool {
        self.port.has_room()
    }

    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, Memory>) -> Result<(), Fault> {
        let Some(mut frame) = self.port.transmit(packet.frame_len(payload.len())) else { return Ok(()) };
        if self.placement == Placement::Copied || payload.len() < 1024 {
            let len = write_frame(packet, payload, frame.buf())?;
            frame.commit(len);
            return Ok(());
        }
        let headers = packet.emit(payload.len(), frame.buf());
        let mut icrc = Icrc::new(&frame.buf()[..headers]);
        let pieces = payload.iter().filter_map(|piece| match piece {
            Piece::Bytes(_) => None,
            Piece::Memory { region, offset, length } => {
                let bytes = region.at(offset, length as usize);
                // SAFETY: the region's memory lives as long as any clone of its owner.
                unsafe {
                    icrc.update(std::slice::from_raw_parts(bytes, length as usize));
                    Some(External::new(bytes, length as u16, region.0.clone()))
                }
            }
        });
        let pieces: Vec<External> = pieces.collect();
        frame.commit_with(headers, pieces, &icrc.finish());
        Ok(())
    }
}

/// Counts completions.
#[derive(Default)]
struct Done(u32);

impl Sink for Done {
    fn complete(&mut self, _device: DeviceId, _cq: CqId, completion: &Completion) {
        assert_eq!(completion.status, WcStatus::Success, "WRITEs arrive");
        self.0 += 1;
    }

    fn event(&mut self, _device: DeviceId, event: Event) {
        panic!("{event:?}");
    }
}

struct Host {
    engine: Engine<Memory>,
    device: DeviceId,
    qpn: Qpn,
    key: u32,
    gid: Gid,
    mac: Mac,
    sink: Done,
}

impl Host {
    fn new(last: u8) -> Host {
        let mut engine = Engine::new(last.into());
        let device = engine.add_device(Limits::default());
        let gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last]);
        let mac = Mac([2, 0, 0, 0, 0x55, last]);
        engine.set_gid(device, 0, Some(gid.into())).expect("a GID table");
        engine.set_mac(device, mac).expect("a device");
        engine.set_link(true);
        let pd = engine.alloc_pd(device, OWNER).expect("a PD");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let key = engine.reg_mr(device, pd, access, 0, MEMORY as u64, Memory::new()).expect("an MR");
        let init = QpInit {
            owner: OWNER,
            pd: Some(pd),
            qp_type: QpType::Rc,
            send_cq: CqId(0),
            recv_cq: CqId(0),
            receives: Receives::Own,
            max_send_wr: DEPTH,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let qpn = engine.create_qp(device, init).expect("a QP");
        Host { engine, device, qpn, key, gid, mac, sink: Done::default() }
    }

    fn connect(&mut self, peer: (Qpn, Gid, Mac)) {
        let m = AttrMask::STATE;
        let init = m | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let rtr = m
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        let rts = m
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::SQ_PSN
            | AttrMask::MAX_RD_ATOMIC;
        let attr = QpAttr {
            access: Access::REMOTE_WRITE,
            port: 1,
            path_mtu: Mtu::M4096,
            rq_psn: Psn::truncate(1000),
            sq_psn: Psn::truncate(1000),
            dest_qpn: peer.0,
            timeout: 14,
            retry_cnt: 7,
            dgid: peer.1,
            dmac: peer.2,
            hop_limit: 64,
            ..QpAttr::default()
        };
        for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            let attr = QpAttr { state, ..attr };
            let (device, qpn) = (self.device, self.qpn);
            self.engine
                .modify_qp(Instant(0), device, qpn, mask, &attr, &mut self.sink)
                .expect("a connection");
        }
    }

    fn post(&mut self, now: Instant, rkey: u32, length: u32) {
        let sge = [Sge { addr: 0, length, lkey: Lkey(self.key) }];
        let remote = Remote { addr: 0, rkey: Rkey(rkey) };
        let op = SendOp::Write { remote, imm: None };
        let payload = Payload::Sges(&sge);
        let request = SendRequest { id: 0, signaled: true, solicited: false, fence: false, op, payload };
        self.engine.post_send(now, self.device, OWNER, self.qpn, &request, &mut self.sink).expect("room");
    }

    fn transmit(&mut self, now: Instant, port: &mut Port, placement: Placement) {
        self.engine.transmit(now, BUDGET, &mut Out { port, placement }, &mut self.sink);
        port.flush();
        self.engine.poll(now, 1 << 20, &mut self.sink);
    }

    fn handle(&mut self, now: Instant, frame: &[u8]) {
        self.engine.handle_frame(now, frame, &mut self.sink);
    }
}

/// What was reached.
#[derive(Clone, Copy, Default)]
struct Rate {
    writes: f64,
    packets: f64,
}

/// WRITEs of `length` bytes per second, for a while; `ports` are one that brings back what it sends, or two.
fn write(ports: &mut [Port], length: u32, placement: Placement) -> Rate {
    let (mut a, mut b) = (Host::new(1), Host::new(2));
    let (to_a, to_b) = ((a.qpn, a.gid, a.mac), (b.qpn, b.gid, b.mac));
    a.connect(to_b);
    b.connect(to_a);
    let rkey = b.key;
    let last = ports.len() - 1;
    let mut burst = Burst::default();
    let (start, mut posted) = (Clock::now(), 0);
    let (mut now, mut turns) = (Instant(0), 0u32);
    loop {
        turns += 1;
        if turns.is_multiple_of(16) {
            let elapsed = start.elapsed();
            now = Instant(elapsed.as_nanos() as u64);
            if elapsed.as_secs_f64() > SECONDS {
                break;
            }
        }
        while posted - a.sink.0 < DEPTH {
            a.post(now, rkey, length);
            posted += 1;
        }
        a.transmit(now, &mut ports[0], placement);
        b.transmit(now, &mut ports[last], placement);
        for port in ports.iter_mut() {
            port.receive(&mut burst);
            for frame in burst.frames() {
                let host = if frame[..6] == a.mac.0 { &mut a } else { &mut b };
                host.handle(now, frame);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!(
        a.sink.0 > 0,
        "{:?} {:?}",
        ports[0].stats(),
        b.engine.malformed_frames().iter().collect::<Vec<_>>()
    );
    let retries = a.engine.counters(a.device).retries;
    if retries > 0 {
        println!("    ({retries} retries: {:?})", ports[last].stats());
    }
    let packets = length.div_ceil(4096).max(1);
    Rate { writes: f64::from(a.sink.0) / seconds, packets: f64::from(a.sink.0 * packets) / seconds }
}

/// Packets per second that testpmd moves, if it is there.
fn testpmd(devices: &[String], mode: &str, length: usize) -> Option<f64> {
    let mut command = Command::new("dpdk-testpmd");
    command.args("--no-huge -m 512 --no-pci --no-shconf --no-telemetry -l 0,1".split(' '));
    devices.iter().for_each(|device| _ = command.args(["--vdev", device]));
    command.args(
        "-- --nb-cores=1 --total-num-mbufs=4096 --mbuf-size=16640 --burst=64 --stats-period=1".split(' '),
    );
    command.arg(format!("--forward-mode={mode}")).arg(format!("--txpkts={length}"));
    if mode == "io" {
        command.arg("--tx-first");
    }
    if devices.len() == 1 {
        command.arg("--port-topology=loop");
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = End(child.ok()?);
    // Each period has a figure for each port.
    let (mut best, mut periods, mut this, mut ports) = (0f64, 0, 0., 0);
    for line in BufReader::new(child.0.stdout.take()?).lines().map_while(Result::ok) {
        let Some(rate) = line.trim().strip_prefix("Rx-pps:") else { continue };
        this += rate.split_whitespace().next()?.parse::<f64>().ok()?;
        ports += 1;
        if ports == devices.len() {
            best = best.max(this);
            (this, ports) = (0., 0);
            periods += 1;
        }
        if periods > ROUNDS {
            break;
        }
    }
    Some(best).filter(|best| *best > 0.)
}

/// A program that ends with us.
struct End(Child);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(device: &str) -> Port {
    let device = device.parse().expect("a device");
    let eal = Eal::start("", &device).expect("EAL");
    let mut port = Port::new(Box::new(Ethdev::open(eal, &device, Some(LINK_MTU)).expect("a port")));
    port.adopt();
    while !port.is_up() {
        port.poll_link();
    }
    port
}

fn measure(name: &str, devices: &[&str]) {
    // What we would take for packet sockets, so that testpmd has the same.
    let rings = |device: &&str| match device.contains("af_packet") {
        true => format!("{device},framesz=8192,blocksz=65536,framecnt=1024"),
        false => (*device).to_owned(),
    };
    let named: Vec<String> = devices.iter().map(rings).collect();
    // The longest packets of each: headers and ICRC are 74 bytes with a RETH, 58 without.
    for (length, frame) in [(64, 138), (65536, 4154)] {
        let references = ["io", "flowgen"].map(|mode| (mode, testpmd(&named, mode, frame)));
        let mut ports: Vec<Port> = devices.iter().map(|device| open(device)).collect();
        for (placement, how) in [(Placement::Copied, "copied"), (Placement::Attached, "attached")] {
            if placement == Placement::Attached && (length < 1024 || !ports[0].capabilities().external) {
                continue;
            }
            let rates = (0..ROUNDS).map(|_| write(&mut ports, length, placement));
            let best =
                rates.fold(Rate::default(), |best, rate| if rate.writes > best.writes { rate } else { best });
            print!(
                "{length:>8}  {name:<24} {how:<9} {:>10.3} {:>10.3} {:>8.2}",
                best.writes / 1e6,
                best.packets / 1e6,
                best.writes * f64::from(length) / 1e9
            );
            for (mode, reference) in references {
                match reference {
                    Some(reference) => {
                        print!("  {:>6.3} of {mode} ({:.3})", best.packets / reference, reference / 1e6)
                    }
                    None => print!("  (no {mode} of testpmd)"),
                }
            }
            println!();
        }
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
}

fn main() {
    println!(
        "{:>8}  {:<24} {:<9} {:>10} {:>10} {:>8}  packets beside testpmd's [million/s]",
        "#bytes", "WRITE, two engines", "payload", "Mwrites/s", "Mpackets/s", "GB/s"
    );
    // SAFETY: a plain system call. EAL's threads and all programs are started by this thread later, and are in the namespace too.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    measure("net_ring", &["net_ring0"]);
    if !alone {
        println!("without root: no veth");
        return;
    }
    ip("link add va type veth peer name vb");
    for end in ["va", "vb"] {
        ip(&format!("link set {end} mtu {LINK_MTU}"));
        ip(&format!("link set {end} up"));
    }
    measure("net_af_packet on a veth", &["net_af_packet0,iface=va", "net_af_packet1,iface=vb"]);
}
