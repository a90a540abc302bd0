//! Buffers that wait to be used again: of many connections few are busy, and those fill one after
//! the other.

/// Most that wait.
const MOST: usize = 64;
/// Bytes of all of them at most; what is beyond is given back to the system.
const BYTES: usize = 2 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    waiting: Vec<Vec<u8>>,
    /// Their capacities together.
    bytes: usize,
}

impl Buffers {
    /// One of those, with whatever is in it, or a new one.
    pub fn take(&mut self) -> Vec<u8> {
        let buffer = self.waiting.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// One is not needed any more.
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
        let mut buffers = Buffers::default();
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
