//! What runs the guest's instructions.

/// KVM or emulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The CPU.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accel {
    /// `kvm` or `tcg`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// How much longer than under KVM things may take.
    pub fn slowness(self) -> u32 {
        match self {
            Self::Kvm => 1,
            Self::Tcg => 5,
        }
    }
}
