//! A fake libibverbs and a fake kernel driver for tests: the functions that the provider calls, and
//! a device that shows what arrives.
//!
//! A [`Kernel`] is found by the command file descriptor of its context. This is a memfd with the
//! channel's memory.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    reason = "a test fails by a panic"
)]

mod cq;
mod device;
mod libibverbs;
mod memory;
mod qp;
mod queries;
mod srq;
mod xrc;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Arc, Mutex, MutexGuard};

use vrdma_verbs::Unit;
use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::{AllocContextExResp, AllocContextResp, context_flags, uverbs};
use vrdma_verbs::abi::zerocopy::FromZeros;

use crate::ffi;
use crate::mapping::Mapping;

pub use device::Parsed;
pub use libibverbs::{REGISTERED, ops};

const PAGE: u64 = 4096;
const USED_OFFSET: u32 = 4096;
const RINGS_LEN: u32 = 8 * 4096;
const SLOTS_LEN: u32 = 16 * 4096;
/// Entries of the channels.
pub const ENTRIES: u16 = 256;
pub const QUEUE: u16 = 9;
pub const MAX_QP: u32 = 1 << 14;
/// Most entries of a CQ.
pub const MAX_CQE: c_int = 1 << 15;

/// All kernels by file descriptor.
static KERNELS: Mutex<Option<HashMap<c_int, Arc<Kernel>>>> = Mutex::new(None);

/// The kernel that one open device talks to.
pub struct Kernel {
    file: File,
    /// Answer to `ibv_cmd_get_context`.
    pub reply: AllocContextExResp,
    /// Number of bytes of the answer that the kernel knows.
    pub reply_len: usize,
    rings: Mapping,
    slots: Mapping,
    doorbell: Mapping,
    state: Mutex<State>,
}

/// Time of an action during a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The device has not executed the command.
    Before,
    /// The device has executed the command, and nobody knows yet.
    After,
}

/// Arguments of `ibv_cmd_rereg_mr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rereg {
    pub flags: u32,
    pub addr: u64,
    pub length: usize,
    pub iova: u64,
    pub access: c_int,
}

/// An action that happens while a verb waits for the kernel.
pub type Meanwhile = Box<dyn FnOnce() + Send>;

/// The changing part of a [`Kernel`].
#[derive(Default)]
pub struct State {
    /// Units that came by `METHOD_POST`.
    pub posted: VecDeque<Unit>,
    /// Requests after the first one of a list that was taken.
    pub listed: VecDeque<Parsed>,
    /// Number of calls of `METHOD_POST`. The next field counts those of `METHOD_KICK`.
    pub posts: u32,
    pub kicks: u32,
    /// Errors for the next calls of `METHOD_POST`; 0 is none.
    pub post_errors: VecDeque<c_int>,
    /// Error for the next command.
    pub command_error: c_int,
    /// Contexts that were set up and not undone.
    pub contexts: i32,
    /// Flags of the request for a context.
    pub context_flags: u32,
    /// QPs attached to multicast groups: QPN, GID, and the LID that the caller gave.
    pub groups: Vec<(u32, [u8; 16], u16)>,
    /// Number of address handles that were made.
    pub ahs: u32,
    /// Memory windows that were made and not destroyed.
    pub mws: i32,
    /// Arguments of the last re-registration.
    pub rereg: Option<Rereg>,
    /// Number of the next QP.
    pub next_qpn: u32,
    /// QPs and shared receive queues that were made and not destroyed.
    pub queues: i32,
    /// Number of the next XRC shared receive queue, if a test sets it.
    pub next_srqn: Option<u32>,
    /// Called by the next query of a QP, which returns the state that this function returns.
    pub during_query: Option<fn(*mut ffi::ibv_qp) -> u32>,
    /// Called by the next destroy of a QP or a shared receive queue. The kernel has executed it,
    /// and the program has not acknowledged its events.
    pub during_destroy: Option<Meanwhile>,
    /// Called by the next `METHOD_POST`, before the kernel reads it.
    pub during_post: Option<Meanwhile>,
    /// Called by the next resize of a CQ, before and after the device executes it.
    pub during_resize: Option<fn(&Kernel, Moment)>,
    /// The last moderation of completion events: count and period.
    pub moderation: Option<(u16, u16)>,
    /// The device's clock, by which completions get their time stamps.
    pub clock: u64,
    /// Number of queries of the clock.
    pub clock_queries: u32,
    cqs: HashMap<u32, device::FakeCq>,
    qp_cqs: HashMap<u32, (u32, u32)>,
    /// Shared receive queues: the most receives, and the limit.
    srqs: HashMap<u32, (u32, u32)>,
    /// CQs of XRC shared receive queues, by their numbers.
    xrc_cqs: HashMap<u32, u32>,
    /// XRC domains that are open.
    pub xrcds: i32,
    /// Handles of protection domains. The next field has the handles and lengths of regions.
    pub pds: HashSet<u32>,
    pub mrs: HashMap<u32, usize>,
    /// Device memory: offset for mmap, and length.
    pub dms: HashMap<u32, (u64, u64)>,
    next_handle: u32,
    /// Index of the next entry of the channel.
    pub taken: u16,
}

impl State {
    fn new_handle(&mut self) -> u32 {
        self.next_handle += 1;
        self.next_handle
    }
}

