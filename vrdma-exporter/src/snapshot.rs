//! What the daemon said at one time, ordered by what it is about.

use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::time::Duration;

/// Version of the exporter.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the daemon said at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// What it is about, without two equal ones.
    pub subjects: Vec<Subject>,
}

/// What facts are about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its kind.
    pub scope: Scope,
    /// Names and values of the labels of its series.
    pub labels: Vec<(&'static str, String)>,
    /// The facts, as the daemon told them.
    pub facts: Value,
}

/// What series are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The exporter.
    Exporter,
    /// The daemon as a whole.
    Daemon,
    /// A worker of the daemon.
    Worker,
    /// A guest.
    Guest,
    /// A function of a guest.
    Function,
    /// A port of the switch: the uplink, or the Ethernet function of a guest.
    Port,
}

/// The daemon's replies. What is `None` is a method that it does not have.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    /// To `org.vrdma.Daemon.Info`.
    pub info: Option<Value>,
    /// To `org.vrdma.Daemon.Stats`.
    pub stats: Option<Value>,
    /// To `org.vrdma.Guest.List`.
    pub guests: Option<Value>,
    /// To `org.vrdma.Worker.List`.
    pub workers: Option<Value>,
}

impl Scope {
    /// Returns the labels that its series have.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Scope::Exporter | Scope::Daemon => &[],
            Scope::Worker => &["worker"],
            Scope::Guest => &["guest"],
            Scope::Function => &["guest", "function"],
            Scope::Port => &["port", "kind"],
        }
    }

    fn subject(self, values: &[&str], facts: Value) -> Subject {
        let labels = self.labels().iter().zip(values).map(|(label, value)| (*label, (*value).to_owned()));
        Subject { scope: self, labels: labels.collect(), facts }
    }
}

impl Snapshot {
    /// Returns what is known of a daemon that does not answer.
    pub fn down() -> Snapshot {
        Snapshot { subjects: vec![Scope::Exporter.subject(&[], json!({"up": false, "version": VERSION}))] }
    }

    /// Orders the replies of a daemon, which took some time.
    pub fn of(replies: Replies, took: Duration) -> Snapshot {
        let Replies { info, stats, guests, workers } = replies;
        let facts = json!({"up": true, "version": VERSION, "took": took.as_micros() as u64});
        let mut subjects = vec![Scope::Exporter.subject(&[], facts)];
        let stats = stats.and_then(|mut stats| stats.get_mut("stats").map(Value::take)).unwrap_or_default();
        let all_stats = |key: &str| stats.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let list = |reply: &Option<Value>, key: &str| {
            reply.as_ref().and_then(|reply| reply.get(key)?.as_array().cloned()).unwrap_or_default()
        };
        for (at, worker) in list(&workers, "workers").into_iter().enumerate() {
            let Some(number) = worker["number"].as_u64().map(|number| number.to_string()) else { continue };
            // The counters of a stuck worker are not told. Those between workers would be zero.
            let is_stuck = worker["stuck"] == true;
            let between = all_stats("workers").get(at).filter(|_| !is_stuck).cloned().unwrap_or_default();
            subjects.push(Scope::Worker.subject(&[&number], with(worker, "between", between)));
        }
        subjects.extend(uplink(&stats));
        for guest in list(&guests, "guests") {
            let Some(name) = guest["name"].as_str().map(str::to_owned) else { continue };
            let own = all_stats("guests").iter().find(|stats| stats["name"] == name.as_str());
            let own = own.cloned().unwrap_or_default();
            subjects.extend(functions(&name, &guest, &own["reachable"]));
            subjects.extend(guest_port(&name, &own));
            subjects.push(Scope::Guest.subject(&[&name], with(own, "place", guest)));
        }
        if stats.is_object() {
            subjects.push(Scope::Daemon.subject(&[], with(stats, "info", info.unwrap_or_default())));
        }
        // Prometheus refuses all series if two are equal.
        let mut seen = HashSet::new();
        subjects.retain(|subject| seen.insert((subject.scope as u8, subject.labels.clone())));
        Snapshot { subjects }
    }
}

