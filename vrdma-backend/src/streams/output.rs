//! What is to go into a stream and has not.

use socket2::Socket;
use std::collections::VecDeque;
use std::io;

/// Bytes that may wait before the engine does.
const ROOM: usize = 128 << 10;
/// Most bytes in one call of the kernel.
const PIECE: usize = 64 << 10;

/// Bytes in order, in pieces at whose end a TCP segment may end. FPDUs of a whole segment share a
/// piece, since the kernel cuts it where they end; a shorter one ends its piece.
#[derive(Debug, Default)]
pub struct Output {
    /// Longer than what is in it, so that it is not filled with zeros each time.
    bytes: Vec<u8>,
    /// So much of it was put in.
    filled: usize,
    /// Those that were taken by the kernel.
    sent: usize,
    /// Lengths.
    pieces: VecDeque<usize>,
    /// The last piece has whole segments alone.
    is_open: bool,
    /// So many pieces at the front go alone: those of MPA, and the first FPDU, as Linux's siw has
    /// it.
    alone: usize,
    /// Bytes since the last end of a segment that was asked for, if the kernel has taken a part of
    /// what goes before the next.
    begun: usize,
}

impl Output {
    /// Whether more may be put in.
    pub fn has_room(&self) -> bool {
        self.filled - self.sent < ROOM
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// Whether the kernel has all.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Puts so many bytes in, which `write` writes. `is_whole`: they fill a TCP segment.
    ///
    /// # Errors
    /// Those of `write`; nothing was put in then.
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

    /// Puts bytes in that are a piece of their own.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.is_open = false;
        let copy = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(()) = self.put(bytes.len(), false, copy);
        self.alone = self.pieces.len() + 1;
    }

    /// Bytes of the next call of the kernel, at whose end a segment ends (MSG_EOR): a piece, with
    /// those behind it that are whole in its last segment of `cut` bytes.
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

    /// The kernel has taken so many bytes of a call.
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

    /// Hands over to the kernel what it takes now; `cut`: so long is a whole segment.
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

/// What was put in, for our own TCP.
#[derive(Debug, Default)]
pub struct Taken {
    /// What was put in is at its front.
    pub bytes: Vec<u8>,
    /// Lengths, of all of that.
    pub pieces: VecDeque<usize>,
}

impl Output {
    /// Whether the next bytes that are put in want memory: then one that was used before may be
    /// [lent](Output::lend).
    pub fn wants_buffer(&self) -> bool {
        self.bytes.capacity() == 0
    }

    /// Has it put the next bytes into this buffer, if it [wants](Output::wants_buffer) one.
    pub fn lend(&mut self, buffer: Vec<u8>) {
        assert!(self.wants_buffer(), "nothing is in the one before");
        self.bytes = buffer;
    }

    /// Gives all of it away, with its buffer. Not for one of which the kernel has a part.
    pub fn take(&mut self) -> Taken {
        assert_eq!(self.sent, 0, "one TCP has all of it");
        let Output { bytes, pieces, .. } = std::mem::take(self);
        Taken { bytes, pieces }
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

    /// Lengths of the calls of the kernel that all of it goes by, of which each takes all, and
    /// segments of 1000 bytes.
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
        // A reply of MPA goes alone, and so does the first FPDU.
        output.push(b"reply");
        for length in [100, 400, 600, 1, 1000, 1000, 300, 700, 50] {
            fill(&mut output, 0, length, length == 1000);
        }
        assert_eq!(calls(&mut output), [5, 100, 1001, 3050]);
        // It is no longer the first.
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
