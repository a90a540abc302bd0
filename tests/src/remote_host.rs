//! A host on the wire with an independent TCP implementation, smoltcp.
//!
//! It serves guests with the daemon's own TCP as the test's sockets serve guests with the kernel's
//! TCP.

use crate::wait;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{self, RecvError, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use vrdma_backend::port::{Burst, Port};

/// Address of the host.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 153);
/// MAC address of the host.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// EtherType of IPv4.
const IPV4: [u8; 2] = [8, 0];
/// Offset of the destination in an IPv4 header.
const DESTINATION: usize = 16;
/// Bytes of a socket's buffer in each direction.
const BUFFER: usize = 256 << 10;
/// How often the host polls for frames.
const PERIOD: Duration = Duration::from_micros(100);

/// A host on the wire that runs smoltcp in a thread.
#[derive(Debug)]
pub struct Far {
    host: Arc<Mutex<Host>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    ports: AtomicU16,
}

struct Host {
    interface: Interface,
    sockets: SocketSet<'static>,
    wire: Wire,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    fn turn(&mut self) {
        self.wire.receive();
        self.interface.poll(Instant::now(), &mut self.wire, &mut self.sockets);
        self.wire.port.flush();
    }

    fn add(&mut self) -> SocketHandle {
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        self.sockets.add(socket)
    }
}

/// The host's end of a cable.
struct Wire {
    port: Port,
    burst: Burst,
    arrived: VecDeque<Vec<u8>>,
}

impl Wire {
    fn receive(&mut self) {
        self.port.receive(&mut self.burst);
        for frame in self.burst.frames() {
            if frame.len() > ETHERNET && frame[..6] == MAC && frame[12..ETHERNET] == IPV4 {
                self.arrived.push_back(frame[ETHERNET..].to_vec());
            }
        }
    }
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Departs<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Departs<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((Arrived(packet), Departs(&mut self.port)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Departs<'_>> {
        self.port.has_room().then_some(Departs(&mut self.port))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.port.capabilities().max_frame - ETHERNET;
        capabilities
    }
}

struct Arrived(Vec<u8>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

struct Departs<'a>(&'a mut Port);

impl TxToken for Departs<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        // A packet that finds no room is lost, as on any wire.
        if let Some(mut frame) = self.0.transmit(ETHERNET + len) {
            let (header, rest) = frame.buf().split_at_mut(ETHERNET);
            // The last byte of a guest's MAC address is that of its IP address.
            header[..6].copy_from_slice(&[0x52, 0x54, 0, 0, 0, packet[DESTINATION + 3]]);
            header[6..12].copy_from_slice(&MAC);
            header[12..].copy_from_slice(&IPV4);
            rest[..len].copy_from_slice(&packet);
            frame.commit(ETHERNET + len);
        }
        result
    }
}

impl Far {
    /// Starts a host at this end of the cable.
    pub fn new(port: Port) -> Far {
        let mut wire = Wire { port, burst: Burst::default(), arrived: VecDeque::new() };
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut wire, Instant::now());
        interface
            .update_ip_addrs(|addresses| addresses.push(IpCidr::new(ADDRESS.into(), 24)).expect("its first"));
        let host = Arc::new(Mutex::new(Host { interface, sockets: SocketSet::new(Vec::new()), wire }));
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (host, is_over) = (host.clone(), is_over.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    lock(&host).turn();
                    wait::pause(PERIOD, "how often it looks for packets; TCP bears any time between");
                }
            })
        };
        // Guests use ports from 61000 on.
        Far { host, is_over, thread: Some(thread), ports: AtomicU16::new(40_000) }
    }

    /// Connects to a guest, and waits until the connection is established.
    ///
    /// # Errors
    /// `ConnectionRefused`: nobody listens there.
    pub fn connect(&self, to: (Ipv4Addr, u16)) -> io::Result<Socket> {
        let from = self.ports.fetch_add(1, Ordering::Relaxed);
        let socket = {
            let mut guard = lock(&self.host);
            let host = &mut *guard;
            let handle = host.add();
            let socket = host.sockets.get_mut::<tcp::Socket<'_>>(handle);
            socket.connect(host.interface.context(), to, from).expect("a port that none has");
            Socket { host: self.host.clone(), handle }
        };
        let state = wait::until("an answer to the SYN", || {
            socket.with(|socket| (socket.state() != State::SynSent).then(|| socket.state()))
        });
        if state == State::Closed { Err(ErrorKind::ConnectionRefused.into()) } else { Ok(socket) }
    }

    /// Listens for one connection at an unused port.
    pub fn listen(&self) -> Listener {
        let port = self.ports.fetch_add(1, Ordering::Relaxed);
        let handle = lock(&self.host).add();
        let socket = Socket { host: self.host.clone(), handle };
        socket.with(|socket| socket.listen(port)).expect("it is new");
        Listener { socket, port }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().expect("it does not panic");
    }
}

/// A socket that waits for a connection.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// The port.
    pub port: u16,
}

impl Listener {
    /// Waits for the connection.
    pub fn accept(self) -> Socket {
        wait::until("somebody to connect", || {
            let state = self.socket.with(|socket| socket.state());
            (!matches!(state, State::Listen | State::SynReceived)).then_some(())
        });
        self.socket
    }
}

/// A TCP connection.
///
/// As with the kernel's TCP, dropping it while received data is unread sends a RST.
#[derive(Debug)]
pub struct Socket {
    host: Arc<Mutex<Host>>,
    handle: SocketHandle,
}

impl Socket {
    fn with<T>(&self, take: impl FnOnce(&mut tcp::Socket<'static>) -> T) -> T {
        take(lock(&self.host).sockets.get_mut(self.handle))
    }

    /// Closes the sending direction.
    pub fn finish(&self) {
        self.with(tcp::Socket::close);
    }

    /// Ends the connection by a RST.
    pub fn reset(self) {
        self.with(tcp::Socket::abort);
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = || match self.with(|socket| socket.recv_slice(buffer)) {
            Ok(0) => None,
            Ok(length) => Some(Ok(length)),
            Err(RecvError::Finished) => Some(Ok(0)),
            Err(RecvError::InvalidState) => Some(Err(ErrorKind::ConnectionReset.into())),
        };
        wait::within(wait::PATIENCE, read).unwrap_or(Err(ErrorKind::WouldBlock.into()))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let write = || match self.with(|socket| socket.send_slice(bytes)) {
            Ok(0) if !bytes.is_empty() => None,
            Ok(length) => Some(Ok(length)),
            Err(tcp::SendError::InvalidState) => Some(Err(ErrorKind::ConnectionReset.into())),
        };
        wait::within(wait::PATIENCE, write).unwrap_or(Err(ErrorKind::WouldBlock.into()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.with(|socket| if socket.can_recv() { socket.abort() } else { socket.close() });
    }
}

fn lock(host: &Mutex<Host>) -> MutexGuard<'_, Host> {
    host.lock().expect("nobody panics while holding it")
}
