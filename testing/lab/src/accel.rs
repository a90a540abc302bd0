//! The accelerator: what executes the guest's instructions.

/// KVM or emulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The host's CPU, by KVM.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accel {
    /// Returns `kvm` or `tcg`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// How many times longer things may take than under KVM.
    pub fn slowness(self) -> u32 {
        match self {
            Self::Kvm => 1,
            Self::Tcg => 5,
        }
    }
}
