//! Memory of queues: the provider's own, or of an allocator of the parent domain that the object is
//! made with.

use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use crate::errno::{Errno, boxed_slice};
use crate::mapping::Mapping;
use crate::pd::{Allocated, Pd, Resource};
use crate::refs::Ref;

/// Zeroed memory that the device writes.
pub enum Pages {
    /// Of the provider.
    Own(Mapping),
    /// Of an allocator. It has to keep it from forks.
    Allocated(Allocated),
}

impl Pages {
    /// `size` bytes, from the start of a page on.
    pub fn new(domain: Option<&Ref<Pd>>, size: usize, resource: Resource) -> Result<Self, Errno> {
        // SAFETY: a query.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| libc::EINVAL)?;
        let allocated = match domain {
            Some(domain) => domain.allocate(size, page, resource)?,
            None => None,
        };
        Ok(match allocated {
            Some(memory) => Self::Allocated(memory),
            None => Self::Own(Mapping::anonymous(size)?),
        })
    }

    /// Where they start.
    pub fn start(&self) -> NonNull<u8> {
        match self {
            Self::Own(mapping) => mapping.start(),
            Self::Allocated(memory) => memory.start(),
        }
    }
}

/// wr_ids, 0 at first.
pub enum WrIds {
    /// Of the provider.
    Own(Box<[AtomicU64]>),
    /// So many, of an allocator.
    Allocated(Allocated, usize),
}

impl WrIds {
    /// `len` of them.
    pub fn new(domain: &Ref<Pd>, len: usize, resource: Resource) -> Result<Self, Errno> {
        let size = len.checked_mul(size_of::<AtomicU64>()).ok_or(libc::ENOMEM)?;
        match domain.allocate(size, align_of::<AtomicU64>(), resource)? {
            Some(memory) => Ok(Self::Allocated(memory, len)),
            None => Self::own(len),
        }
    }

    /// `len` of them, of the provider.
    pub fn own(len: usize) -> Result<Self, Errno> {
        Ok(Self::Own(boxed_slice(len, || AtomicU64::new(0))?))
    }
}

impl AsRef<[AtomicU64]> for WrIds {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        match self {
            Self::Own(wr_ids) => wr_ids,
            // SAFETY: aligned, of that length, zeroed, and used by nobody else until it is given
            // back.
            Self::Allocated(memory, len) => unsafe {
                slice::from_raw_parts(memory.start().as_ptr().cast(), *len)
            },
        }
    }
}
