//! What a method of an interface is.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A method. The type has its parameters as fields.
pub trait Method: Serialize + DeserializeOwned {
    /// Interface and name of the method.
    const NAME: &'static str;
    /// What the method returns.
    type Output: Serialize + DeserializeOwned;
}
