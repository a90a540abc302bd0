//! Runs the program against a daemon in the test's process.

use clap::Parser;
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use vrdma_admin::Reply;
use vrdma_admin::capture::{CaptureEnd, CaptureProgress};
use vrdma_backend::config::{Args, Config};
use vrdma_backend::daemon::Daemon;

#[path = "../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;

/// A daemon with two guests.
struct Lab {
    dir: TempDir,
    _daemon: Daemon,
}

impl Lab {
    fn new() -> Lab {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name);
        let guest = |name: &str, last: u8| {
            let (socket, net) = (path(name), path(&format!("{name}-net")));
            let keys = format!(
                "name={name},socket={},net={},mac=52:54:00:00:00:0{last},any-gid=true",
                socket.display(),
                net.display()
            );
            keys.parse().unwrap()
        };
        let config = Config {
            admin: Some(path("admin")),
            observe: Some(path("observe")),
            guests: vec![guest("vm1", 1), guest("vm2", 2)],
            ..Config::default()
        };
        let daemon = Daemon::start(config).unwrap();
        Lab { dir, _daemon: daemon }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, socket: &str, line: &str) -> Command {
        let mut command = program(line);
        command.arg("--socket").arg(self.path(socket));
        command
    }

    /// Returns what the program prints, which succeeds.
    fn prints(&self, line: &str) -> String {
        let output = self.command("observe", line).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn prints_json(&self, line: &str) -> Value {
        serde_json::from_str(&self.prints(&format!("{line} --json"))).unwrap()
    }
}

fn program(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrdma-ctl"));
    command.args(line.split(' '));
    command
}

/// Returns exit status and complaint of a program that fails.
fn fails(output: Output) -> (i32, String) {
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn guests_are_listed_in_a_table_and_as_json() {
    let lab = Lab::new();
    let lines: Vec<String> = lab.prints("list").lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("GUEST  MAC                WORKER  RDMA   ETHERNET"), "{}", lines[0]);
    assert!(lines[1].starts_with("vm1    52:54:00:00:00:01       0  waits  waits"), "{}", lines[1]);
    assert_eq!(lab.prints_json("list")["guests"][1]["name"], "vm2");
}

#[test]
fn everything_can_be_shown() {
    let lab = Lab::new();
    let guest = lab.prints("show guest vm1");
    assert!(guest.contains("keys.mac") && guest.contains("no front-end"), "{guest}");
    assert_eq!(lab.prints_json("show guest vm1")["keys"]["any_gid"], true);
    assert_eq!(lab.prints("show qp vm1"), "guest vm1 has no queue pair\n");
    assert_eq!(lab.prints_json("show qp vm1")["qps"], Value::Array(vec![]));
    assert_eq!(lab.prints("show mr vm1"), "guest vm1 has no memory region\n");
    assert!(lab.prints("show worker").starts_with("WORKER"));
    assert_eq!(lab.prints_json("show worker 0")["workers"][0]["guests"][0], "vm1");
    assert!(lab.prints("show port").lines().nth(2).unwrap().starts_with("vm2"));
    assert!(lab.prints("show port vm1").contains("counters.tx_frames"));
}

#[test]
fn counters_are_printed_once_or_as_rates() {
    let lab = Lab::new();
    let names = lab.prints("stats guests.vm1.device");
    assert!(names.lines().all(|line| line.starts_with("guests.vm1.device.")), "{names}");
    assert!(lab.prints("stats").contains("workers.0.sleeps"));
    assert!(lab.prints_json("stats")["guests"].is_array());
    let lists = lab.prints("stats -w 0.1 -n 2 guests.vm1");
    assert_eq!(lists.matches("nothing changed").count(), 2, "{lists}");
    let lines = lab.prints("stats -w 0.1 -n 2 --json");
    assert_eq!(lines.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 2);
}

#[test]
fn mistakes_are_told_in_a_line_with_the_nearest_name() {
    let lab = Lab::new();
    let said = |line: &str| fails(lab.command("observe", line).output().unwrap());
    assert_eq!(said("show guest vm3"), (1, "vrdma-ctl: there is no guest vm3: did you mean vm1?\n".into()));
    assert_eq!(said("show qp vm1 7"), (1, "vrdma-ctl: guest vm1 has no QP 7\n".into()));
    assert_eq!(said("show port vm11").0, 1);
    assert_eq!(said("show worker 1"), (1, "vrdma-ctl: there is no worker 1: there is only 0\n".into()));
    let (code, text) = said("stats guest.vm1");
    assert!(code == 1 && text.contains("no counter's name begins with guest.vm1"), "{text}");
    let (code, text) = said("shwo guest vm1");
    assert!(code == 2 && text.contains("'show'"), "{text}");
    // The observe socket is not for changes.
    let (code, text) = said("log debug");
    assert!(code == 1 && text.contains("for administration"), "{text}");
}

