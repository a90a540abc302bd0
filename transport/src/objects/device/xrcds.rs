//! XRC domains of a device: made and removed.

use super::Device;
use crate::base::error::Error;
use crate::base::id::XrcdId;
use crate::objects::xrcd::Xrcd;

impl<R> Device<R> {
    pub(crate) fn alloc_xrcd(&mut self) -> Result<XrcdId, Error> {
        let make = |number| Xrcd { id: XrcdId(number), users: 0 };
        self.xrcds.insert(|tag| tag.wrapping_add(1), make).map(XrcdId).ok_or(Error::NoResources)
    }

    pub(crate) fn dealloc_xrcd(&mut self, xrcd: XrcdId) -> Result<(), Error> {
        if self.xrcds.get(xrcd.0).ok_or(Error::NotFound)?.users > 0 {
            return Err(Error::Busy);
        }
        self.xrcds.remove(xrcd.0);
        Ok(())
    }
}
