//! The output of a stream: what TCP has not taken yet.

use socket2::Socket;
use std::collections::VecDeque;
use std::io;

/// Bytes that may be queued before the engine has to wait.
const ROOM: usize = 128 << 10;
/// Most bytes in one system call.
const PIECE: usize = 64 << 10;

/// Bytes of a stream in order, in pieces. A TCP segment may end at the end of a piece.
///
/// FPDUs that fill whole segments share a piece, because the kernel cuts it where they end. A
/// shorter FPDU ends its piece.
#[derive(Debug, Default)]
pub struct Output {
    /// The buffer. It may be longer than its contents, so that it is not zeroed each time.
    bytes: Vec<u8>,
    /// Length of its contents.
    filled: usize,
    /// How many of these bytes the kernel has taken.
    sent: usize,
    /// Lengths of the pieces.
    pieces: VecDeque<usize>,
    /// Whether the last piece has only whole segments.
    is_open: bool,
    /// Number of pieces at the front that share no segment: MPA frames, and the first FPDU, as with
    /// Linux's siw.
    alone: usize,
    /// Bytes sent since the last segment end that was requested (MSG_EOR).
    ///
    /// It is 0 unless the kernel took only a part of a call.
    begun: usize,
}

impl Output {
    /// Whether more may be queued.
    pub fn has_room(&self) -> bool {
        self.filled - self.sent < ROOM
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// Whether TCP has taken everything.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Appends `length` bytes, which `write` writes. `is_whole`: they fill a TCP segment.
    ///
    /// # Errors
    /// The errors of `write`. Nothing was appended then.
    pub fn put<E>(
        &mut self,
        length: usize,
        is_whole: bool,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = self.filled + length;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        write(&mut self.bytes[self.filled..end])?;
        self.filled = end;
        match self.pieces.back_mut() {
            Some(piece) if self.is_open && *piece + length <= PIECE => *piece += length,
            _ => self.pieces.push_back(length),
        }
        self.is_open = is_whole;
        Ok(())
    }

    /// Appends bytes as a piece of their own.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.is_open = false;
        let copy = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(()) = self.put(bytes.len(), false, copy);
        self.alone = self.pieces.len() + 1;
    }

    /// Returns the length of the next system call, at whose end a segment ends (MSG_EOR).
    ///
    /// It is the first piece, and the pieces behind it that fit whole into its last segment of
    /// `cut` bytes.
    fn call(&self, cut: usize) -> usize {
        let mut length = self.pieces.front().copied().unwrap_or_default();
        if self.alone > 0 || cut == 0 {
            return length;
        }
        for piece in self.pieces.iter().skip(1) {
            let filled = (self.begun + length) % cut;
            if filled + piece > cut && filled != 0 || length + piece > PIECE {
                break;
            }
            length += piece;
        }
        length
    }

    /// Notes that the kernel has taken `taken` bytes of a call of `call` bytes.
    fn taken(&mut self, mut taken: usize, call: usize) {
        self.sent += taken;
        self.begun = if taken == call { 0 } else { self.begun + taken };
        while let Some(piece) = self.pieces.front_mut() {
            if *piece > taken {
                *piece -= taken;
                break;
            }
            taken -= *piece;
            self.pieces.pop_front();
            self.alone = self.alone.saturating_sub(1);
        }
    }

    /// Passes to the kernel what it takes now. `cut` is the length of a whole segment.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn flush(&mut self, socket: &Socket, cut: usize) -> io::Result<()> {
        const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_EOR;
        while !self.pieces.is_empty() {
            let call = self.call(cut);
            match socket.send_with_flags(&self.bytes[self.sent..self.sent + call], FLAGS) {
                Ok(taken) => self.taken(taken, call),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.pieces.is_empty() {
            (self.filled, self.sent) = (0, 0);
        } else if self.sent >= ROOM {
            self.bytes.copy_within(self.sent..self.filled, 0);
            (self.filled, self.sent) = (self.filled - self.sent, 0);
        }
        Ok(())
    }
}

/// The contents of an [`Output`], for vrdma's own TCP.
#[derive(Debug, Default)]
pub struct TakenOutput {
    /// The buffer. The contents are at its front.
    pub bytes: Vec<u8>,
    /// Lengths of the pieces. Together they cover the contents.
    pub pieces: VecDeque<usize>,
}

impl Output {
    /// Whether the next bytes need a new buffer. Then a used one may be passed to
    /// [`Output::provide_buffer`].
    pub fn wants_buffer(&self) -> bool {
        self.bytes.capacity() == 0
    }

