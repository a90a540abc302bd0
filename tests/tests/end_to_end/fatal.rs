//! The report of a test's process that a signal ends.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use vrdma_tests::Lab;

/// Environment variable, set in the process that is to end.
const VICTIM: &str = "VRDMA_TEST_VICTIM";

#[test]
fn a_signal_that_ends_the_process_is_told_with_who_sent_it() {
    let name = "fatal::a_signal_that_ends_the_process_is_told_with_who_sent_it";
    if let Ok(signal) = std::env::var(VICTIM) {
        let _lab = Lab::new(1);
        let signal: i32 = signal.parse().unwrap();
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limit is valid. It prevents a core file.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) }, 0);
        if signal == libc::SIGABRT {
            std::process::abort();
        }
        // SAFETY: a plain system call.
        unsafe { libc::raise(signal) };
        unreachable!("signal {signal} ends the process");
    }
    for signal in [libc::SIGABRT, libc::SIGTERM] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name]).env(VICTIM, signal.to_string());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let sender = format!(", from process {}, in thread ", child.id());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.signal(), Some(signal), "{said}");
        assert!(said.contains(&format!("signal {signal}, code ")) && said.contains(&sender), "{said}");
    }
}
