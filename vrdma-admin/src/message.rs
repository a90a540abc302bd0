//! Calls of clients, and replies of the service.

use crate::{Fault, Method, frame};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::Not;

/// A client's call of a method.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Call {
    /// Interface and name of the method, as in `org.vrdma.Guest.List`.
    pub method: String,
    /// The method's parameters by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
    /// Whether the client wants no reply.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub oneway: bool,
    /// Whether the client takes several replies.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub more: bool,
    /// Whether the connection is to speak another protocol after the reply.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub upgrade: bool,
}

/// A reply of the service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Reply {
    /// What the method returns by name, or the parameters of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Whether more replies to the call follow.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub continues: bool,
    /// Interface and name of the error, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Call {
    /// Makes the call of a method.
    ///
    /// # Errors
    /// The parameters cannot be written as JSON.
    pub fn of<M: Method>(method: &M) -> Result<Call, serde_json::Error> {
        let parameters = match serde_json::to_value(method)? {
            Value::Object(map) if map.is_empty() => None,
            Value::Object(map) => Some(map),
            _ => None,
        };
        Ok(Call { method: M::NAME.to_owned(), parameters, ..Call::default() })
    }

    /// Parses a message.
    ///
    /// # Errors
    /// It is no call.
    pub fn parse(message: &[u8]) -> Result<Call, serde_json::Error> {
        serde_json::from_slice(message)
    }

    /// Returns the message, with its end.
    pub fn emit(&self) -> Vec<u8> {
        frame(serde_json::to_vec(self).expect("a call is JSON"))
    }

    /// Returns the interface of the method, and the method's name in it.
    ///
    /// `None` if the method's name has no interface.
    pub fn target(&self) -> Option<(&str, &str)> {
        self.method.rsplit_once('.')
    }
}

impl Reply {
    /// Makes a reply with what a method returns.
    pub fn of<T: Serialize>(result: &T) -> Reply {
        let parameters = serde_json::to_value(result).expect("what methods return is JSON");
        Reply { parameters: Some(parameters), ..Reply::default() }
    }

    /// Makes a reply with an error.
    pub fn fault(fault: &Fault) -> Reply {
        let (error, parameters) = fault.parts();
        Reply { parameters: Some(parameters), continues: false, error: Some(error) }
    }

    /// Parses a message.
    ///
    /// # Errors
    /// It is no reply.
    pub fn parse(message: &[u8]) -> Result<Reply, serde_json::Error> {
        serde_json::from_slice(message)
    }

    /// Returns the message, with its end.
    pub fn emit(&self) -> Vec<u8> {
        frame(serde_json::to_vec(self).expect("a reply is JSON"))
    }

    /// Returns what the method returned, or the error.
    ///
    /// # Errors
    /// The outer error: the reply is not one of the method.
    pub fn result<T: DeserializeOwned>(self) -> Result<Result<T, Fault>, serde_json::Error> {
        let parameters = self.parameters.filter(|value| !value.is_null());
        let parameters = parameters.unwrap_or_else(|| Value::Object(Map::new()));
        match self.error {
            Some(error) => Ok(Err(Fault::from_parts(error, parameters))),
            None => serde_json::from_value(parameters).map(Ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Any JSON of a few levels.
    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                object(inner).prop_map(Value::from),
            ]
        })
    }

    fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::btree_map(".{0,8}", value, 0..4).prop_map(|map| map.into_iter().collect())
    }

    prop_compose! {
        fn calls()(
            method in "[a-z.]{0,20}",
            parameters in prop::option::of(object(json())),
            (oneway, more, upgrade) in any::<(bool, bool, bool)>(),
        ) -> Call {
            Call { method, parameters, oneway, more, upgrade }
        }
    }

    prop_compose! {
        fn replies()(
            parameters in prop::option::of(object(json()).prop_map(Value::from)),
            continues in any::<bool>(),
            error in prop::option::of("[a-zA-Z.]{0,20}"),
        ) -> Reply {
            Reply { parameters, continues, error }
        }
    }

    proptest! {
        #[test]
        fn calls_and_replies_survive_the_wire(call in calls(), reply in replies()) {
            let message = call.emit();
            prop_assert_eq!(message.iter().position(|byte| *byte == 0), Some(message.len() - 1));
            prop_assert_eq!(Call::parse(&message[..message.len() - 1]).unwrap(), call);
            let message = reply.emit();
            prop_assert_eq!(message.iter().position(|byte| *byte == 0), Some(message.len() - 1));
            prop_assert_eq!(Reply::parse(&message[..message.len() - 1]).unwrap(), reply);
        }

        #[test]
        fn parts_of_a_message_are_no_message(call in calls(), reply in replies(), cut in any::<prop::sample::Index>()) {
            let message = call.emit();
            let cut_at = cut.index(message.len() - 1);
            prop_assert!(Call::parse(&message[..cut_at]).is_err());
            prop_assert!(Call::parse(&[&message[..message.len() - 1], b"x"].concat()).is_err());
            let message = reply.emit();
            let cut_at = cut.index(message.len() - 1);
            prop_assert!(Reply::parse(&message[..cut_at]).is_err());
        }

        #[test]
        fn values_of_a_wrong_kind_are_an_error(
            call in calls(),
            reply in replies(),
            field in 0..5usize,
            wrong in prop_oneof![Just(json!(7)), Just(json!([])), Just(json!([{}])), Just(json!(1.5))],
        ) {
            let with = |value: Value, name: &str| {
                let mut map = value.as_object().unwrap().clone();
                map.insert(name.to_owned(), wrong.clone());
                serde_json::to_vec(&map).unwrap()
            };
            let name = ["method", "parameters", "oneway", "more", "upgrade"][field];
            prop_assert!(Call::parse(&with(serde_json::to_value(&call).unwrap(), name)).is_err(), "{}", name);
            let name = ["continues", "error"][field % 2];
            prop_assert!(Reply::parse(&with(serde_json::to_value(&reply).unwrap(), name)).is_err(), "{}", name);
        }
    }

    #[test]
    fn a_call_is_as_small_as_it_can_be() {
        let call = Call::of(&crate::guest::ListGuests {}).unwrap();
        assert_eq!(call.emit(), b"{\"method\":\"org.vrdma.Guest.List\"}\0");
        assert_eq!(call.target(), Some(("org.vrdma.Guest", "List")));
        let show = crate::guest::ShowGuest { name: "a".into() };
        let text = "{\"method\":\"org.vrdma.Guest.Show\",\"parameters\":{\"name\":\"a\"}}\0";
        assert_eq!(Call::of(&show).unwrap().emit(), text.as_bytes());
    }
}