#[test]
fn the_level_of_the_log_is_printed_and_set() {
    let lab = Lab::new();
    assert_eq!(lab.prints("log"), "off\n");
    let output = lab.command("admin", "log warn").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "the log has level warn; it had off\n");
    assert_eq!(lab.prints("log"), "warn\n");
}

#[test]
fn a_daemon_that_is_not_there_has_an_exit_status_of_its_own() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("none");
    let output = program("list").arg("--socket").arg(&socket).output().unwrap();
    let (code, text) = fails(output);
    assert!(code == 3 && text.contains("there is no such socket: no daemon runs"), "{text}");
    assert!(text.contains("systemctl start vrdma-backend") && text.contains("--socket PATH"), "{text}");
    let output = program("version").arg("--socket").arg(&socket).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("vrdma-ctl "));
    let lab = Lab::new();
    assert!(lab.prints("version").contains("vrdma-backend "));
}

#[test]
fn a_daemon_that_drains_takes_no_front_ends() {
    let lab = Lab::new();
    let run = |line: &str| lab.command("admin", line).output().unwrap();
    let output = run("drain --timeout 60");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "no guest has sends that have not ended\n");
    let mut front_end = UnixStream::connect(lab.path("vm1")).unwrap();
    assert_eq!(front_end.read(&mut [0; 1]).unwrap(), 0, "it is closed at once");
    assert!(run("resume").status.success());
    let _front_end = UnixStream::connect(lab.path("vm1")).unwrap();
    let list = || lab.prints("list");
    wait::until("a front-end that is let in", || {
        list().contains(&format!("pid {}", std::process::id())).then_some(())
    });
    // Those who look do not decide that.
    let (code, text) = fails(lab.command("observe", "drain").output().unwrap());
    assert!(code == 1 && text.contains("for administration"), "{text}");
}

