//! Parses the parameters of a call. A mistake is named, with what is allowed instead.

use crate::config::{fields, plain, unknown};
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde_json::{Map, Value};
use std::cell::Cell;
use vrdma_admin::Fault;

/// Parses parameters.
///
/// # Errors
/// [`Fault::InvalidParameter`]: one is missing, is not known, or has a wrong value.
pub fn parse<T: DeserializeOwned>(parameters: Option<Map<String, Value>>) -> Result<T, Fault> {
    let parameters = parameters.unwrap_or_default();
    let known = fields::<T>();
    if let Some(name) = parameters.keys().find(|name| !known.contains(&name.as_str())) {
        let reason = match known {
            [] => format!("there is no parameter {name}: the method takes none"),
            known => unknown("parameter", name, known),
        };
        return Err(Fault::InvalidParameter { parameter: name.clone(), reason });
    }
    // The parameter that was read last is the one that an error is about.
    let last = Cell::new(None);
    let each = parameters.iter().map(|(name, value)| {
        last.set(Some(name.as_str()));
        (name.as_str(), value.clone())
    });
    T::deserialize(MapDeserializer::<_, serde_json::Error>::new(each)).map_err(|error| {
        let message = error.to_string();
        let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let parameter = missing.or(last.get()).unwrap_or_default().to_owned();
        let reason = match missing {
            Some(name) => format!("the parameter {name} is missing"),
            None => format!("{parameter}: {}", plain(&message)),
        };
        Fault::InvalidParameter { parameter, reason }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use vrdma_admin::daemon::GetStats;
    use vrdma_admin::guest::ListGuests;
    use vrdma_admin::log::SetLog;
    use vrdma_admin::qp::ShowQp;

    /// Returns which parameter is refused, and why.
    fn refused<T: DeserializeOwned + std::fmt::Debug>(parameters: Value) -> (String, String) {
        match parse::<T>(parameters.as_object().cloned()) {
            Err(Fault::InvalidParameter { parameter, reason }) => (parameter, reason),
            other => panic!("{parameters}: {other:?}"),
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (found, parameter, reason) in [
            (
                refused::<ShowQp>(json!({"gest": "a"})),
                "gest",
                "there is no parameter gest: did you mean guest?",
            ),
            (refused::<ShowQp>(json!({"guest": "a"})), "qpn", "the parameter qpn is missing"),
            (
                refused::<ShowQp>(json!({"guest": 7, "qpn": 1})),
                "guest",
                "guest: 7 is a number; give a text, in quotes",
            ),
            (
                refused::<ShowQp>(json!({"guest": "a", "qpn": "x"})),
                "qpn",
                "qpn: \"x\" is a text; give a whole number from 0 to 4294967295, without quotes",
            ),
            (
                refused::<SetLog>(json!({"level": "debgu"})),
                "level",
                "level: there is no value debgu: did you mean debug?",
            ),
            (
                refused::<ListGuests>(json!({"name": "a"})),
                "name",
                "there is no parameter name: the method takes none",
            ),
        ] {
            assert_eq!((found.0.as_str(), found.1.as_str()), (parameter, reason));
        }
    }

    #[test]
    fn optional_parameters_may_be_missing_or_null() {
        for parameters in [None, Some(Map::new()), json!({"interval": null}).as_object().cloned()] {
            assert_eq!(parse::<GetStats>(parameters).unwrap(), GetStats { interval: None });
        }
        let shown: ShowQp = parse(json!({"guest": "a", "qpn": 5}).as_object().cloned()).unwrap();
        assert_eq!((shown.guest.as_str(), shown.qpn), ("a", 5));
    }
}
