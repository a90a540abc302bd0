//! The memory of the engines' regions.

use super::account::{Stage, within};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use vrdma_backend::port::External;
use vrdma_transport::{Fault, Region};

/// Size of the memory in bytes.
pub const MEMORY: usize = 1 << 20;

/// Memory that the engine shares with frames in flight. `ACCOUNT` says whether copies are accounted
/// for.
#[derive(Clone)]
pub struct Memory<const ACCOUNT: bool = false>(Arc<Bytes>);

struct Bytes(Box<[UnsafeCell<u8>]>);

// SAFETY: one thread writes. The contents of frames in flight may change.
unsafe impl Sync for Bytes {}

impl<const ACCOUNT: bool> Memory<ACCOUNT> {
    /// Creates the memory, filled with a pattern.
    pub fn new() -> Self {
        Memory(Arc::new(Bytes((0..MEMORY).map(|i| UnsafeCell::new(i as u8)).collect())))
    }

    /// Returns a range that can be attached to a frame.
    pub fn attach(&self, offset: u64, len: u16) -> External {
        let bytes = self.at(offset, len.into());
        // SAFETY: `at` has checked the range. The memory lives as long as any clone of its owner.
        unsafe { External::new(bytes, len, self.0.clone()) }
    }

    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        self.0.0[offset as usize..][..len].as_ptr().cast_mut().cast()
    }
}

impl<const ACCOUNT: bool> Region for Memory<ACCOUNT> {
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
        // SAFETY: `at` has checked both ranges.
        unsafe { self.at(offset, len as usize).copy_to(dst.at(dst_offset, len as usize), len as usize) };
        Ok(())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: `at` has checked the range. The buffer is other memory.
        within::<ACCOUNT, _>(Stage::CopyOut, || unsafe {
            self.at(offset, buf.len()).copy_to_nonoverlapping(buf.as_mut_ptr(), buf.len());
        });
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        // SAFETY: `at` has checked the range. The data are other memory.
        within::<ACCOUNT, _>(Stage::CopyIn, || unsafe {
            self.at(offset, data.len()).copy_from_nonoverlapping(data.as_ptr(), data.len());
        });
        Ok(())
    }

    fn with_word<T>(&self, _: u64, _: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        Err(Fault)
    }
}
