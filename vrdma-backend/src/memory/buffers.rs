//! The buffers of descriptor chains: pieces of guest memory in order, accessed like one contiguous
//! buffer.

use super::{Extent, GuestMemory, HostExtent, copy::copy};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pieces of one guest's memory, in order.
///
/// It is cleared and filled again for each chain, so that no chain needs an allocation.
#[derive(Debug)]
pub struct Buffers {
    /// Keeps the memory mapped that `pieces` point to.
    memory: Arc<GuestMemory>,
    pieces: Vec<HostExtent>,
    len: usize,
}

// SAFETY: the pointers lead to memory shared with the guest, which only `copy` accesses. The
// mapping lives as long as `memory`.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Creates an empty list of pieces of this memory.
    pub fn new(memory: &Arc<GuestMemory>) -> Buffers {
        Buffers { memory: memory.clone(), pieces: Vec::with_capacity(64), len: 0 }
    }

    /// Removes all pieces.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.len = 0;
    }

    /// Returns the number of bytes in all pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends an extent. `None` if a part is not guest memory. An empty extent is accepted.
    #[inline]
    pub fn push(&mut self, extent: Extent) -> Option<()> {
        if extent.len != 0 {
            self.memory.resolve(extent, &mut self.pieces)?;
        }
        self.len = self.len.checked_add(usize::try_from(extent.len).ok()?)?;
        Some(())
    }

    /// Reads two successive words of guest memory, in the guest's byte order.
    ///
    /// `None` if they are not contiguous in this process, or not aligned.
    #[inline]
    pub fn read_pair(&self, gpa: u64) -> Option<[u64; 2]> {
        let piece = self.memory.resolve_one(Extent { gpa, len: 16 })?;
        if piece.ptr.align_offset(8) != 0 {
            return None;
        }
        Some([0, 8].map(|at| {
            // SAFETY: these are 16 mapped, aligned bytes. The access is atomic, because the guest
            // may write at the same time.
            unsafe { AtomicU64::from_ptr(piece.ptr.add(at).cast()) }.load(Ordering::Relaxed)
        }))
    }

    /// Copies bytes to `out`, from `offset` on.
    ///
    /// # Panics
    /// The range exceeds the buffers. Callers know the length.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let len = out.len();
        let mut at = Cursor::new(self, offset, len);
        let mut done = 0;
        while done < len {
            let piece = at.take(len - done);
            let n = piece.len as usize;
            // SAFETY: the piece is mapped for `n` bytes, which is at most the rest of `out`.
            unsafe { copy(piece.ptr, out[done..done + n].as_mut_ptr(), n) };
            done += n;
        }
    }

    /// Copies bytes into the buffers, from `offset` on.
    ///
    /// # Panics
    /// The range exceeds the buffers. Callers know the length.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let mut at = Cursor::new(self, offset, bytes.len());
        let mut done = 0;
        while done < bytes.len() {
            let piece = at.take(bytes.len() - done);
            let n = piece.len as usize;
            // SAFETY: the piece is mapped for `n` bytes, which is at most the rest of `bytes`.
            unsafe { copy(bytes[done..done + n].as_ptr(), piece.ptr, n) };
            done += n;
        }
    }

    /// Copies `len` bytes from `offset` on to buffers of another guest, or of the same guest.
    ///
    /// # Panics
    /// A range exceeds its buffers. Callers know the lengths.
    pub fn copy_to(&self, offset: usize, dst: &Buffers, dst_offset: usize, len: usize) {
        let mut from = Cursor::new(self, offset, len);
        let mut to = Cursor::new(dst, dst_offset, len);
        let mut done = 0;
        while done < len {
            let source = from.take(len - done);
            let mut moved = 0;
            while moved < source.len as usize {
                let target = to.take(source.len as usize - moved);
                // SAFETY: `moved + target.len` is at most the length of `source`, and both are
                // mapped.
                unsafe { copy(source.ptr.add(moved), target.ptr, target.len as usize) };
                moved += target.len as usize;
            }
            done += moved;
        }
    }
}

/// A position in the pieces.
struct Cursor<'a> {
    pieces: &'a [HostExtent],
    /// Number of bytes of the first piece before the position.
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at `offset`, for `len` bytes.
    fn new(of: &'a Buffers, offset: usize, len: usize) -> Cursor<'a> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= of.len), "access inside the buffers");
        let mut cursor = Cursor { pieces: &of.pieces, offset };
        cursor.settle();
        cursor
    }

    /// Skips pieces that are wholly behind the position.
    fn settle(&mut self) {
        while let [first, rest @ ..] = self.pieces
            && self.offset >= first.len as usize
        {
            self.offset -= first.len as usize;
            self.pieces = rest;
        }
    }

    /// Returns the next piece: at least one byte, at most `len`. At least one byte must be left.
    fn take(&mut self, len: usize) -> HostExtent {
        let first = self.pieces[0];
        let n = len.min(first.len as usize - self.offset);
        // SAFETY: the offset is less than the piece's length, so the pointer stays in it.
        let piece = HostExtent { ptr: unsafe { first.ptr.add(self.offset) }, len: n as u64 };
        self.offset += n;
        self.settle();
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::memory;
    use super::*;

    fn buffers(memory: &Arc<GuestMemory>, extents: &[(u64, u64)]) -> Buffers {
        let mut buffers = Buffers::new(memory);
        extents.iter().for_each(|&(gpa, len)| buffers.push(Extent { gpa, len }).unwrap());
        buffers
    }

    #[test]
    fn pieces_read_and_write_as_one() {
        let memory = memory(&[(0, 0x2000), (0x2000, 0x2000)]);
        let scattered = buffers(&memory, &[(0x100, 1), (0x1fff, 3), (0x300, 0), (0x400, 96)]);
        let flat = buffers(&memory, &[(0x3000, 100)]);
        let data: Vec<u8> = (1..=100).collect();
        scattered.write(0, &data);
        for (offset, len) in [(0, 100), (0, 1), (1, 3), (4, 96), (99, 1), (100, 0), (2, 50)] {
            let mut found = vec![0; len];
            scattered.read(offset, &mut found);
            assert_eq!(found, data[offset..offset + len], "{offset}+{len}");
            flat.write(0, &[0; 100]);
            scattered.copy_to(offset, &flat, 100 - len, len);
            flat.read(100 - len, &mut found);
            assert_eq!(found, data[offset..offset + len], "{offset}+{len}");
        }
        flat.write(0, &[7; 100]);
        flat.copy_to(0, &scattered, 0, 100);
        let mut found = [0; 100];
        scattered.read(0, &mut found);
        assert_eq!(found, [7; 100]);
    }

    #[test]
    fn what_is_not_memory_is_refused() {
        let memory = memory(&[(0, 0x1000)]);
        let mut buffers = Buffers::new(&memory);
        for (gpa, len) in [(0xfff, 2), (0x1000, 1), (u64::MAX, 1), (0, u64::MAX)] {
            assert_eq!(buffers.push(Extent { gpa, len }), None, "{gpa:#x}+{len:#x}");
        }
        assert!(buffers.read_pair(0xff0).is_some());
        assert!(buffers.read_pair(0xff8).is_none() && buffers.read_pair(4).is_none());
    }

    #[test]
    #[should_panic(expected = "inside the buffers")]
    fn accesses_stay_inside() {
        buffers(&memory(&[(0, 0x1000)]), &[(0, 10)]).read(1, &mut [0; 10]);
    }
}
