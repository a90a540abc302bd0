//! Drivers and devices of different versions.
//!
//! Replies and requests are shorter or longer than the peer knows.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use vrdma_tests::abi::control::*;
use vrdma_tests::abi::zerocopy::{FromBytes, IntoBytes};
use vrdma_tests::control::run;
use vrdma_tests::header::AbiHeader;
use vrdma_tests::side::Side;
use vrdma_tests::wait::{self, PATIENCE};
use vrdma_tests::{Guest, Lab, QpOptions};

/// Sends a request of arbitrary bytes. Returns the status, and the bytes after the reply's header.
fn ask(guest: &Guest, opcode: Opcode, body: &[u8], runs: &[Run], room: usize) -> (Status, Vec<u8>) {
    let header = ReqHeader {
        opcode: opcode.0.into(),
        num_runs: (runs.len() as u32).into(),
        cookie: 77.into(),
        ..ReqHeader::default()
    };
    let request = [header.as_bytes(), body, runs.as_bytes()].concat();
    let room = (RespHeader::SIZE + room) as u64;
    let reply = guest.control().exchange(&request, room, PATIENCE).expect("an answer");
    let (header, rest) = RespHeader::read_from_prefix(&reply).expect("a header");
    assert_eq!(header.cookie.get(), 77);
    (Status(header.status.get()), rest.to_vec())
}

fn functions_of_today() -> u64 {
    let functions = [
        device_cap::V1_0,
        device_cap::ATOMIC_WRITE,
        device_cap::FLUSH_GLOBAL,
        device_cap::SRQ,
        device_cap::SRQ_RESIZE,
        device_cap::XRC,
        device_cap::CQ_RESIZE,
        device_cap::CQ_MODERATION,
        device_cap::CQ_IGNORE_OVERRUN,
        device_cap::CQ_TIMESTAMP,
        device_cap::MULTICAST,
        device_cap::MEM_WINDOW,
        device_cap::MEM_WINDOW_TYPE_2B,
        device_cap::MEM_MGT_EXTENSIONS,
        device_cap::REREG_MR,
        device_cap::HW_COUNTERS,
        device_cap::WQE_LIST,
    ];
    functions.iter().fold(0, |all, function| all | function)
}

#[test]
fn the_device_writes_as_much_of_a_reply_as_there_is_room_for() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let whole = guest.query_device_ex().unwrap();
    let functions = functions_of_today();
    assert_eq!(whole.device_cap.get(), functions, "a bit comes with its function");
    let query = |room| ask(guest, Opcode::QUERY_DEVICE, &[], &[], room);
    for room in [88, 89, 95, 96, 100, QueryDeviceExResp::SIZE] {
        assert_eq!(query(room), (Status::OK, whole.as_bytes()[..room].to_vec()), "room for {room}");
    }
    assert_eq!(query(QueryDeviceExResp::SIZE + 200), (Status::OK, whole.as_bytes().to_vec()));
    assert_eq!(QueryDeviceResp::SIZE, 88);
    for room in [0, 1, 87] {
        assert_eq!(query(room), (Status::INVALID, vec![]), "room for {room}");
    }
}

#[test]
fn a_reply_that_there_is_no_room_for_creates_nothing() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    assert_eq!(ask(guest, Opcode::ALLOC_CONTEXT, &[], &[], ObjectResp::SIZE - 1), (Status::INVALID, vec![]));
    assert_eq!(lab.stats().objects(0, "contexts"), 0);
}

