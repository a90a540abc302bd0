//! Replays the fuzzing corpus, and the inputs that crashed once (`testing/fuzz/README.md`).

#[path = "../../../testing/fuzz/src/input.rs"]
mod input;
#[path = "../../../testing/fuzz/src/replay.rs"]
mod replay;
#[path = "../../../testing/fuzz/src/stack.rs"]
mod stack;
#[path = "../../../testing/fuzz/src/tcp.rs"]
mod tcp;

#[test]
fn connections() {
    replay::replay("tcp", tcp::tcp);
}

#[test]
fn stacks() {
    let mut by_cookie = 0;
    replay::replay("stack", |data| by_cookie += stack::stack(data).cookies_taken);
    assert!(by_cookie > 10, "the corpus has {by_cookie} connections that were set up by a cookie");
}
