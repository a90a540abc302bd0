//! Messages in a stream of bytes: each ends with a byte of value 0.

/// Cuts a stream of bytes into messages.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    /// The number of bytes that were searched for the end of the message.
    searched: usize,
    /// Most bytes of a message, without its end.
    limit: usize,
}

/// The error that a message is longer than allowed. The stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message is longer than {limit} bytes")]
pub struct TooLong {
    /// Most bytes of a message.
    pub limit: usize,
}

impl Frames {
    /// Cuts into messages of at most `limit` bytes.
    pub fn new(limit: usize) -> Frames {
        Frames { bytes: Vec::new(), searched: 0, limit }
    }

    /// Adds bytes of the stream.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next message without its end, or `None` if its end has not come.
    ///
    /// # Errors
    /// The message is too long.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let found = self.bytes[self.searched..].iter().position(|byte| *byte == 0);
        let length = found.map_or(self.bytes.len(), |at| self.searched + at);
        if length > self.limit {
            return Err(TooLong { limit: self.limit });
        }
        self.searched = length;
        if found.is_none() {
            return Ok(None);
        }
        let rest = self.bytes.split_off(length + 1);
        let mut message = std::mem::replace(&mut self.bytes, rest);
        message.truncate(length);
        self.searched = 0;
        Ok(Some(message))
    }

    /// Returns the number of bytes that were added and not returned.
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes that were added and not returned.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns a message with its end.
///
/// # Panics
/// The message has a byte of value 0. Text in JSON has none.
pub fn frame(mut message: Vec<u8>) -> Vec<u8> {
    assert!(!message.contains(&0), "JSON has no byte of value 0");
    message.push(0);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(1..=255u8, 0..20), 0..10)
    }

    /// Cuts bytes into pieces of these lengths, over and over.
    fn pieces<'a>(bytes: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
        let (mut rest, mut lengths) = (bytes, lengths.iter().cycle());
        std::iter::from_fn(move || {
            let (piece, left) = rest.split_at((*lengths.next()?).min(rest.len()));
            rest = left;
            (!piece.is_empty()).then_some(piece)
        })
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_however_the_stream_is_cut(
            messages in messages(),
            lengths in prop::collection::vec(1..30usize, 1..10),
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|message| frame(message.clone())).collect();
            let (mut frames, mut found) = (Frames::new(20), Vec::new());
            for piece in pieces(&stream, &lengths) {
                frames.add(piece);
                while let Some(message) = frames.next_message().unwrap() {
                    found.push(message);
                }
            }
            prop_assert_eq!(found, messages);
            prop_assert_eq!(frames.waiting(), 0);
        }

        #[test]
        fn a_message_is_refused_as_soon_as_it_is_too_long(length in 0..40usize, limit in 0..40usize) {
            let mut frames = Frames::new(limit);
            let refused = (0..length).any(|_| {
                frames.add(b"x");
                frames.next_message() == Err(TooLong { limit })
            });
            prop_assert_eq!(refused, length > limit);
        }
    }

    #[test]
    #[should_panic(expected = "JSON has no byte of value 0")]
    fn an_end_within_a_message_is_a_fault() {
        frame(vec![1, 0, 2]);
    }
}