#[test]
fn guests_are_added_changed_and_removed() {
    let lab = Lab::new();
    let administer = |line: &str| lab.command("admin", line).output().unwrap();
    let says = |line: &str| {
        let output = administer(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let socket = lab.path("vm3").display().to_string();
    let add = format!("guest add name=vm3,mac=52:54:00:00:00:03 socket={socket} any-gid=true");
    assert_eq!(says(&add), "the guest is added\n");
    assert_eq!(says("guest set vm3 weight=4 rx-bytes=2000000"), "guest vm3 is changed\n");
    let keys = &lab.prints_json("show guest vm3")["keys"];
    assert_eq!((&keys["weight"], &keys["rx_bytes"]), (&4.into(), &2_000_000.into()));
    let _front_end = UnixStream::connect(&socket).unwrap();
    wait::until("the front-end", || {
        (lab.prints_json("list")["guests"][2]["functions"][0]["connected"] == true).then_some(())
    });
    let (status, said) = fails(administer("guest remove vm3"));
    assert_eq!(status, 1);
    assert!(said.contains(&format!("connected (process {})", std::process::id())), "{said}");
    for (line, what) in [
        (add.as_str(), "guest vm3: two guests have this name"),
        ("guest set vm3 wieght=4", "there is no key wieght: did you mean weight?"),
        ("guest set vm9 weight=4", "there is no guest vm9: did you mean vm"),
        ("reload", "there is no configuration file (--config) to read again"),
    ] {
        let (status, said) = fails(administer(line));
        assert!(status == 1 && said.contains(what), "{line}: {said}");
    }
    assert_eq!(says("guest remove vm3 --force"), "guest vm3 is removed\n");
    assert_eq!(lab.prints_json("list")["guests"].as_array().unwrap().len(), 2);
    let (status, said) = fails(lab.command("observe", "guest remove vm1").output().unwrap());
    assert!(status == 1 && said.contains("--admin"), "{said}");
}

#[test]
fn the_configuration_is_saved_with_the_level_of_the_log() {
    let lab = Lab::new();
    assert!(lab.command("admin", "log debug").output().unwrap().status.success());
    let text = lab.prints("save-config");
    assert!(text.contains("log = \"debug\"") && text.contains("name = \"vm2\""), "{text}");
    let file = lab.path("saved.toml");
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let saved = lab.command("observe", "save-config").arg(&file).output().unwrap();
    assert!(saved.status.success(), "{saved:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    // A daemon takes what was saved.
    let args = Args::parse_from(["vrdma-backend", "--config", file.to_str().unwrap()]);
    assert_eq!(Config::load(&args).unwrap().to_toml().unwrap(), text);
    let missing = lab.command("observe", "save-config").arg("/nonexistent/file").output().unwrap();
    let (code, said) = fails(missing);
    assert!(code == 1 && said.contains("/nonexistent/file"), "{said}");
}

#[test]
fn a_queue_pair_that_is_not_there_cannot_be_followed() {
    let lab = Lab::new();
    let said = fails(lab.command("observe", "trace vm1 7").output().unwrap());
    assert_eq!(said, (1, "vrdma-ctl: guest vm1 has no QP 7\n".into()));
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    let lab = Lab::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = lab.command("observe", "list").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn completions_and_man_pages_are_printed() {
    for (line, part) in
        [("generate completions bash", "vrdma-ctl"), ("generate man", ".TH"), ("generate man show", ".TH")]
    {
        let output = program(line).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(part), "{line}");
    }
    let output = program("top").arg("--socket").arg("/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

/// Returns what the program prints about a daemon whose guests are played, which succeeds.
fn prints_of(lab: &vrdma_tests::Lab, line: &str) -> String {
    let output = program(line).arg("--socket").arg(lab.admin_path()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn played() -> vrdma_tests::Lab {
    vrdma_tests::Lab::with(2, vrdma_tests::LabOptions { admin: true, ..Default::default() })
}

#[test]
fn a_queue_pair_is_shown_and_followed_to_its_end() {
    use vrdma_tests::abi::cqe::WcStatus;
    use vrdma_tests::verbs::{Data, Remote, Request};
    let lab = played();
    let (mut a, b) = vrdma_tests::side::pair(&lab, 1, 4096, &vrdma_tests::QpOptions::default());
    let number = a.qp.number.to_string();
    let table = prints_of(&lab, "show qp g0");
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(&number));
    let row: Vec<&str> = row.unwrap().split_whitespace().collect();
    let peer = b.qp.number.to_string();
    assert_eq!((row[1], row[2], row[4], row[6]), ("rc", "rts", "copy", &*peer), "{table}");
    assert!(prints_of(&lab, "show mr g0").contains("4096"));
    let mut trace = program(&format!("trace g0 {number} --interval 0.1"));
    let mut trace = trace.arg("--socket").arg(lab.admin_path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(trace.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.contains("rc rts, copy to ") && first.contains("0 errors"), "{first}");
    let wrong = Remote { rkey: b.mr.key ^ 0x55, ..b.mr.remote(0) };
    a.post(&Request::write(a.qp.tag(1), wrong, Data::Sges(&[a.mr.sge(0, 8)])));
    a.cq.expect(a.qp.number, 1, WcStatus::REM_ACCESS_ERR);
    let last = lines.last().unwrap();
    assert!(last.contains("it is in ERR") && last.contains("IBV_WC_REM_ACCESS_ERR"), "{last}");
    assert!(trace.wait().unwrap().success());
    let shown = prints_of(&lab, &format!("show qp g0 {number}"));
    assert!(shown.contains("failure") && shown.contains("IBV_WC_REM_ACCESS_ERR"), "{shown}");
}

#[test]
fn a_guest_that_stays_busy_makes_drain_fail_in_time() {
    use vrdma_tests::verbs::{Data, Request};
    let lab = played();
    let (mut a, _b) = vrdma_tests::side::pair(&lab, 1, 4096, &vrdma_tests::QpOptions::default());
    a.post(&Request::send(a.qp.tag(1), Data::Inline(b"no receive is there")));
    wait::until("a request that waits", || {
        let found: Value = serde_json::from_str(&prints_of(&lab, "show qp g0 --json")).unwrap();
        found["qps"].as_array().unwrap().iter().any(|qp| qp["sends"] == 1).then_some(())
    });
    let drain = program("drain --timeout 0.3").arg("--socket").arg(lab.admin_path()).output().unwrap();
    let (code, text) = fails(drain);
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("the time is over") && text.contains("g0"), "{text}");
}

#[test]
fn a_capture_goes_to_a_file_or_a_program_and_never_to_a_terminal() {
    let lab = Lab::new();
    let file = lab.path("file.pcapng");
    let line = format!("capture -g vm1 -t 0.1 -w {}", file.display());
    let output = lab.command("admin", &line).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("0 packets, "), "{output:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = std::fs::read(&file).unwrap();
    // The number of a section's header (pcapng 4.1).
    assert_eq!(written[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let output = lab.command("admin", "capture -t 0.1").output().unwrap();
    assert_eq!(output.stdout, written, "the test reads a pipe");
    let output = lab.command("admin", "capture -t 0.1 --json").output().unwrap();
    let told: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((told["packets"].as_u64(), told["end"].as_str()), (Some(0), Some("asked")));

    let (status, complaint) = fails(lab.command("observe", "capture").output().unwrap());
    assert_eq!(status, 1);
    assert!(complaint.contains("this socket is for those who look"), "{complaint}");
    // Opening some devices does something.
    for other in ["/dev/full", "/dev", &lab.path("admin").display().to_string()] {
        let (status, complaint) =
            fails(lab.command("admin", &format!("capture -w {other}")).output().unwrap());
        assert!(status == 1 && complaint.contains("it is neither a file nor a pipe"), "{complaint}");
    }
    let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
    let (status, complaint) = fails(lab.command("admin", "capture").stdout(null).output().unwrap());
    assert_eq!(status, 1);
    assert!(complaint.contains("the capture has ended: a capture goes to a file"), "{complaint}");
    let (status, complaint) = fails(lab.command("admin", "capture -g vm -w -").output().unwrap());
    assert!(status == 1 && complaint.contains("vm1"), "{complaint}");
    let terminal = std::fs::File::options().read(true).write(true).open("/dev/ptmx");
    if let Ok(terminal) = terminal {
        let output = lab.command("admin", "capture -c 1").stdout(terminal).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(complaint.contains("wireshark -k -i -"), "{complaint}");
    }
}

#[test]
fn a_file_that_is_there_stays_as_it_is_until_the_capture_begins() {
    let lab = Lab::new();
    let (file, link) = (lab.path("kept.pcapng"), lab.path("link.pcapng"));
    std::fs::write(&file, "earlier").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let names = |lab: &Lab| {
        let entries = std::fs::read_dir(lab.path("")).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = names(&lab);
    for (socket, filter) in
        [("observe", "-c 1"), ("admin", "-g nobody"), ("admin", "-q 0"), ("admin", "--snap 1")]
    {
        let (status, complaint) =
            fails(lab.command(socket, &format!("capture {filter} -w {}", file.display())).output().unwrap());
        assert_eq!(status, 1, "{complaint}");
        assert_eq!(std::fs::read(&file).unwrap(), b"earlier", "{filter}");
    }
    assert_eq!(names(&lab), before, "nothing is left behind");
    // Who has the former file open keeps it.
    let mut former = std::fs::File::open(&file).unwrap();
    let output = lab.command("admin", &format!("capture -t 0.1 -w {}", link.display())).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(&file).unwrap()[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let mut text = String::new();
    former.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), names(&lab)), ("earlier", before));
}

#[test]
fn links_are_followed_unless_they_are_those_of_others() {
    let lab = Lab::new();
    let (file, link, second) = (lab.path("new.pcapng"), lab.path("link.pcapng"), lab.path("second.pcapng"));
    // They lead to a file that is not there.
    std::os::unix::fs::symlink("new.pcapng", &link).unwrap();
    std::os::unix::fs::symlink(&link, &second).unwrap();
    let capture =
        |to: &Path| lab.command("admin", &format!("capture -t 0.1 -w {}", to.display())).output().unwrap();
    let output = capture(&second);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(&file).unwrap()[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    for link in [&link, &second] {
        assert!(std::fs::symlink_metadata(link).unwrap().is_symlink());
    }
    // Only root can make another user's link.
    if std::os::unix::fs::lchown(&link, Some(1), Some(1)).is_ok() {
        std::fs::write(&file, "earlier").unwrap();
        for link in [&link, &second] {
            let (status, complaint) = fails(capture(link));
            assert!(status == 1 && complaint.contains("a symbolic link of another user"), "{complaint}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"earlier");
    }
    let around = lab.path("around");
    std::os::unix::fs::symlink("around", &around).unwrap();
    assert_eq!(fails(capture(&around)).0, 1, "it leads to itself");
}

/// Opening one that nobody reads would wait for a reader.
#[test]
fn a_pipe_is_written_to_if_somebody_reads_it() {
    use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
    let lab = Lab::new();
    let pipe = lab.path("pipe");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let line = format!("capture -t 0.1 -w {}", pipe.display());
    let mut child =
        lab.command("admin", &line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait::until("the end of the program", || child.try_wait().unwrap());
    let (status, complaint) = fails(child.wait_with_output().unwrap());
    assert!(status == 1 && complaint.contains("nobody reads it"), "{complaint}");
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut reader = std::fs::File::options().read(true).custom_flags(flags).open(&pipe).unwrap();
    let output = lab.command("admin", &line).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut head = [0; 4];
    reader.read_exact(&mut head).unwrap();
    assert_eq!(head, [0x0a, 0x0d, 0x0d, 0x0a]);
    // Only root can make another user's pipe. That user would read what guests send.
    if std::os::unix::fs::chown(&pipe, Some(1), Some(1)).is_ok() {
        let (status, complaint) = fails(lab.command("admin", &line).output().unwrap());
        assert!(status == 1 && complaint.contains("it is a pipe of another user"), "{complaint}");
    }
}

/// A shell names the pipe of a process so, and standard output.
#[test]
fn an_open_pipe_is_written_to_by_its_name() {
    let lab = Lab::new();
    for name in ["/dev/fd/1", "/dev/stdout", "-"] {
        let output = lab.command("admin", &format!("capture -t 0.1 -w {name}")).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        assert_eq!(output.stdout[..4], [0x0a, 0x0d, 0x0d, 0x0a], "{name}");
    }
}

/// The daemon may be busy when the capture is to begin.
#[test]
fn the_time_of_a_capture_begins_with_it() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("admin");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut command = program("capture -t 0.1");
    command.arg("--socket").arg(&socket).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    listener.set_nonblocking(true).unwrap();
    let (mut daemon, _) = wait::until("the call", || listener.accept().ok());
    daemon.set_nonblocking(false).unwrap();
    daemon.set_read_timeout(Some(wait::PATIENCE)).unwrap();
    let mut call = Vec::new();
    BufReader::new(&daemon).read_until(0, &mut call).unwrap();
    assert!(String::from_utf8_lossy(&call).contains("org.vrdma.Capture.Start"));
    let reason = "the time is over meanwhile; if the pause is too short, nothing is found";
    wait::pause(Duration::from_millis(300), reason);
    daemon.set_nonblocking(true).unwrap();
    let more = daemon.read(&mut [0; 1]);
    assert!(more.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "it waits for the first reply");
    daemon.set_nonblocking(false).unwrap();
    let reply = |end: Option<CaptureEnd>| {
        let progress = CaptureProgress { end, ..CaptureProgress::default() };
        Reply { continues: end.is_none(), ..Reply::of(&progress) }.emit()
    };
    daemon.write_all(&reply(None)).unwrap();
    assert_eq!(daemon.read(&mut [0; 1]).unwrap(), 0, "it sends nothing more when the time is over");
    daemon.write_all(&reply(Some(CaptureEnd::Asked))).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_capture_ends_at_a_signal() {
    let lab = Lab::new();
    let mut command = lab.command("admin", "capture");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut head = [0; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut head).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(" packets, "), "{output:?}");
}

#[test]
fn top_leaves_the_terminal_as_it_was_also_at_a_signal() {
    use rustix::process::{Pid, Signal, kill_process};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
    use std::os::unix::process::ExitStatusExt;
    let lab = Lab::new();
    let Ok(screen) = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY) else {
        eprintln!("skipped: this system has no terminals (/dev/ptmx)");
        return;
    };
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    if !Path::new(name.to_str().unwrap()).exists() {
        eprintln!("skipped: this system shows no terminals (/dev/pts)");
        return;
    }
    tcsetwinsize(&screen, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let terminal = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let modes = || tcgetattr(&terminal).unwrap().local_modes;
    let before = modes();
    let other = || terminal.try_clone().unwrap();
    let mut command = lab.command("observe", "top");
    let mut child = command.stdin(other()).stdout(other()).stderr(other()).spawn().unwrap();
    rustix::io::ioctl_fionbio(&screen, true).unwrap();
    let mut shown = Vec::new();
    let mut look = || {
        let mut bytes = [0; 4096];
        while let Ok(count) = rustix::io::read(&screen, &mut bytes) {
            shown.extend_from_slice(&bytes[..count]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    };
    // Line editing is off, and there is a second screen, while it runs.
    wait::until("the second screen", || look().contains("\x1b[?1049h").then_some(()));
    wait::until("a guest on it", || look().contains("vm1").then_some(()));
    assert!(!modes().contains(LocalModes::ICANON | LocalModes::ECHO));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = wait::until("the end of the program", || child.try_wait().unwrap());
    assert_eq!(status.signal(), Some(15), "{status:?}");
    assert!(look().contains("\x1b[?1049l"), "{:?}", look());
    assert_eq!(modes(), before);
}

/// The program behind the pipe may end first, also while no guest sends anything.
#[test]
fn a_capture_ends_with_its_reader() {
    let lab = Lab::new();
    let mut child =
        lab.command("admin", "capture").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0; 4]).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("0 packets, "), "{output:?}");
}
