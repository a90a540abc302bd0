//! Checks of qemu-configs/libvirt.xml: libvirt's schema allows it, and it describes the device that
//! the tests in VMs have.

use roxmltree::{Document, Node};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use vrdma_lab::paths;
use vrdma_lab::vm::qemu::RdmaDevice;

/// The namespace of elements that libvirt hands on to QEMU.
const QEMU: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
/// The channels of a guest by default (`--channels`).
const CHANNELS: u16 = 60;

fn domain() -> String {
    paths::read(&paths::workspace().join("qemu-configs/libvirt.xml")).unwrap()
}

/// The exit status of virt-xml-validate if the schema is not installed.
const NO_SCHEMA: i32 = 4;

/// Returns what libvirt's schema says about a domain: `None` if tool or schema is not installed.
///
/// # Errors
/// The schema does not allow it. The error is the tool's output.
fn validate(domain: &str) -> Option<Result<(), String>> {
    let mut command = Command::new("virt-xml-validate");
    command.args(["-", "domain"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        child => child.expect("virt-xml-validate starts"),
    };
    child.stdin.take().expect("a pipe").write_all(domain.as_bytes()).expect("it reads all");
    let output = child.wait_with_output().expect("it ends");
    let fault = || String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(NO_SCHEMA) {
        return None;
    }
    Some(if output.status.success() { Ok(()) } else { Err(fault()) })
}

#[test]
fn the_domain_is_one_that_libvirt_allows() {
    let Some(result) = validate(&domain()) else {
        let why = "virt-xml-validate is not installed (libvirt-clients, libvirt-daemon)";
        let _ = writeln!(std::io::stderr(), "the_domain_is_one_that_libvirt_allows: skipped: {why}");
        return;
    };
    assert_eq!(result, Ok(()));
    let wrong = domain().replace("<access mode=", "<acces mode=");
    assert!(validate(&wrong).expect("it is installed").is_err(), "a wrong domain is found");
}

/// Returns the values of the elements `<qemu:arg>`.
fn arguments(domain: &Document<'_>) -> Vec<String> {
    let is_argument = |node: &Node<'_, '_>| node.has_tag_name((QEMU, "arg"));
    let value = |node: Node<'_, '_>| node.attribute("value").expect("an argument has a value").to_owned();
    domain.descendants().filter(is_argument).map(value).collect()
}

#[test]
fn the_domain_has_the_rdma_device_of_the_tests() {
    let text = domain();
    let domain = Document::parse(&text).unwrap();
    let arguments = arguments(&domain);
    let [chardev, socket, device, properties] = &arguments[..] else { panic!("arguments: {arguments:?}") };
    assert_eq!((chardev.as_str(), device.as_str()), ("-chardev", "-device"));
    assert_eq!(socket, "socket,id=rdma,path=/run/vrdma/a.sock");
    let properties: BTreeSet<&str> = properties.split(',').collect();
    let wanted = RdmaDevice::new("".into(), CHANNELS, false).properties(0);
    for (key, value) in wanted.as_object().unwrap() {
        let wanted = match (key.as_str(), value) {
            ("driver", driver) => driver.as_str().unwrap().to_owned(),
            ("id" | "chardev", _) => continue,
            (key, value) if *value == true => format!("{key}=on"),
            (key, value) => format!("{key}={value}"),
        };
        assert!(properties.contains(wanted.as_str()), "no {wanted} in {properties:?}");
    }
}

#[test]
fn the_domain_is_guest_a_of_the_configuration_beside_it() {
    let text = domain();
    let domain = Document::parse(&text).unwrap();
    let attribute = |element: &str, name: &str| {
        let interface = domain.descendants().find(|node| node.has_tag_name("interface")).unwrap();
        let node = interface.descendants().find(|node| node.has_tag_name(element)).unwrap();
        node.attribute(name).unwrap().to_owned()
    };
    let config = paths::read(&paths::workspace().join("qemu-configs/backend.toml")).unwrap();
    let (_, guest) = config.split_once("name = \"a\"").unwrap();
    let value = |key: &str| {
        let (_, rest) = guest.split_once(&format!("{key} = \"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    assert_eq!(attribute("mac", "address"), value("mac"));
    assert_eq!(attribute("source", "path"), format!("/run/vrdma/{}", value("net")));
    let access = domain.descendants().find(|node| node.has_tag_name("access")).unwrap();
    assert_eq!(access.attribute("mode"), Some("shared"), "the daemon maps the guest's memory");
}
