//! Which devices are ours, and how libibverbs finds the provider.

use std::ffi::{CStr, c_char};
use std::ptr;

use vrdma_verbs::abi::config::device::{VIRTIO_ID, VIRTIO_ID_STANDIN};
use vrdma_verbs::abi::user::uverbs::ABI_VERSION;

use crate::ffi::zeroed;
use crate::{errno, ffi, heap, ops};

/// A static value that may hold pointers to other statics.
#[repr(transparent)]
struct Static<T>(T);
// SAFETY: it is only used for values that are never written, and that point to such values.
unsafe impl<T> Sync for Static<T> {}

/// Patterns by which libibverbs matches a device.
///
/// libibverbs matches the name of the device first, then the modalias of its parent. udev renames
/// RDMA devices (for example to rocep0s4), so the modalias counts.
///
/// The parent is the PCI function of the virtio device. Its vendor is virtio's, 0x1af4, and its
/// device id is 0x1040 plus the virtio id (virtio 1.3, 4.1.2). With drivers of 0.1.0, and on other
/// buses than PCI, the parent is the virtio device.
///
/// The kernel driver binds a device with the stand-in id only if it carries our magic. So an RDMA
/// device with that parent is ours.
///
/// The name is for kernels whose RDMA device has yet another parent.
static MATCHES: Static<[ffi::verbs_match_ent; 6]> = {
    assert!(VIRTIO_ID == 0x2a && VIRTIO_ID_STANDIN == 0x26);
    Static([
        modalias(c"pci:v00001AF4d0000106A*"),
        modalias(c"pci:v00001AF4d00001066*"),
        modalias(c"virtio:d0000002Av*"),
        modalias(c"virtio:d00000026v*"),
        modalias(c"rdma_device:*Nvrdma*"),
        ffi::verbs_match_ent { kind: ffi::VERBS_MATCH_SENTINEL as u8, ..modalias(c"") },
    ])
};

static NAME: &CStr = c"vrdma";

static OPS: Static<ffi::verbs_device_ops> = Static(ffi::verbs_device_ops {
    name: NAME.as_ptr(),
    match_min_abi_version: ABI_VERSION,
    match_max_abi_version: ABI_VERSION,
    match_table: (&raw const MATCHES).cast(),
    static_providers: ptr::null_mut(),
    match_device: None,
    alloc_context: Some(ops::alloc_context),
    import_context: Some(ops::import_context),
    alloc_device: Some(alloc_device),
    uninit_device: Some(uninit_device),
});

/// Registers the provider. The dynamic linker calls it when libibverbs loads the provider.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    // SAFETY: the table lives as long as the provider, which is never unloaded.
    unsafe { ffi::verbs_register_driver(&raw const OPS.0) }
}

const fn modalias(pattern: &'static CStr) -> ffi::verbs_match_ent {
    let pattern: *const c_char = pattern.as_ptr();
    ffi::verbs_match_ent {
        driver_data: ptr::null_mut(),
        u: ffi::verbs_match_ent__bindgen_ty_1 { modalias: pattern },
        vendor: 0,
        device: 0,
        kind: ffi::VERBS_MATCH_MODALIAS as u8,
    }
}

unsafe extern "C" fn alloc_device(_sysfs: *mut ffi::verbs_sysfs_dev) -> *mut ffi::verbs_device {
    // libibverbs fills the structure in.
    errno::object(heap::boxed(zeroed!()).map(Box::into_raw))
}

unsafe extern "C" fn uninit_device(device: *mut ffi::verbs_device) {
    // SAFETY: made by alloc_device().
    drop(unsafe { Box::from_raw(device) });
}

/// Returns the registered operations, for the tests.
#[cfg(test)]
pub fn registered() -> (&'static ffi::verbs_device_ops, extern "C" fn()) {
    (&OPS.0, REGISTER)
}