impl Kernel {
    /// Makes a kernel whose contexts get their own channel, with a mapped doorbell and `EVENT_IDX`.
    pub fn new() -> Arc<Self> {
        use context_flags::{CHANNEL, DOORBELL, EVENT_IDX};
        Self::with(|reply| reply.flags = (CHANNEL | DOORBELL | EVENT_IDX).into())
    }

    /// Makes a kernel whose reply is changed by `change`.
    pub fn with(change: impl FnOnce(&mut AllocContextResp)) -> Arc<Self> {
        Self::of_version(size_of::<AllocContextExResp>(), |reply| change(&mut reply.base))
    }

    /// Makes a kernel that knows the first `reply_len` bytes of the reply.
    pub fn of_version(reply_len: usize, change: impl FnOnce(&mut AllocContextExResp)) -> Arc<Self> {
        // SAFETY: a new file descriptor, which this File alone owns.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"kernel".as_ptr(), libc::MFD_CLOEXEC)) };
        let rings_mmap = 0;
        let slots_mmap = u64::from(RINGS_LEN);
        let doorbell_mmap = slots_mmap + u64::from(SLOTS_LEN);
        file.set_len(doorbell_mmap + PAGE).unwrap();
        let base = AllocContextResp {
            max_qp: MAX_QP.into(),
            max_inline: 96.into(),
            entries: ENTRIES.into(),
            queue: QUEUE.into(),
            max_wqe_units: 4.into(),
            rings_mmap: rings_mmap.into(),
            rings_len: RINGS_LEN.into(),
            used_offset: USED_OFFSET.into(),
            slots_len: SLOTS_LEN.into(),
            slots_mmap: slots_mmap.into(),
            doorbell_mmap: doorbell_mmap.into(),
            doorbell_len: (PAGE as u32).into(),
            doorbell_offset: 64.into(),
            ..AllocContextResp::new_zeroed()
        };
        let functions = device_cap::V1_0
            | device_cap::ATOMIC_WRITE
            | device_cap::FLUSH_GLOBAL
            | device_cap::SRQ
            | device_cap::SRQ_RESIZE
            | device_cap::XRC
            | device_cap::CQ_RESIZE
            | device_cap::CQ_IGNORE_OVERRUN
            | device_cap::CQ_TIMESTAMP
            | device_cap::MEM_WINDOW
            | device_cap::MEM_WINDOW_TYPE_2B
            | device_cap::REREG_MR
            | device_cap::WQE_LIST;
        let mut reply = AllocContextExResp { base, device_cap: functions.into(), reserved: [0; 56] };
        change(&mut reply);
        let fd = file.as_raw_fd();
        let kernel = Arc::new(Self {
            reply,
            reply_len,
            rings: Mapping::shared(fd, rings_mmap, RINGS_LEN).unwrap(),
            slots: Mapping::shared(fd, slots_mmap, SLOTS_LEN).unwrap(),
            doorbell: Mapping::shared(fd, doorbell_mmap, PAGE as u32).unwrap(),
            state: Mutex::new(State { next_qpn: 17, ..State::default() }),
            file,
        });
        KERNELS.lock().unwrap().get_or_insert_default().insert(fd, kernel.clone());
        kernel
    }

    /// Returns the command file descriptor.
    pub fn fd(&self) -> c_int {
        self.file.as_raw_fd()
    }

    /// Returns the file with the memory that the kernel offers.
    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn of(fd: c_int) -> Arc<Self> {
        KERNELS.lock().unwrap().as_ref().unwrap()[&fd].clone()
    }
}

/// Answers the driver's ioctls.
///
/// # Safety
/// The buffers of the attributes are as long as stated.
pub unsafe fn ioctl(
    fd: c_int,
    header: &ffi::ib_uverbs_ioctl_hdr,
    attributes: &[ffi::ib_uverbs_attr],
) -> c_int {
    let kernel = Kernel::of(fd);
    let is_post = u32::from(header.method_id) == uverbs::METHOD_POST;
    let meanwhile = if is_post { kernel.state().during_post.take() } else { None };
    if let Some(meanwhile) = meanwhile {
        meanwhile();
    }
    let mut state = kernel.state();
    assert_eq!((u32::from(header.object_id), header.driver_id), (uverbs::OBJECT_CHANNEL, 0));
    assert_eq!(usize::from(header.length), 24 + 16 * attributes.len());
    assert!(attributes.iter().all(|attribute| attribute.flags == 1));
    let errno = match u32::from(header.method_id) {
        uverbs::METHOD_KICK => {
            assert_eq!(header.num_attrs, 0);
            state.kicks += 1;
            0
        }
        uverbs::METHOD_POST => {
            let [attribute] = attributes else { panic!("{} attributes", attributes.len()) };
            assert_eq!(u32::from(attribute.attr_id), uverbs::ATTR_POST_UNITS);
            state.posts += 1;
            let count = usize::from(attribute.len) / 64;
            assert!(count * 64 == usize::from(attribute.len) && (1..=64).contains(&count));
            // SAFETY: by this function's own contract, the attribute points to as many bytes as it
            // states; they are whole units.
            let units = unsafe {
                let data = attribute.__bindgen_anon_1.data as usize;
                std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<Unit>(data), count)
            };
            match state.post_errors.pop_front().unwrap_or(0) {
                0 => {
                    state.posted.extend(units);
                    0
                }
                errno => errno,
            }
        }
        // SAFETY: by this function's own contract.
        method => unsafe { queries::answer(&kernel, &mut state, method, attributes) },
    };
    if errno == 0 {
        return 0;
    }
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}
