//! Counters with one name each, made of objects within objects.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Returns names and values, with a dot between the names of an object and of what is in it.
///
/// Elements of lists have their `name`, or their number.
pub fn flat(value: &Value) -> Vec<(String, String)> {
    let shown = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    leaves(value).into_iter().map(|(name, value)| (name, shown(value))).collect()
}

/// Returns what [`flat`] does, with the values as they are.
pub fn leaves(value: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    walk(value, "", &mut |name, value| found.push((name.to_owned(), value.clone())));
    found
}

/// Returns the numbers among them.
pub fn numbers(counters: &Map<String, Value>) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    walk(&Value::Object(counters.clone()), "", &mut |name, value| {
        if let Some(number) = value.as_u64() {
            found.insert(name.to_owned(), number);
        }
    });
    found
}

fn walk(value: &Value, name: &str, found: &mut impl FnMut(&str, &Value)) {
    let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| walk(value, &inner(key), found)),
        Value::Array(all) if all.iter().any(Value::is_object) => {
            for (at, each) in all.iter().enumerate() {
                let own =
                    each.get("name").and_then(Value::as_str).map_or_else(|| at.to_string(), str::to_owned);
                walk(each, &inner(&own), found);
            }
        }
        value => found(name, value),
    }
}

/// Whether a name begins with one of the names that are wanted. All do if none is wanted.
pub fn is_wanted(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| name.starts_with(wanted.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_counter_has_a_name() {
        let stats = json!({
            "uptime": 5,
            "link": null,
            "guests": [{"name": "vm1", "device": {"requests": 7}, "listening": [80, 81]}],
            "workers": [{"sleeps": 3}],
        });
        let names: Vec<_> = flat(&stats).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            names,
            [
                "guests.vm1.device.requests=7",
                "guests.vm1.listening=[80,81]",
                "guests.vm1.name=vm1",
                "link=null",
                "uptime=5",
                "workers.0.sleeps=3"
            ]
        );
        let numbers = numbers(stats.as_object().unwrap());
        assert_eq!(numbers.into_values().collect::<Vec<_>>(), [7, 5, 3]);
    }

    #[test]
    fn names_are_chosen_by_their_beginnings() {
        assert!(is_wanted("guests.vm1.x", &[]) && is_wanted("guests.vm1.x", &["guests.vm1".into()]));
        assert!(!is_wanted("guests.vm1.x", &["vm1".into()]));
    }
}
