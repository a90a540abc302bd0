//! A change of a guest's quality of service while it runs.

use super::fields::fields;
use super::guest::GuestConfig;
use super::words::from_keys;
use super::{Qos, Weight};
use anyhow::ensure;
use serde::{Deserialize, Deserializer, de};
use std::str::FromStr;

/// A change of the quality of service: the keys that were named, with their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "each field is documented in GuestConfig")]
pub struct QosChange {
    pub weight: Option<Weight>,
    pub tx_bytes: Option<u64>,
    pub rx_bytes: Option<u64>,
    pub tx_messages: Option<u64>,
    pub rx_messages: Option<u64>,
    pub burst_ms: Option<u32>,
    #[serde(deserialize_with = "mark")]
    pub dscp: Option<MarkChange>,
    #[serde(deserialize_with = "mark")]
    pub pcp: Option<MarkChange>,
}

/// A change of the mark of a guest's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkChange {
    /// They get this mark.
    To(u8),
    /// They keep what the guest gives them.
    ToNone,
}

impl MarkChange {
    fn mark(self) -> Option<u8> {
        match self {
            MarkChange::To(mark) => Some(mark),
            MarkChange::ToNone => None,
        }
    }
}

/// Reads a number, or `none`.
fn mark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MarkChange>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let change = match &*text {
        "none" => Ok(MarkChange::ToNone),
        number => number.parse().map(MarkChange::To),
    };
    let mistake = || de::Error::custom(format_args!("'{text}' is not a number that fits here, and not none"));
    change.map(Some).map_err(|_| mistake())
}

impl QosChange {
    /// Returns what it makes of a quality of service.
    pub fn over(&self, qos: &Qos) -> Qos {
        Qos {
            weight: self.weight.unwrap_or(qos.weight),
            tx_bytes: self.tx_bytes.unwrap_or(qos.tx_bytes),
            rx_bytes: self.rx_bytes.unwrap_or(qos.rx_bytes),
            tx_messages: self.tx_messages.unwrap_or(qos.tx_messages),
            rx_messages: self.rx_messages.unwrap_or(qos.rx_messages),
            burst_ms: self.burst_ms.unwrap_or(qos.burst_ms),
            dscp: self.dscp.map_or(qos.dscp, MarkChange::mark),
            pcp: self.pcp.map_or(qos.pcp, MarkChange::mark),
        }
    }
}

/// Parses `weight=3,tx_bytes=125000000`, with the keys of the file.
impl FromStr for QosChange {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<QosChange> {
        ensure!(!text.is_empty(), "no key is given: there are {}", Qos::KEYS.join(", "));
        for part in text.split(',') {
            let key = part.split('=').next().unwrap_or_default().trim().replace('-', "_");
            let first = key.split('.').next().unwrap_or_default();
            ensure!(
                !fields::<GuestConfig>().contains(&first) || Qos::KEYS.contains(&first),
                "{key}: it holds from the guest's begin to its end, so remove the guest and add it again; what can be changed is {}",
                Qos::KEYS.join(", ")
            );
        }
        from_keys(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        format!("{:#}", text.parse::<QosChange>().unwrap_err())
    }

    #[test]
    fn named_keys_change_and_others_stay() {
        let before = Qos { tx_bytes: 5_000_000, dscp: Some(4), ..Qos::default() };
        let change: QosChange = "weight=3,rx-messages=1000".parse().unwrap();
        let after = change.over(&before);
        assert_eq!((after.weight.get(), after.rx_messages), (3, 1000));
        assert_eq!((after.tx_bytes, after.dscp), (5_000_000, Some(4)));
    }

    #[test]
    fn marks_are_set_and_taken_away() {
        let before = Qos { dscp: Some(4), pcp: Some(5), ..Qos::default() };
        let marks = |text: &str| {
            let after = text.parse::<QosChange>().unwrap().over(&before);
            (after.dscp, after.pcp)
        };
        assert_eq!(marks("dscp=0"), (Some(0), Some(5)));
        assert_eq!(marks("dscp=none,pcp=7"), (None, Some(7)));
        assert_eq!(marks("pcp=none"), (Some(4), None));
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        for (text, said) in [
            ("wieght=3", "there is no key wieght: did you mean weight?"),
            ("weight=x", "weight: 'x' is not a number that fits here"),
            ("weight", "'weight' is not KEY=VALUE"),
            ("dscp=no", "dscp: 'no' is not a number that fits here, and not none"),
            ("pcp=256", "pcp: '256' is not a number that fits here, and not none"),
            ("weight=", "weight: a value is missing after '='"),
            ("", "no key is given: there are weight, tx_bytes"),
            ("mac=x", "mac: it holds from the guest's begin to its end"),
            ("limits.qps=64", "limits.qps: it holds from the guest's begin"),
        ] {
            assert!(refused(text).starts_with(said), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn each_key_of_the_quality_of_service_can_be_changed() {
        assert_eq!(fields::<QosChange>(), Qos::KEYS);
        assert!(Qos::KEYS.iter().all(|key| fields::<GuestConfig>().contains(key)));
    }
}