/// Adds a member to an object. What is no object becomes one.
fn with(object: Value, name: &str, value: Value) -> Value {
    let mut members = match object {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    members.insert(name.to_owned(), value);
    members.into()
}

fn functions(name: &str, guest: &Value, reachable: &Value) -> Vec<Subject> {
    let functions = guest["functions"].as_array().into_iter().flatten();
    let subjects = functions.filter_map(|function| {
        let kind = function["kind"].as_str()?;
        let reachable = if kind == "ethernet" { &reachable["net"] } else { &reachable["rdma"] };
        let facts = with(function.clone(), "reachable", reachable.clone());
        Some(Scope::Function.subject(&[name, kind], facts))
    });
    subjects.collect()
}

fn uplink(stats: &Value) -> Option<Subject> {
    let link = stats.get("link")?.as_object()?;
    let facts = json!({"up": link.get("up"), "mtu": link.get("mtu"), "uplink": stats["uplink"]});
    Some(Scope::Port.subject(&["uplink", "uplink"], facts))
}

/// Returns the port of a guest that has an Ethernet function.
fn guest_port(name: &str, stats: &Value) -> Option<Subject> {
    let connected = stats["connected"]["net"].as_bool()?;
    Some(Scope::Port.subject(&[name, "guest"], json!({"up": connected, "net": stats["net"]})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies() -> Replies {
        let guest = |name: &str| {
            let functions =
                json!([{"kind": "roce", "connected": true}, {"kind": "ethernet", "connected": false}]);
            json!({"name": name, "mac": "52:54:00:00:00:01", "worker": 0, "functions": functions})
        };
        let stats = json!({
            "version": "1",
            "link": {"up": true, "mtu": 1500},
            "uplink": {"frames_sent": 1},
            "workers": [{"frames_lost": 2}, {"frames_lost": 0}],
            "guests": [{
                "name": "a",
                "connected": {"rdma": true, "net": false},
                "reachable": {"rdma": true, "net": null},
                "net": {"tx_frames": 3},
            }],
        });
        Replies {
            info: Some(json!({"draining": false})),
            stats: Some(json!({"stats": stats})),
            guests: Some(json!({"guests": [guest("a"), guest("stuck")]})),
            workers: Some(json!({"workers": [{"number": 0, "stuck": false}, {"number": 1, "stuck": true}]})),
        }
    }

    fn names(snapshot: &Snapshot) -> Vec<String> {
        let name = |subject: &Subject| {
            let labels = subject.labels.iter().map(|(_, value)| format!(" {value}"));
            format!("{:?}{}", subject.scope, labels.collect::<String>())
        };
        snapshot.subjects.iter().map(name).collect()
    }

    fn facts<'a>(snapshot: &'a Snapshot, name: &str) -> &'a Value {
        let at = names(snapshot).iter().position(|each| each == name).unwrap();
        &snapshot.subjects[at].facts
    }

    #[test]
    fn replies_are_ordered_by_what_they_are_about() {
        let snapshot = Snapshot::of(replies(), Duration::from_millis(3));
        let expected = [
            "Exporter",
            "Worker 0",
            "Worker 1",
            "Port uplink uplink",
            "Function a roce",
            "Function a ethernet",
            "Port a guest",
            "Guest a",
            "Function stuck roce",
            "Function stuck ethernet",
            "Guest stuck",
            "Daemon",
        ];
        assert_eq!(names(&snapshot), expected);
        assert_eq!(facts(&snapshot, "Exporter")["took"], 3000);
        assert_eq!(facts(&snapshot, "Worker 0")["between"]["frames_lost"], 2);
        assert_eq!(facts(&snapshot, "Worker 1")["between"], Value::Null);
        assert_eq!(facts(&snapshot, "Function a roce")["reachable"], true);
        assert_eq!(facts(&snapshot, "Function a ethernet")["reachable"], Value::Null);
        assert_eq!(facts(&snapshot, "Port a guest")["net"]["tx_frames"], 3);
        assert_eq!(facts(&snapshot, "Guest stuck")["place"]["worker"], 0);
        assert_eq!(facts(&snapshot, "Daemon")["info"]["draining"], false);
    }

    #[test]
    fn a_daemon_may_lack_methods() {
        let nothing = Snapshot::of(Replies::default(), Duration::ZERO);
        assert_eq!(names(&nothing), ["Exporter"]);
        assert_eq!(facts(&nothing, "Exporter")["up"], true);
        let some = Snapshot::of(Replies { workers: None, info: None, ..replies() }, Duration::ZERO);
        assert!(names(&some).contains(&"Guest a".to_owned()) && names(&some).contains(&"Daemon".to_owned()));
    }

    #[test]
    fn two_guests_of_one_name_are_one() {
        let twice = Replies { guests: Some(json!({"guests": [{"name": "a"}, {"name": "a"}]})), ..replies() };
        let names = names(&Snapshot::of(twice, Duration::ZERO));
        assert_eq!(names.iter().filter(|name| *name == "Guest a").count(), 1);
    }

    #[test]
    fn replies_that_make_no_sense_are_left_out() {
        let odd = json!({"guests": 7, "workers": {}, "stats": [1]});
        let all = || Some(odd.clone());
        let snapshot = Snapshot::of(
            Replies { info: all(), stats: all(), guests: all(), workers: all() },
            Duration::ZERO,
        );
        assert_eq!(names(&snapshot), ["Exporter"]);
    }
}
