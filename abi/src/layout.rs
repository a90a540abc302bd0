//! Declares structures and constants once, for Rust and for the C header.
//!
//! The macros define plain zerocopy structures and constants. Beside them they define tables
//! ([`Item`]) from which the C header is rendered, comments included.

use zerocopy::{big_endian, little_endian};

/// One declaration of the C header.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// A structure.
    Struct(&'static StructInfo),
    /// A group of constants.
    Consts(&'static ConstsInfo),
}

/// A structure as C sees it.
#[derive(Debug)]
pub struct StructInfo {
    /// Name in Rust, e.g. `Cqe`.
    pub name: &'static str,
    /// C tag, e.g. `vrdma_cqe`.
    pub c_name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Lines of documentation.
    pub doc: &'static [&'static str],
    /// Fields in order of address.
    pub fields: &'static [FieldInfo],
}

/// A field of a [`StructInfo`].
#[derive(Debug)]
pub struct FieldInfo {
    /// Name, the same in C and in Rust.
    pub name: &'static str,
    /// Type of the field or of its elements, e.g. `__le32`.
    pub c_type: &'static str,
    /// Number of elements if the field is an array.
    pub array: Option<usize>,
    /// Offset from the start of the structure in bytes.
    pub offset: usize,
    /// Size in bytes, of all elements together.
    pub size: usize,
    /// Lines of documentation.
    pub doc: &'static [&'static str],
}

/// A group of constants: the values of an open enumeration, or flag bits.
#[derive(Debug)]
pub struct ConstsInfo {
    /// Name in Rust of the enumeration or module, e.g. `WrOpcode`.
    pub name: &'static str,
    /// Prefix of each C name, e.g. `VRDMA_WR`.
    pub c_prefix: &'static str,
    /// Lines of documentation.
    pub doc: &'static [&'static str],
    /// Name, value and documentation of each constant.
    pub consts: &'static [(&'static str, u64, &'static [&'static str])],
}

/// A type that a field of a structure may have.
pub trait CType {
    /// Name of the type, or of the element type of an array.
    const NAME: &'static str;
    /// Number of elements of an array.
    const ARRAY: Option<usize> = None;
}

impl CType for u8 {
    const NAME: &'static str = "__u8";
}
impl CType for little_endian::U16 {
    const NAME: &'static str = "__le16";
}
impl CType for little_endian::U32 {
    const NAME: &'static str = "__le32";
}
impl CType for little_endian::U64 {
    const NAME: &'static str = "__le64";
}
impl CType for big_endian::U32 {
    const NAME: &'static str = "__be32";
}
impl<T: CType, const N: usize> CType for [T; N] {
    const NAME: &'static str = T::NAME;
    const ARRAY: Option<usize> = Some(N);
}

/// Declares a structure.
///
/// The form is `layout! { /// doc pub struct Name = "c_name" { /// doc field: Type, } }`.
macro_rules! layout {
    ($(#[doc = $doc:literal])* pub struct $name:ident = $c_name:literal {
        $($(#[doc = $fdoc:literal])* $field:ident: $ty:ty,)*
    }) => {
        $(#[doc = $doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            zerocopy::KnownLayout, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[doc = $fdoc])* pub $field: $ty,)*
        }

        impl $name {
            /// Size in bytes.
            pub const SIZE: usize = core::mem::size_of::<Self>();
            /// How the C header shows this structure.
            pub const INFO: &'static $crate::layout::StructInfo = &$crate::layout::StructInfo {
                name: stringify!($name),
                c_name: $c_name,
                size: Self::SIZE,
                doc: &[$($doc),*],
                fields: &[$($crate::layout::FieldInfo {
                    name: stringify!($field),
                    c_type: <$ty as $crate::layout::CType>::NAME,
                    array: <$ty as $crate::layout::CType>::ARRAY,
                    offset: core::mem::offset_of!(Self, $field),
                    size: core::mem::size_of::<$ty>(),
                    doc: &[$($fdoc),*],
                }),*],
            };
        }

        impl Default for $name {
            /// All zero.
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        impl $crate::layout::CType for $name {
            const NAME: &'static str = concat!("struct ", $c_name);
        }
    };
}

/// Declares an open enumeration.
///
/// The form is `open_enum! { /// doc pub enum Name: u8 = "PREFIX" { /// doc VALUE = 1, } }`.
macro_rules! open_enum {
    ($(#[doc = $doc:literal])* pub enum $name:ident: $repr:ty = $prefix:literal {
        $($(#[doc = $vdoc:literal])* $value:ident = $number:literal,)*
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            $($(#[doc = $vdoc])* pub const $value: Self = Self($number);)*
            /// How the C header shows these values.
            pub const INFO: &'static $crate::layout::ConstsInfo = &$crate::layout::ConstsInfo {
                name: stringify!($name),
                c_prefix: $prefix,
                doc: &[$($doc),*],
                consts: &[$((stringify!($value), $number as u64, &[$($vdoc),*])),*],
            };

            /// Returns the name of the value, if it has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($value)),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }
    };
}

/// Declares constants in a module.
///
/// The form is `consts! { /// doc pub mod name: u16 = "PREFIX" { /// doc BIT = 1, } }`.
macro_rules! consts {
    ($(#[doc = $doc:literal])* pub mod $name:ident: $repr:ty = $prefix:literal {
        $($(#[doc = $vdoc:literal])* $value:ident = $number:expr,)*
    }) => {
        $(#[doc = $doc])*
        pub mod $name {
            $($(#[doc = $vdoc])* pub const $value: $repr = $number;)*
            /// How the C header shows these constants.
            pub const INFO: &$crate::layout::ConstsInfo = &$crate::layout::ConstsInfo {
                name: stringify!($name),
                c_prefix: $prefix,
                doc: &[$($doc),*],
                consts: &[$((stringify!($value), $value as u64, &[$($vdoc),*])),*],
            };
        }
    };
}
