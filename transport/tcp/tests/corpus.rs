//! Replays the inputs that fuzzing found worth keeping, and those that it once crashed with (`fuzz/README.md`).

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/tcp.rs"]
mod tcp;

#[test]
fn connections() {
    replay::replay("tcp", tcp::tcp);
}
