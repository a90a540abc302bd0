use super::*;
use std::os::unix::net::UnixDatagram;
use std::sync::Barrier;
use tempfile::TempDir;

/// A temporary directory that is removed after the test.
struct Dir(TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(TempDir::new().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("s")
    }
}

fn claim(dir: &Dir) -> Result<Listener> {
    Listener::claim(&dir.path(), &SocketAccess::private())
}

fn refused(dir: &Dir) -> String {
    let inode = fs::symlink_metadata(dir.path()).unwrap().ino();
    let error = format!("{:#}", claim(dir).unwrap_err());
    assert_eq!(fs::symlink_metadata(dir.path()).unwrap().ino(), inode, "it is still there");
    error
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let dir = Dir::new();
    drop(UnixListener::bind(dir.path()).unwrap());
    let listener = claim(&dir).unwrap();
    let this = format!("is in use by another process, {}: stop it", std::process::id());
    assert!(refused(&dir).contains(&this));
    UnixStream::connect(dir.path()).unwrap();
    drop(listener);
    assert!(!dir.path().exists());
    // A process that does not use the lock.
    let _living = UnixListener::bind(dir.path()).unwrap();
    assert!(refused(&dir).contains("is in use by another process: stop it"));
}

#[test]
fn a_queue_of_connections_that_is_full_is_no_stale_socket() {
    let dir = Dir::new();
    let _living = UnixListener::bind(dir.path()).unwrap();
    let address = SocketAddrUnix::new(dir.path()).unwrap();
    let mut waiting = Vec::new();
    loop {
        let socket = stream_socket().unwrap();
        match rustix::net::connect(&socket, &address) {
            Ok(()) => waiting.push(socket),
            Err(error) => break assert_eq!(error, Errno::AGAIN),
        }
    }
    assert!(refused(&dir).contains("is in use"));
}

#[test]
fn one_of_two_that_start_at_once_has_the_socket() {
    const ROUNDS: usize = 1000;
    let dir = Dir::new();
    drop(UnixListener::bind(dir.path()).unwrap());
    let barrier = Barrier::new(2);
    // No assertion in the loop: a thread that ended there would leave the other one at the
    // barrier.
    let start = || {
        let mut outcomes = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            barrier.wait();
            let claimed = claim(&dir);
            barrier.wait();
            // Both threads have tried, so the one that has the socket can be reached.
            outcomes.push(match &claimed {
                Ok(listener) => match UnixStream::connect(dir.path()).and_then(|_| listener.accept()) {
                    Ok(_) => "has it".to_owned(),
                    Err(error) => error.to_string(),
                },
                Err(error) => format!("{error:#}"),
            });
            barrier.wait();
            // Leave a stale socket for the next round, as a killed process does.
            if claimed.is_ok() {
                drop(claimed);
                let _ = UnixListener::bind(dir.path());
            }
        }
        outcomes
    };
    let (ours, theirs) = std::thread::scope(|scope| {
        let other = scope.spawn(start);
        (start(), other.join().unwrap())
    });
    for outcomes in ours.iter().zip(&theirs) {
        let (winner, loser) = if outcomes.0 == "has it" { outcomes } else { (outcomes.1, outcomes.0) };
        assert!(winner == "has it" && loser.contains("is in use by another process"), "{outcomes:?}");
    }
}

#[test]
fn a_lock_is_a_private_file_and_nothing_else() {
    let dir = Dir::new();
    let lock = dir.0.path().join("s.lock");
    std::os::unix::fs::symlink(dir.0.path().join("elsewhere"), &lock).unwrap();
    let error = || format!("{:#}", claim(&dir).unwrap_err());
    assert!(error().contains("cannot open"), "{}", error());
    assert!(!dir.0.path().join("elsewhere").exists());
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    assert!(error().contains("cannot open"), "{}", error());
    fs::remove_dir(&lock).unwrap();
    let _socket = UnixListener::bind(&lock).unwrap();
    assert!(error().contains("cannot open"), "{}", error());
    fs::remove_file(&lock).unwrap();
    fs::write(&lock, "a number of long ago, and more").unwrap();
    let listener = claim(&dir).unwrap();
    assert_eq!(fs::read_to_string(&lock).unwrap(), format!("{}\n", std::process::id()));
    assert_eq!(fs::metadata(&lock).unwrap().mode() & 0o777, 0o600);
    drop(listener);
    drop(claim(&dir).unwrap());
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let dir = Dir::new();
    let error = |path: &str| {
        let path = dir.0.path().join(path);
        format!("{:#}", Listener::claim(&path, &SocketAccess::private()).unwrap_err())
    };
    let shown = dir.0.path().display();
    let said = error("x/y/s");
    let missing =
        format!("{shown}/x/y/s: there is no directory {shown}/x/y: make it (`mkdir -p {shown}/x/y`)");
    assert!(said.starts_with(&missing) && !said.contains(".lock"), "{said}");
    fs::write(dir.0.path().join("file"), "").unwrap();
    assert!(error("file/s").contains(&format!("{shown}/file is no directory")), "{}", error("file/s"));
}

