//! Conversion between an enum of the engine and one of the record, variant by variant.

use crate::base::memory::Access;
use vrdma_wire::num::{Imm, Lkey, Rkey};

/// A value that the record has in a plain form.
pub(crate) trait Recorded: Copy {
    /// The form in the record.
    type Plain;

    /// Returns the value for the record.
    fn to_plain(self) -> Self::Plain;

    /// Returns the value from the record.
    fn of_plain(plain: Self::Plain) -> Self;
}

macro_rules! recorded {
    ($($type:ty as $plain:ty = |$value:ident| $to:expr, |$back:ident| $of:expr;)*) => {
        $(impl Recorded for $type {
            type Plain = $plain;

            fn to_plain(self) -> $plain {
                let $value = self;
                $to
            }

            fn of_plain($back: $plain) -> $type {
                $of
            }
        })*
    };
}

recorded! {
    bool as bool = |value| value, |plain| plain;
    u8 as u8 = |value| value, |plain| plain;
    u32 as u32 = |value| value, |plain| plain;
    u64 as u64 = |value| value, |plain| plain;
    Access as u32 = |value| value.0, |plain| Access(plain);
    Lkey as u32 = |value| value.0, |plain| Lkey(plain);
    Rkey as u32 = |value| value.0, |plain| Rkey(plain);
    Imm as [u8; 4] = |value| value.to_bytes(), |plain| Imm::from_bytes(plain);
}

impl<T: Recorded> Recorded for Option<T> {
    type Plain = Option<T::Plain>;

    fn to_plain(self) -> Self::Plain {
        self.map(T::to_plain)
    }

    fn of_plain(plain: Self::Plain) -> Self {
        plain.map(T::of_plain)
    }
}

/// Converts between an enum of the engine and an enum of the record.
///
/// A row has a variant of the engine, and the variant of the record with the same fields. On the
/// engine's side the fields may be inside of a structure. [`Recorded`] converts each.
macro_rules! same_fields {
    ($engine:ident, $record:ident {
        $($variant:ident $inside:tt = $recorded:ident { $($field:ident),* },)*
    }) => {
        impl From<&$engine> for $crate::save::record::$record {
            fn from(value: &$engine) -> Self {
                use $crate::save::fields::Recorded;
                match *value {
                    $($engine::$variant $inside => Self::$recorded {
                        $($field: Recorded::to_plain($field),)*
                    },)*
                }
            }
        }

        impl From<&$crate::save::record::$record> for $engine {
            fn from(value: &$crate::save::record::$record) -> Self {
                use $crate::save::fields::Recorded;
                match *value {
                    $($crate::save::record::$record::$recorded { $($field),* } => {
                        $(let $field = Recorded::of_plain($field);)*
                        $engine::$variant $inside
                    })*
                }
            }
        }
    };
}
pub(crate) use same_fields;