#[test]
fn what_a_later_version_adds_to_a_request_has_to_be_zero() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let side = Side::new(guest, 64, &QpOptions::default());
    let page = guest.memory.alloc(4096);
    let object =
        |number: u32| ObjectReq { object: number.into(), ..ObjectReq::default() }.as_bytes().to_vec();
    let cq = CreateCqReq { context: side.process.number.into(), entries: 2.into(), ..CreateCqReq::default() };
    let resize = ResizeCqReq { cqn: side.cq.number.into(), entries: 2.into(), ..ResizeCqReq::default() };
    let mr = RegMrReq { pdn: side.process.pd.into(), access: 1.into(), iova: 0.into(), length: 4096.into() };
    let state = QpAttr { state: QpState::ERR.0 as u8, ..QpAttr::default() };
    let modify = ModifyQpReq { qpn: side.qp.number.into(), mask: qp_attr::STATE.into(), attr: state };
    let commands = [
        (Opcode::QUERY_PORT, vec![], vec![]),
        (Opcode::QUERY_CLOCK, vec![], vec![]),
        (Opcode::QUERY_GID, object(0), vec![]),
        (Opcode::ALLOC_PD, object(0), vec![]),
        (Opcode::CREATE_CQ, cq.as_bytes().to_vec(), vec![run(page, 192)]),
        (Opcode::RESIZE_CQ, resize.as_bytes().to_vec(), vec![run(page + 192, 192)]),
        (Opcode::REG_MR, mr.as_bytes().to_vec(), vec![run(page, 1000), run(page, 3096)]),
        (Opcode::MODIFY_QP, modify.as_bytes().to_vec(), vec![]),
    ];
    for (opcode, body, runs) in commands {
        let with = |added: &[u8]| ask(guest, opcode, &[&body, added].concat(), &runs, 256).0;
        let before = lab.stats().all_objects(0);
        for added in [&[1][..], &[0, 0, 0, 0, 0, 0, 0, 0x80], &[0xff; 24]] {
            assert_eq!(with(added), Status::UNSUPPORTED, "{opcode:?} and {} bytes", added.len());
        }
        assert_eq!(lab.stats().all_objects(0), before, "{opcode:?}");
        for added in [&[0; 1][..], &[0; 8], &[0; 1000]] {
            assert_eq!(with(added), Status::OK, "{opcode:?} and {} bytes", added.len());
        }
        if !body.is_empty() {
            let short = ask(guest, opcode, &body[1..], &runs, 256).0;
            assert_eq!(short, Status::INVALID, "{opcode:?} without a byte");
        }
    }
    assert_eq!(side.qp.state(), QpState::ERR);
}

/// The current kernel module reads replies of older and newer devices.
#[test]
fn the_kernel_module_reads_a_reply_of_any_version() {
    let lab = Lab::new(1);
    let mut reply = lab.guests[0].query_device_ex().unwrap();
    let v1_0 = device_cap::V1_0;
    let today = functions_of_today();
    let program = Program::compile();
    let read = |reply: &QueryDeviceExResp, written| program.read(reply.as_bytes(), written);
    let known = "max_qp 16384, atomic_cap 2, max_srq 0, max_mcast 0 0 0\n";
    let whole = "max_qp 16384, atomic_cap 2, max_srq 16384, max_mcast 1024 1024 8192\n";
    assert_eq!(read(&reply, 87), "too short\n");
    assert_eq!(read(&reply, 88), format!("device_cap {v1_0:#x}, {known}"), "a device of version 1.0");
    assert_eq!(read(&reply, QueryDeviceExResp::SIZE), format!("device_cap {today:#x}, {whole}"));
    // Bytes that the device did not write do not count, whatever they are.
    reply.device_cap = u64::MAX.into();
    reply.reserved = [0xff; 140];
    assert_eq!(read(&reply, 88), format!("device_cap {v1_0:#x}, {known}"));
    // Functions that the module does not know are ignored, and so are unknown fields. Limits of
    // functions that the device lacks are 0. The next hop and the traffic class are for devices of
    // iWARP alone.
    let all = today | device_cap::NEXT_HOP | device_cap::CM_TRAFFIC_CLASS;
    assert_eq!(read(&reply, 96), format!("device_cap {all:#x}, {known}"));
    let longer = [reply.as_bytes(), &[0xff; 500]].concat();
    assert_eq!(
        program.read(&longer, longer.len()),
        format!(
            "device_cap {all:#x}, max_qp 16384, atomic_cap 2, max_srq 16384, max_mcast 1024 1024 8192, more\n"
        )
    );
    reply.device_cap = (device_cap::RNR_NAK | device_cap::FLUSH_PERSISTENT).into();
    reply.reserved = [0; 140];
    assert_eq!(
        read(&reply, QueryDeviceExResp::SIZE),
        format!("device_cap {:#x}, {known}", device_cap::RNR_NAK)
    );
}

