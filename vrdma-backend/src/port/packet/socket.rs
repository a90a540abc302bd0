//! The system calls of a packet socket, each for many frames.
#![allow(unsafe_code, reason = "system calls for which no library has a safe form")]

use super::header::HEADER;
use crate::port::BURST;
use crate::port::dpdk::{ClaimedInterface, DriverSocket, bind_packet, packet_socket};
use anyhow::{Context, Result};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;

/// The number of parts of a message's memory: the kernel's header, the frame's first bytes, and the
/// rest.
pub const PARTS: usize = 3;
/// The receive buffer in the kernel, in bytes. `SEND_BUFFER` is that for sending.
///
/// The kernel counts its own overhead, too.
const RECEIVE_BUFFER: i32 = 32 << 20;
const SEND_BUFFER: i32 = 4 << 20;
/// From `linux/if_packet.h`. The libc crate lacks it.
const PACKET_VNET_HDR: i32 = 15;
/// The room for a control message with `tpacket_auxdata`, in words: its header and the data.
const CONTROL: usize = (size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>()).div_ceil(8);

/// A packet socket, which is bound to an interface after it was opened.
///
/// It receives what arrives at the interface, to any address, but not what this host's kernel sends
/// by it.
#[derive(Debug)]
pub struct RawSocket(DriverSocket);

/// A message from the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceivedFrame {
    /// The length of the frame in bytes.
    pub len: usize,
    /// Whether the frame was longer than its memory.
    pub is_cut_off: bool,
    /// The VLAN tag that the kernel took out of the frame, from the TPID on.
    pub tag: Option<[u8; 4]>,
}

