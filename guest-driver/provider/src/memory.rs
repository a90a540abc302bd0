//! Memory of queues, from the provider or from an allocator of the object's parent domain.

use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use crate::errno::{Errno, boxed_slice};
use crate::mapping::Mapping;
use crate::pd::{Allocated, Pd, Resource};
use crate::refs::Ref;

/// Zeroed memory that the device writes.
pub enum Pages {
    /// Memory of the provider.
    Own(Mapping),
    /// Memory of an allocator, which has to protect it from forks.
    Allocated(Allocated),
}

impl Pages {
    /// Allocates `size` bytes, page-aligned.
    pub fn new(domain: Option<&Ref<Pd>>, size: usize, resource: Resource) -> Result<Self, Errno> {
        // SAFETY: a query without preconditions.
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

    /// Returns the first byte.
    pub fn start(&self) -> NonNull<u8> {
        match self {
            Self::Own(mapping) => mapping.start(),
            Self::Allocated(memory) => memory.start(),
        }
    }
}

/// Memory for wr_ids, which are 0 at first.
pub enum WrIds {
    /// Memory of the provider.
    Own(Box<[AtomicU64]>),
    /// Memory of an allocator, and the number of wr_ids.
    Allocated(Allocated, usize),
}

impl WrIds {
    /// Allocates `len` wr_ids, by the allocator of `domain` if it has one.
    pub fn new(domain: &Ref<Pd>, len: usize, resource: Resource) -> Result<Self, Errno> {
        let size = len.checked_mul(size_of::<AtomicU64>()).ok_or(libc::ENOMEM)?;
        match domain.allocate(size, align_of::<AtomicU64>(), resource)? {
            Some(memory) => Ok(Self::Allocated(memory, len)),
            None => Self::own(len),
        }
    }

    /// Allocates `len` wr_ids from the provider's memory.
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
