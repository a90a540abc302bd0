//! Replays the inputs that fuzzing found worth keeping, and those that it once crashed with (`fuzz/README.md`).

#[path = "../../fuzz/src/packet.rs"]
mod packet;

#[test]
fn packets() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/packet");
    let mut inputs = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        packet::packet(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 20, "{inputs} inputs");
}