impl RawSocket {
    /// Opens a packet socket.
    ///
    /// # Errors
    /// The kernel refuses. The message says which step.
    pub fn open() -> Result<RawSocket> {
        let fd = packet_socket().context("a packet socket")?;
        set(&fd, libc::SOL_PACKET, PACKET_VNET_HDR, 1).context("PACKET_VNET_HDR")?;
        set(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1).context("PACKET_AUXDATA")?;
        // Without CAP_NET_ADMIN, net.core.rmem_max and wmem_max limit the buffers.
        for (forced, asked, size) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BUFFER),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER),
        ] {
            let forced = set(&fd, libc::SOL_SOCKET, forced, size);
            forced.or_else(|_| set(&fd, libc::SOL_SOCKET, asked, size)).context("socket buffers")?;
        }
        let socket = RawSocket(DriverSocket::from(fd));
        socket.0.ignore_own_host().context("a filter")?;
        Ok(socket)
    }

    /// Binds the socket to an interface. After that interface is gone it may be bound to another.
    ///
    /// # Errors
    /// The kernel refuses. The message says which step.
    pub fn bind(&self, claimed: &ClaimedInterface) -> Result<()> {
        let (interface, index) = (claimed.interface(), claimed.interface().index());
        bind_packet(self.0.fd(), index, libc::ETH_P_ALL).context("bind")?;
        // Guests have MAC addresses of their own.
        if let Err(error) = self.be_promiscuous(index) {
            log::warn!("{interface}: not promiscuous ({error}): it may hide guests' frames");
        }
        Ok(())
    }

    /// Makes the interface promiscuous for as long as both the socket and the interface exist.
    fn be_promiscuous(&self, index: i32) -> io::Result<()> {
        // SAFETY: zero is a valid value of this structure.
        let mut member: libc::packet_mreq = unsafe { zeroed() };
        (member.mr_ifindex, member.mr_type) = (index, libc::PACKET_MR_PROMISC as u16);
        set(self.0.fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, member)
    }

    fn fd(&self) -> i32 {
        self.0.fd().as_raw_fd()
    }

    /// Sends messages from the first on, at most [`BURST`]. Returns how many the kernel took.
    ///
    /// # Errors
    /// The kernel did not take the first message.
    pub fn send(&self, messages: &[&[IoSlice<'_>]]) -> io::Result<usize> {
        // SAFETY: zero is a valid value of this structure.
        let mut headers: [libc::mmsghdr; BURST] = unsafe { zeroed() };
        for (header, parts) in headers.iter_mut().zip(messages) {
            // The kernel only reads what they point to. An `IoSlice` has the layout of an `iovec`.
            header.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_iovlen = parts.len();
        }
        let count = messages.len().min(BURST);
        // SAFETY: there are `count` headers, each with the number of parts that it gives, or none.
        // `messages` borrows what the parts point to through the call.
        let sent =
            unsafe { libc::sendmmsg(self.fd(), headers.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives as many messages as are available, at most one for each place and at most
    /// [`BURST`].
    ///
    /// It calls `each` with the index and description of each message, and returns their number.
    ///
    /// # Errors
    /// There is no message, or the interface is gone.
    pub fn receive(
        &self,
        places: &mut [[IoSliceMut<'_>; PARTS]],
        mut each: impl FnMut(usize, ReceivedFrame),
    ) -> io::Result<usize> {
        // SAFETY: zero is a valid value of this structure.
        let mut headers: [libc::mmsghdr; BURST] = unsafe { zeroed() };
        let mut controls = [[0u64; CONTROL]; BURST];
        let count = places.len().min(BURST);
        for ((header, place), control) in headers.iter_mut().zip(places.iter_mut()).zip(&mut controls) {
            // An `IoSliceMut` has the layout of an `iovec`.
            header.msg_hdr.msg_iov = place.as_mut_ptr().cast();
            header.msg_hdr.msg_iovlen = PARTS;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of_val(control);
        }
        // SAFETY: there are `count` headers, each with `PARTS` parts and control memory of the
        // length that it gives. `places` borrows what the parts point to mutably, through the call.
        let came = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::recvmmsg(self.fd(), headers.as_mut_ptr(), count as u32, flags, null_mut())
        };
        let came = usize::try_from(came).map_err(|_| io::Error::last_os_error())?;
        for (index, header) in headers[..came].iter().enumerate() {
            let message = &header.msg_hdr;
            let received = ReceivedFrame {
                len: (header.msg_len as usize).saturating_sub(HEADER),
                is_cut_off: message.msg_flags & libc::MSG_TRUNC != 0,
                tag: tag(message),
            };
            each(index, received);
        }
        Ok(came)
    }

    /// Returns how many frames found no room in the receive buffer since the last call.
    pub fn drops(&self) -> u32 {
        self.0.drops()
    }

    /// Returns the descriptor to wait for.
    pub fn readiness(&self) -> BorrowedFd<'_> {
        self.0.fd().as_fd()
    }

    /// Clears a pending error. Otherwise the socket would stay readable.
    pub fn clear_error(&self) {
        self.0.clear_error();
    }
}

/// Returns the VLAN tag in the control data of a message.
fn tag(message: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the message's control memory is `CONTROL` words, which were zero before the kernel
    // wrote to them. It has room for a header and a `tpacket_auxdata`, for which all bit patterns
    // are valid. The kernel sets the length that it wrote, so `CMSG_FIRSTHDR` returns null if there
    // is nothing.
    let said = unsafe {
        let control = libc::CMSG_FIRSTHDR(message).as_ref()?;
        let is_ours = control.cmsg_level == libc::SOL_PACKET && control.cmsg_type == libc::PACKET_AUXDATA;
        let data = is_ours.then(|| libc::CMSG_DATA(control).cast::<libc::tpacket_auxdata>())?;
        data.read_unaligned()
    };
    let has = |bit: u32| said.tp_status & bit != 0;
    let tpid =
        if has(libc::TP_STATUS_VLAN_TPID_VALID) { said.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), said.tp_vlan_tci.to_be_bytes());
    has(libc::TP_STATUS_VLAN_VALID).then_some([a, b, c, d])
}

fn set<T>(fd: &OwnedFd, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes of the value as it has. It returns EINVAL if the
    // option has another size.
    let result = unsafe {
        let len = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
