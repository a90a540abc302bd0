//! Replays the inputs that fuzzing found worth keeping, and those that it once crashed with (`fuzz/README.md`).

#[path = "../../fuzz/src/engine.rs"]
mod engine;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = format!("{}/../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut inputs = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        run(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 20, "{inputs} inputs");
}

#[test]
fn responders() {
    replay("responder", engine::responder);
}

#[test]
fn requesters() {
    replay("requester", engine::requester);
}
