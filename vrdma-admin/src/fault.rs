//! The errors of all interfaces.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// An error that the service replies.
///
/// `reason` is a sentence for people. It says what is wrong, what is allowed, and which name was
/// probably meant.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "error", content = "parameters")]
#[allow(missing_docs, reason = "the files idl/*.varlink describe each error and its parameters")]
pub enum Fault {
    #[serde(rename = "org.varlink.service.InterfaceNotFound")]
    InterfaceNotFound { interface: String },
    #[serde(rename = "org.varlink.service.MethodNotFound")]
    MethodNotFound { method: String },
    #[serde(rename = "org.varlink.service.MethodNotImplemented")]
    MethodNotImplemented { method: String },
    /// `reason` is not in the description of the interface. Clients that do not know it ignore it.
    #[serde(rename = "org.varlink.service.InvalidParameter")]
    InvalidParameter {
        parameter: String,
        #[serde(default)]
        reason: String,
    },
    #[serde(rename = "org.varlink.service.PermissionDenied")]
    PermissionDenied {},
    #[serde(rename = "org.varlink.service.ExpectedMore")]
    ExpectedMore {},
    #[serde(rename = "org.vrdma.Capture.NoFile")]
    CaptureNoFile { reason: String },
    #[serde(rename = "org.vrdma.Capture.TooMany")]
    CaptureTooMany { most: u64, reason: String },
    #[serde(rename = "org.vrdma.Daemon.BadMessage")]
    BadMessage { reason: String },
    #[serde(rename = "org.vrdma.Daemon.CannotSave")]
    CannotSave { reason: String },
    #[serde(rename = "org.vrdma.Daemon.NotReloaded")]
    NotReloaded { reason: String },
    #[serde(rename = "org.vrdma.Daemon.Stuck")]
    Stuck { worker: u64, reason: String },
    #[serde(rename = "org.vrdma.Daemon.Stopping")]
    Stopping {},
    #[serde(rename = "org.vrdma.Guest.NotFound")]
    GuestNotFound { name: String, reason: String },
    #[serde(rename = "org.vrdma.Guest.InUse")]
    GuestInUse { name: String, pids: Vec<u32>, reason: String },
    #[serde(rename = "org.vrdma.Guest.Refused")]
    GuestRefused { reason: String },
    #[serde(rename = "org.vrdma.Qp.NotFound")]
    QpNotFound { guest: String, qpn: u32 },
    #[serde(rename = "org.vrdma.Port.NotFound")]
    PortNotFound { name: String, reason: String },
    #[serde(rename = "org.vrdma.Log.Fixed")]
    LogFixed { reason: String },
    /// An error that this crate does not know, or whose parameters it does not know.
    #[serde(skip)]
    Other { error: String, parameters: Value },
}

impl Fault {
    /// Returns the error's name with its interface, and its parameters.
    pub fn parts(&self) -> (String, Value) {
        if let Fault::Other { error, parameters } = self {
            return (error.clone(), parameters.clone());
        }
        let mut value = serde_json::to_value(self).expect("an error is JSON");
        let name = value["error"].as_str().expect("each error has a name").to_owned();
        (name, value["parameters"].take())
    }

    /// Makes an error of its name with its interface, and of its parameters.
    pub fn from_parts(error: String, parameters: Value) -> Fault {
        let whole: Map<String, Value> = Map::from_iter([
            ("error".to_owned(), error.clone().into()),
            ("parameters".to_owned(), parameters.clone()),
        ]);
        serde_json::from_value(whole.into()).unwrap_or(Fault::Other { error, parameters })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::InterfaceNotFound { interface } => write!(f, "there is no interface {interface}"),
            Fault::MethodNotFound { method } => write!(f, "there is no method {method}"),
            Fault::MethodNotImplemented { method } => write!(f, "the daemon lacks the method {method}"),
            Fault::InvalidParameter { parameter, reason } if reason.is_empty() => {
                write!(f, "the parameter {parameter} is wrong")
            }
            Fault::PermissionDenied {} => {
                f.write_str("this socket is for those who look; use the one for administration (--admin)")
            }
            Fault::ExpectedMore {} => f.write_str("the method has several replies: call it with more"),
            Fault::Stopping {} => f.write_str("the daemon is about to end"),
            Fault::QpNotFound { guest, qpn } => write!(f, "guest {guest} has no QP {qpn}"),
            Fault::InvalidParameter { reason, .. }
            | Fault::BadMessage { reason }
            | Fault::CaptureNoFile { reason }
            | Fault::CaptureTooMany { reason, .. }
            | Fault::CannotSave { reason }
            | Fault::NotReloaded { reason }
            | Fault::GuestInUse { reason, .. }
            | Fault::GuestRefused { reason }
            | Fault::Stuck { reason, .. }
            | Fault::GuestNotFound { reason, .. }
            | Fault::PortNotFound { reason, .. }
            | Fault::LogFixed { reason } => f.write_str(reason),
            Fault::Other { error, parameters } => write!(f, "{error}: {parameters}"),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_have_the_names_of_their_interfaces() {
        let fault = Fault::GuestNotFound { name: "x".into(), reason: "none".into() };
        let (error, parameters) = fault.parts();
        assert_eq!(error, "org.vrdma.Guest.NotFound");
        assert_eq!(parameters, json!({"name": "x", "reason": "none"}));
        assert_eq!(Fault::from_parts(error, parameters), fault);
        let denied = Fault::from_parts("org.varlink.service.PermissionDenied".into(), json!({}));
        assert_eq!(denied, Fault::PermissionDenied {});
    }

    #[test]
    fn errors_of_others_are_kept() {
        for (error, parameters) in
            [("com.example.Odd", json!({"a": 1})), ("org.vrdma.Qp.NotFound", json!({}))]
        {
            let fault = Fault::from_parts(error.to_owned(), parameters.clone());
            assert_eq!(fault, Fault::Other { error: error.to_owned(), parameters: parameters.clone() });
            assert_eq!(fault.parts(), (error.to_owned(), parameters));
        }
        let plain =
            Fault::from_parts("org.varlink.service.InvalidParameter".into(), json!({"parameter": "x"}));
        assert_eq!(plain.to_string(), "the parameter x is wrong");
    }
}
