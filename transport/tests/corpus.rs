//! Replays the fuzzing corpus, and the inputs that crashed once (`testing/fuzz/README.md`).
//!
//! Shows: hostile-input.

#[path = "../../testing/fuzz/src/engine.rs"]
mod engine;
#[path = "../../testing/fuzz/src/replay.rs"]
mod replay;

#[test]
fn responders() {
    replay::replay("responder", engine::responder);
}

#[test]
fn reordered_sequences() {
    replay::replay("reorder", engine::reorder);
}

#[test]
fn requesters() {
    replay::replay("requester", engine::requester);
}

#[test]
fn records() {
    replay::replay("restore", engine::restore);
}

#[test]
fn streams() {
    replay::replay("stream", engine::stream);
}