/// The kernel module's `reply.c` as a program of the host.
struct Program {
    directory: TempDir,
}

impl Program {
    fn compile() -> Program {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let directory = TempDir::new().unwrap();
        let (shim, module) = (root.join("kernel-on-host"), root.join("../guest-driver/kernel"));
        let status = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Werror", "-I"])
            .arg(&shim)
            .arg("-I")
            .arg(&module)
            .args([shim.join("reply.c"), module.join("reply.c")])
            .arg("-o")
            .arg(directory.path().join("reply"))
            .status();
        assert!(status.expect("there is a C compiler").success());
        Program { directory }
    }

    /// Returns the module's view of a reply of which the device wrote `written` bytes.
    fn read(&self, reply: &[u8], written: usize) -> String {
        let mut buffer = [0xee; 4096];
        buffer[..reply.len()].copy_from_slice(reply);
        let mut child = Command::new(self.directory.path().join("reply"))
            .arg(written.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&buffer).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the module's errno for a status.
    fn errno(&self, status: Status) -> i32 {
        let program = self.directory.path().join("reply");
        let output = Command::new(program).args(["status", &status.0.to_string()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().parse().expect("a number")
    }
}

#[test]
fn each_status_has_the_errno_that_the_man_pages_name() {
    let program = Program::compile();
    let errors = [
        (Status::OK, 0),
        (Status::UNSUPPORTED, libc::EOPNOTSUPP),
        (Status::INVALID, libc::EINVAL),
        (Status::NOT_FOUND, libc::ENOENT),
        (Status::BUSY, libc::EBUSY),
        (Status::DENIED, libc::EPERM),
        (Status::NO_RESOURCES, libc::ENOMEM),
        // More extents than the device accepts: ENOMEM for regions and queues (`ibv_reg_mr(3)`).
        (Status::TOO_LARGE, libc::ENOMEM),
        (Status::FAULT, libc::EFAULT),
        (Status(12_345), libc::EIO),
    ];
    for (status, errno) in errors {
        assert_eq!(program.errno(status), -errno, "{status:?}");
    }
}

/// A driver that knows version 1.0 of the ABI from its C header alone.
struct OldDriver<'a> {
    abi: AbiHeader,
    guest: &'a Guest,
}

impl OldDriver<'_> {
    /// Executes a command as that release's kernel module does.
    ///
    /// The reply has room for what that module knows, and the device has to write that many bytes.
    fn command(&self, opcode: &str, body: &[u8], runs: &[(u64, u64)], reply: &str) -> Vec<u8> {
        let abi = &self.abi;
        let integers =
            [("opcode", abi.constant(opcode)), ("num_runs", runs.len() as u64), ("cookie", 0x5eed)];
        let header = abi.make("vrdma_cmd_req", &integers);
        let runs: Vec<u8> = runs
            .iter()
            .flat_map(|(addr, len)| abi.make("vrdma_run", &[("addr", *addr), ("len", *len)]))
            .collect();
        let length = abi.size("vrdma_cmd_resp") + abi.size(reply);
        let request = [&header, body, &runs].concat();
        let answer = self.guest.control().exchange(&request, length as u64, PATIENCE).expect("an answer");
        let status = abi.get("vrdma_cmd_resp", "status", &answer);
        assert_eq!((status, answer.len()), (abi.constant("VRDMA_STATUS_OK"), length), "{opcode}");
        assert_eq!(abi.get("vrdma_cmd_resp", "cookie", &answer), 0x5eed);
        answer[abi.size("vrdma_cmd_resp")..].to_vec()
    }

    /// Executes a command on one object.
    fn object(&self, opcode: &str, number: u64, reply: &str) -> Vec<u8> {
        self.command(opcode, &self.abi.make("vrdma_object_req", &[("object", number)]), &[], reply)
    }

    /// Executes a command that creates an object, whose number is the reply's first field.
    fn create(
        &self,
        opcode: &str,
        request: &str,
        integers: &[(&str, u64)],
        runs: &[(u64, u64)],
        reply: (&str, &str),
    ) -> u64 {
        let body = if request.is_empty() { vec![] } else { self.abi.make(request, integers) };
        self.abi.get(reply.0, reply.1, &self.command(opcode, &body, runs, reply.0))
    }

    /// Connects a QP from RESET to RTS with another QP of this guest.
    fn connect(&self, qpn: u64, peer: u64) {
        let abi = &self.abi;
        let gid = self.guest.gid();
        let modify = |mask: &[&str], integers: &[(&str, u64)]| {
            let mask = mask.iter().map(|name| abi.constant(&format!("VRDMA_QP_{name}"))).sum();
            let mut body = abi.make("vrdma_modify_qp_req", &[("qpn", qpn), ("mask", mask)]);
            let mut attr = abi.make("vrdma_qp_attr", integers);
            let at = abi.offset("vrdma_qp_attr", "dgid");
            attr[at..at + 16].copy_from_slice(&gid);
            let at = abi.offset("vrdma_qp_attr", "dmac");
            attr[at..at + 6].copy_from_slice(&self.guest.config.mac);
            let at = abi.offset("vrdma_modify_qp_req", "attr");
            body[at..].copy_from_slice(&attr);
            self.command("VRDMA_CMD_MODIFY_QP", &body, &[], "");
        };
        let write = abi.constant("VRDMA_ACCESS_REMOTE_WRITE");
        let init = [("state", abi.constant("VRDMA_QPS_INIT")), ("port", 1), ("access", write)];
        modify(&["STATE", "PKEY_INDEX", "PORT", "ACCESS_FLAGS"], &init);
        modify(
            &["STATE", "AV", "PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"],
            &[
                ("state", abi.constant("VRDMA_QPS_RTR")),
                ("path_mtu", 5),
                ("dest_qpn", peer),
                ("hop_limit", 64),
                ("vlan", 0xffff),
            ],
        );
        modify(
            &["STATE", "SQ_PSN", "MAX_RD_ATOMIC", "TIMEOUT", "RETRY_CNT", "RNR_RETRY"],
            &[("state", abi.constant("VRDMA_QPS_RTS")), ("timeout", 20), ("retry_cnt", 7), ("rnr_retry", 7)],
        );
        let attr = self.object("VRDMA_CMD_QUERY_QP", qpn, "vrdma_qp_attr");
        assert_eq!(abi.get("vrdma_qp_attr", "state", &attr), abi.constant("VRDMA_QPS_RTS"));
    }
}

#[test]
fn a_driver_of_version_1_0_runs_on_todays_device() {
    let lab = Lab::new(1);
    let guest: &Guest = &lab.guests[0];
    let driver = OldDriver { abi: AbiHeader::of_version("abi-1.0"), guest };
    let abi = &driver.abi;
    assert_eq!(u64::from(guest.config.version_major.get()), abi.constant("VRDMA_VERSION_MAJOR"));
    let device = driver.command("VRDMA_CMD_QUERY_DEVICE", &[], &[], "vrdma_query_device_resp");
    assert_eq!(abi.get("vrdma_query_device_resp", "max_qp", &device), 16384);
    let port = driver.command("VRDMA_CMD_QUERY_PORT", &[], &[], "vrdma_query_port_resp");
    assert_eq!(abi.get("vrdma_query_port_resp", "state", &port), abi.constant("VRDMA_PORT_ACTIVE"));

    let object = ("vrdma_object_resp", "object");
    let context = driver.create("VRDMA_CMD_ALLOC_CONTEXT", "", &[], &[], object);
    let pdn = driver.create("VRDMA_CMD_ALLOC_PD", "vrdma_object_req", &[("object", context)], &[], object);

    // A channel, in which descriptor i is slot i.
    let queue = guest.take_channel().unwrap();
    let ring = &guest.queues[usize::from(queue)].ring;
    let unit = abi.constant("VRDMA_WQE_UNIT_SIZE");
    let slots = guest.memory.alloc(unit * u64::from(ring.size));
    ring.clear();
    for i in 0..ring.size {
        ring.set_desc(i, slots + unit * u64::from(i), unit as u32, 0, 0);
    }
    let bind = abi.make("vrdma_bind_channel_req", &[("context", context), ("queue", queue.into())]);
    driver.command("VRDMA_CMD_BIND_CHANNEL", &bind, &[(slots, unit * u64::from(ring.size))], "");

    let cqe_size = abi.size("vrdma_cqe") as u64;
    let cq = guest.memory.alloc(4096);
    let cqn = driver.create(
        "VRDMA_CMD_CREATE_CQ",
        "vrdma_create_cq_req",
        &[("context", context), ("entries", 4)],
        &[(cq, 4 * cqe_size + abi.size("vrdma_cq_record") as u64)],
        ("vrdma_create_cq_resp", "cqn"),
    );
    let page = guest.memory.alloc(4096);
    guest.memory.write(page, b"from an old driver");
    let access = abi.constant("VRDMA_ACCESS_LOCAL_WRITE") | abi.constant("VRDMA_ACCESS_REMOTE_WRITE");
    let key = driver.create(
        "VRDMA_CMD_REG_MR",
        "vrdma_reg_mr_req",
        &[("pdn", pdn), ("access", access), ("iova", 0), ("length", 4096)],
        &[(page, 4096)],
        ("vrdma_reg_mr_resp", "rkey"),
    );
    let qp = [
        ("context", context),
        ("pdn", pdn),
        ("qp_type", abi.constant("VRDMA_QPT_RC")),
        ("send_cqn", cqn),
        ("recv_cqn", cqn),
        ("srqn", abi.constant("VRDMA_NONE")),
        ("max_send_wr", 4),
        ("max_send_sge", 1),
    ];
    let [own, peer] = [(); 2].map(|()| {
        driver.create("VRDMA_CMD_CREATE_QP", "vrdma_create_qp_req", &qp, &[], ("vrdma_create_qp_resp", "qpn"))
    });
    driver.connect(own, peer);
    driver.connect(peer, own);

    let wqe = [
        ("opcode", abi.constant("VRDMA_WR_RDMA_WRITE")),
        ("units", 1),
        ("flags", abi.constant("VRDMA_WQE_F_SIGNALED")),
        ("object", own),
        ("wqe_id", 1234),
        ("sge_count", 1),
    ];
    guest.memory.write(slots, &abi.make("vrdma_wqe", &wqe));
    let body = abi.make("vrdma_wqe_rdma", &[("remote_addr", 2048), ("rkey", key)]);
    guest.memory.write(slots + abi.constant("VRDMA_WQE_BODY_OFFSET"), &body);
    let element = abi.make("vrdma_sge", &[("addr", 0), ("length", 18), ("lkey", key)]);
    guest.memory.write(slots + abi.constant("VRDMA_WQE_DATA_OFFSET"), &element);
    ring.set_avail_entry(0, 0);
    ring.set_avail_idx(1);
    guest.queues[usize::from(queue)].kick.write(1).unwrap();

    let phase = abi.offset("vrdma_cqe", "phase") as u64;
    let cqe = wait::until("a completion", || {
        let cqe = guest.memory.bytes(cq, cqe_size);
        (cqe[phase as usize] & 1 == 1).then_some(cqe)
    });
    let of = |field: &str| abi.get("vrdma_cqe", field, &cqe);
    assert_eq!((of("status"), of("wqe_id"), of("qpn")), (abi.constant("VRDMA_WC_SUCCESS"), 1234, own));
    assert_eq!(guest.memory.bytes(page + 2048, 18), b"from an old driver");

    for (opcode, number) in [
        ("DESTROY_QP", own),
        ("DESTROY_QP", peer),
        ("DEREG_MR", key),
        ("DESTROY_CQ", cqn),
        ("UNBIND_CHANNEL", queue.into()),
        ("DEALLOC_PD", pdn),
        ("DEALLOC_CONTEXT", context),
    ] {
        driver.object(&format!("VRDMA_CMD_{opcode}"), number, "");
    }
    guest.del_gid(0).unwrap();
    lab.expect_nothing_left(0);
}