    /// Uses this buffer for the next bytes, if [`Output::wants_buffer`] is true.
    pub fn provide_buffer(&mut self, buffer: Vec<u8>) {
        assert!(self.wants_buffer(), "nothing is in the one before");
        self.bytes = buffer;
    }

    /// Takes all of the contents, with their buffer. The kernel must not have a part of them.
    pub fn take(&mut self) -> TakenOutput {
        assert_eq!(self.sent, 0, "one TCP has all of it");
        let Output { bytes, pieces, .. } = std::mem::take(self);
        TakenOutput { bytes, pieces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    fn fill(output: &mut Output, byte: u8, length: usize, is_whole: bool) {
        let write = |to: &mut [u8]| {
            to.fill(byte);
            Ok::<(), ()>(())
        };
        output.put(length, is_whole, write).unwrap();
    }

    #[test]
    fn whole_segments_share_a_piece_and_a_short_one_ends_it() {
        let mut output = Output::default();
        fill(&mut output, 1, 1000, true);
        fill(&mut output, 2, 1000, true);
        fill(&mut output, 3, 10, false);
        fill(&mut output, 4, 1000, true);
        output.push(b"reply");
        fill(&mut output, 5, 40_000, true);
        fill(&mut output, 6, 40_000, true);
        assert_eq!(output.pieces, [2010, 1000, 5, 40_000, 40_000]);
    }

    /// Returns the lengths of the system calls for all of the output, with segments of 1000 bytes.
    ///
    /// Each call takes everything.
    fn calls(output: &mut Output) -> Vec<usize> {
        let mut calls = Vec::new();
        while !output.is_empty() {
            let call = output.call(1000);
            output.taken(call, call);
            calls.push(call);
        }
        assert_eq!((output.begun, output.sent), (0, output.filled));
        calls
    }

    #[test]
    fn short_fpdus_that_wait_share_a_segment_as_far_as_they_are_whole_in_it() {
        let mut output = Output::default();
        // An MPA reply shares no segment, and neither does the first FPDU.
        output.push(b"reply");
        for length in [100, 400, 600, 1, 1000, 1000, 300, 700, 50] {
            fill(&mut output, 0, length, length == 1000);
        }
        assert_eq!(calls(&mut output), [5, 100, 1001, 3050]);
        // These are no longer the first.
        for length in [500, 500, 1000, 10, 20] {
            fill(&mut output, 0, length, length == 1000);
        }
        assert_eq!(calls(&mut output), [2030]);
        for _ in 0..70 {
            fill(&mut output, 0, 1000, true);
            fill(&mut output, 0, 1000, false);
        }
        assert!(calls(&mut output).iter().all(|&call| call <= PIECE && call % 1000 == 0));
    }

    #[test]
    fn a_call_that_took_a_part_goes_on_in_the_segment_where_that_ended() {
        let mut output = Output::default();
        for length in [300, 300, 300, 450] {
            fill(&mut output, 0, length, false);
        }
        assert_eq!(output.call(1000), 900);
        output.taken(350, 900);
        assert_eq!((&output.pieces, output.begun), (&VecDeque::from([250, 300, 450]), 350));
        assert_eq!(output.call(1000), 550);
        output.taken(250, 550);
        assert_eq!((output.call(1000), output.begun), (300, 600));
        output.taken(300, 300);
        assert_eq!((calls(&mut output), output.begun), (vec![450], 0));
    }

    #[test]
    fn what_could_not_be_written_is_not_there() {
        let mut output = Output::default();
        assert_eq!(output.put(100, false, |_| Err("gone")), Err("gone"));
        assert!(output.is_empty() && output.has_room());
    }

    #[test]
    fn all_bytes_arrive_in_order_whatever_the_kernel_takes_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::from(listener.accept().unwrap().0);
        socket.set_send_buffer_size(4096).unwrap();
        let (mut output, mut expected) = (Output::default(), Vec::new());
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        for number in 0..200_u8 {
            let length = 1 + usize::from(number) * 331;
            fill(&mut output, number, length, number % 3 != 0);
            expected.resize(expected.len() + length, number);
            while !output.has_room() {
                output.flush(&socket, 4096).unwrap();
            }
        }
        while !output.is_empty() {
            output.flush(&socket, 4096).unwrap();
        }
        drop(socket);
        assert!(reader.join().unwrap().unwrap() == expected);
    }

    #[test]
    fn a_connection_that_is_over_takes_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::from(listener.accept().unwrap().0);
        drop(reader);
        let mut output = Output::default();
        for _ in 0..1000 {
            output.push(b"bytes");
            if output.flush(&socket, 4096).is_err() {
                return;
            }
            std::thread::yield_now();
        }
        panic!("the peer has gone");
    }
}
