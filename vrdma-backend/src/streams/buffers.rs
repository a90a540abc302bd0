//! Buffers that are reused: of many connections few are busy, and they fill one after another.

/// Most buffers that are kept.
const MOST: usize = 64;
/// Most bytes of all kept buffers together. Buffers beyond that go back to the system.
const BYTES: usize = 2 << 20;

/// Buffers to be reused.
#[derive(Debug, Default)]
pub(super) struct FreeBuffers {
    waiting: Vec<Vec<u8>>,
    /// The sum of their capacities.
    bytes: usize,
}

impl FreeBuffers {
    /// Returns a kept buffer, with its old contents, or a new one.
    pub fn take(&mut self) -> Vec<u8> {
        let buffer = self.waiting.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Takes a buffer back that is no longer needed.
    pub fn put(&mut self, buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        if self.waiting.len() < MOST && buffer.capacity() > 0 && bytes <= BYTES {
            self.bytes = bytes;
            self.waiting.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_wait_and_of_few_bytes() {
        let mut buffers = FreeBuffers::default();
        for _ in 0..2 * MOST {
            buffers.put(vec![1; 100]);
            buffers.put(vec![1; BYTES + 1]);
            buffers.put(Vec::new());
        }
        assert_eq!((buffers.waiting.len(), buffers.bytes), (MOST, 100 * MOST));
        assert_eq!(buffers.take(), vec![1; 100]);
        (1..MOST).for_each(|_| drop(buffers.take()));
        assert_eq!((buffers.take(), buffers.bytes), (Vec::new(), 0));
        (0..MOST).for_each(|_| buffers.put(vec![1; BYTES / 4]));
        assert_eq!((buffers.waiting.len(), buffers.bytes), (4, BYTES));
    }
}
