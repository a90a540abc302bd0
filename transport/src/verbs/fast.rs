//! Fast registration: a work request sets the memory of a region (IBTA 11.4.1.1, Fast Register
//! Physical MR; `ib_reg_wr` of Linux).

use crate::base::memory::{Access, PageList};
use vrdma_wire::num::Rkey;

/// Most pages of a fast registration.
pub const MAX_PAGES: u32 = 512;

/// Allowed page sizes as powers of 2: 4 KiB to 2 GiB.
pub(crate) const PAGE_SHIFTS: core::ops::RangeInclusive<u8> = 12..=31;

/// The additional state of a region for fast registration.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fast {
    /// Most pages of a registration.
    pub(crate) max_pages: u32,
    /// Whether the key names no memory. A request then may register some.
    pub(crate) is_free: bool,
}

impl Fast {
    /// Returns the most bytes that a registration can have.
    pub(crate) fn max_length(&self) -> u64 {
        u64::from(self.max_pages) << PAGE_SHIFTS.end()
    }
}

/// The parameters of a fast registration.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Registration {
    /// The region's key afterwards. The low 8 bits are the requester's choice.
    pub(crate) key: Rkey,
    /// Rights, of those in [`Access::ALL`].
    pub(crate) access: Access,
    /// Address of the first byte, by which requests will name it. Its offset in its page is that of
    /// the first byte in the first page of the list.
    pub(crate) iova: u64,
    /// Length in bytes.
    pub(crate) length: u64,
    /// Address of the list of pages.
    pub(crate) list: u64,
    /// Page size, as a power of 2.
    pub(crate) page_shift: u8,
}

impl Registration {
    /// Returns the offset of the first byte in the first page.
    pub(crate) fn offset(&self) -> u64 {
        self.iova & ((1 << self.page_shift) - 1)
    }

    /// Returns the list of as many pages as the bytes take.
    ///
    /// Returns `None` if the page size is not allowed, or if the pages are too many for any region.
    pub(crate) fn page_list(&self) -> Option<PageList> {
        let Registration { list: addr, page_shift, length, .. } = *self;
        if !PAGE_SHIFTS.contains(&page_shift) {
            return None;
        }
        let bytes = if length == 0 { 0 } else { self.offset().checked_add(length)? };
        let pages = bytes.div_ceil(1 << page_shift);
        let pages = u32::try_from(pages).ok().filter(|&pages| pages <= MAX_PAGES)?;
        Some(PageList { addr, pages, page_shift })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_has_the_pages_that_its_bytes_take() {
        let pages = |iova, length, page_shift| {
            let (key, access) = (Rkey(1), Access::NONE);
            let of = Registration { key, access, iova, length, list: 8, page_shift };
            of.page_list().map(|list| (list.pages, of.offset()))
        };
        assert_eq!(pages(0x7000, 4096, 12), Some((1, 0)));
        assert_eq!(pages(0x7001, 4096, 12), Some((2, 1)));
        assert_eq!(pages(0x7fff, 1, 12), Some((1, 4095)));
        assert_eq!(pages(0x7fff, 2, 12), Some((2, 4095)));
        assert_eq!(pages(0x7010, 0, 12), Some((0, 0x10)));
        assert_eq!(pages(0x1_0001, 1 << 16, 16), Some((2, 1)));
        assert_eq!(pages(0, 512 << 12, 12), Some((512, 0)));
        assert_eq!(pages(0, (512 << 12) + 1, 12), None);
        assert_eq!(pages(1, 512 << 31, 31), None);
        assert_eq!(pages(0, 512 << 31, 31), Some((512, 0)));
        assert_eq!(pages(0xfff, u64::MAX, 12), None);
        for wrong in [0, 11, 32, 63, 64, 255] {
            assert_eq!(pages(0, 4096, wrong), None, "{wrong}");
        }
    }
}
