//! Buffers that wait to be used again: of many connections few are busy, and those fill one after the other.

/// Most that wait.
const MOST: usize = 64;
/// Longer ones are given back to the system.
const LONGEST: usize = 256 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// One of those, with whatever is in it, or a new one.
    pub fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// One is not needed any more.
    pub fn put(&mut self, buffer: Vec<u8>) {
        if self.0.len() < MOST && (1..=LONGEST).contains(&buffer.capacity()) {
            self.0.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_kept_and_no_long_ones() {
        let mut buffers = Buffers::default();
        for _ in 0..2 * MOST {
            buffers.put(vec![1; 100]);
            buffers.put(vec![1; LONGEST + 1]);
            buffers.put(Vec::new());
        }
        assert_eq!(buffers.0.len(), MOST);
        assert_eq!(buffers.take(), vec![1; 100]);
    }
}
