//! An EAL that cannot start names the cause. EAL starts once in a process, so each attempt is a
//! process of its own.

use std::path::Path;
use std::process::Command;
use vrdma_backend::port::Eal;

const ATTEMPT: &str = "VRDMA_TEST_EAL";

/// Returns the message of starting EAL with these arguments.
fn attempt(arguments: &str, device: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "an_eal_that_cannot_start_names_the_cause_and_the_mend", "--nocapture"]);
    let output = command.env(ATTEMPT, format!("{device} {arguments}")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_once("EAL SAYS ").map(|(_, text)| text.to_owned()).unwrap_or_else(|| {
        panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    })
}

#[test]
fn an_eal_that_cannot_start_names_the_cause_and_the_mend() {
    if let Ok(attempt) = std::env::var(ATTEMPT) {
        let (device, arguments) = attempt.split_once(' ').unwrap();
        match Eal::start(arguments, &device.parse().unwrap()) {
            Ok(_) => println!("EAL SAYS it runs"),
            Err(error) => {
                // A second attempt reports the same error.
                let again = Eal::start("", &device.parse().unwrap()).unwrap_err();
                assert_eq!(error.to_string(), again.to_string());
                println!("EAL SAYS {error:#}");
            }
        }
        return;
    }
    assert!(attempt("", "net_ring0").starts_with("it runs"));
    let mut attempts = vec![
        ("--nonsense", "net_ring0", &["an argument of --eal is wrong", "--nonsense"][..]),
        ("--lcores 0@4095", "net_ring0", &["--lcores 0@4095"]),
        ("--no-huge -m 100000000", "net_ring0", &["enough memory", "-m"]),
        ("--vdev net_nonsense0", "net_ring0", &["a device that was named is not there"]),
    ];
    let reserved = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
    if reserved.trim() == "0" {
        attempts.push(("--in-memory -m 64", "net_ring0", &["hugepages", "--no-huge"]));
    }
    if !Path::new("/sys/bus/pci/devices/0000:ff:1f.7").exists() {
        attempts.push(("", "0000:ff:1f.7", &["it runs"]));
    }
    for (arguments, device, parts) in attempts {
        let said = attempt(arguments, device);
        for part in parts {
            assert!(said.contains(part), "{arguments} {device}: {said}");
        }
    }
}
