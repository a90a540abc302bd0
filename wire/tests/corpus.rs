//! Replays the inputs that fuzzing found worth keeping, and those that it once crashed with (`fuzz/README.md`).

#[path = "../../fuzz/src/packet.rs"]
mod packet;
#[path = "../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn packets() {
    replay::replay("packet", packet::packet);
}