/// A failure to connect, for other reasons than refusal, does not prove that a socket is stale.
#[test]
fn what_cannot_be_told_is_left_alone() {
    let dir = Dir::new();
    let _living = UnixDatagram::bind(dir.path()).unwrap();
    assert!(refused(&dir).contains("cannot be told"));
    fs::remove_file(dir.path()).unwrap();
    fs::write(dir.path(), "").unwrap();
    assert!(refused(&dir).contains("is no socket"));
}

#[test]
fn the_file_of_another_stays_when_ours_is_dropped() {
    let dir = Dir::new();
    let ours = claim(&dir).unwrap();
    fs::remove_file(dir.path()).unwrap();
    let _other = UnixListener::bind(dir.path()).unwrap();
    drop(ours);
    assert!(dir.path().exists());
}

#[test]
fn a_file_that_is_deleted_is_made_again_with_all_that_it_was() {
    let dir = Dir::new();
    let access = SocketAccess { mode: Mode(0o640), ..SocketAccess::private() };
    let listener = Listener::claim(&dir.path(), &access).unwrap();
    let is_reached = || {
        let connected = UnixStream::connect(dir.path());
        connected.is_ok() && listener.accept().is_ok()
    };
    assert!(listener.mend() && is_reached());
    fs::remove_file(dir.path()).unwrap();
    assert!(!is_reached() && listener.mend() && is_reached());
    assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o640);
    // The lock's file is deleted, too. Another daemon would make a new one.
    fs::remove_dir_all(dir.0.path()).unwrap();
    assert!(!listener.mend() && listener.is_reachable() == Some(false));
    fs::create_dir(dir.0.path()).unwrap();
    assert!(listener.mend() && listener.is_reachable() == Some(true) && is_reached());
    assert!(refused(&dir).contains(&format!("in use by another process, {}", std::process::id())));
    // A file that somebody else put there is not replaced.
    fs::remove_file(dir.path()).unwrap();
    fs::write(dir.path(), "").unwrap();
    assert!(!listener.mend());
    drop(listener);
    assert!(dir.path().exists());
}

#[test]
fn mode_and_users_say_who_gets_in() {
    let dir = Dir::new();
    let me = rustix::process::getuid().as_raw();
    let user = User::numbered;
    for (users, allowed) in [(vec![], true), (vec![user(me)], true), (vec![user(me + 1)], false)] {
        let access = SocketAccess { mode: Mode(0o640), users, ..SocketAccess::private() };
        let listener = Listener::claim(&dir.path(), &access).unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o640);
        let _stream = UnixStream::connect(dir.path()).unwrap();
        match listener.accept() {
            Ok(_) => assert!(allowed),
            Err(error) => assert!(!allowed && error.kind() == io::ErrorKind::WouldBlock),
        }
    }
    drop(claim(&dir).unwrap());
}

#[test]
fn an_inherited_socket_has_no_file_to_look_at_and_the_admin_socket_is_private() {
    let dir = Dir::new();
    let socket = UnixListener::bind(dir.path()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let own = SocketAccess::private_inherited(Some(&User::numbered(7)));
    let users: Vec<u32> = own.users.iter().map(|user| user.id).collect();
    assert_eq!(users, [rustix::process::geteuid().as_raw(), 0, 7]);
    let listener = Listener::inherit("descriptor 3", socket.try_clone().unwrap(), &own).unwrap();
    assert!(listener.mend());
    assert_eq!(listener.is_reachable(), None);
    let _stream = UnixStream::connect(dir.path()).unwrap();
    listener.accept().unwrap();
    // A process of somebody else.
    let other = User::numbered(rustix::process::geteuid().as_raw() + 1);
    let others = SocketAccess { users: vec![other], ..own };
    let listener = Listener::inherit("descriptor 3", socket, &others).unwrap();
    let _stream = UnixStream::connect(dir.path()).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// Who sends one is told, if the kernel can refuse it. Else it is closed where the message is read.
#[test]
fn a_socket_may_take_no_descriptors() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let sends = |takes_descriptors| {
        let dir = Dir::new();
        let access = SocketAccess { takes_descriptors, ..SocketAccess::private() };
        let _listener = Listener::claim(&dir.path(), &access).unwrap();
        let stream = UnixStream::connect(dir.path()).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [stream.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&stream, &[io::IoSlice::new(b"x")], &mut control, SendFlags::empty())
    };
    assert_eq!(sends(true), Ok(1));
    let is_known = nix::sys::utsname::uname().is_ok_and(|system| {
        let numbers: Vec<u32> =
            system.release().to_string_lossy().split('.').map_while(|part| part.parse().ok()).collect();
        numbers[..] >= [6, 16][..]
    });
    assert_eq!(sends(false), if is_known { Err(Errno::PERM) } else { Ok(1) });
}
