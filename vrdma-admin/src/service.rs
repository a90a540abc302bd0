//! `org.varlink.service`: what each varlink service has.

use crate::Method;
use serde::{Deserialize, Serialize};

/// The method GetInfo.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct GetService {}

/// Describes a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[allow(missing_docs, reason = "the description of the interface has them")]
pub struct ServiceInfo {
    pub vendor: String,
    pub product: String,
    pub version: String,
    pub url: String,
    pub interfaces: Vec<String>,
}

/// The method GetInterfaceDescription.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct GetDescription {
    /// Name of the interface.
    pub interface: String,
}

/// The description of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Description {
    /// The description in varlink's language.
    pub description: String,
}

impl Method for GetService {
    const NAME: &'static str = "org.varlink.service.GetInfo";
    type Output = ServiceInfo;
}

impl Method for GetDescription {
    const NAME: &'static str = "org.varlink.service.GetInterfaceDescription";
    type Output = Description;
}
