//! Debian's Prometheus reads the exporter, the alerts and the dashboard.
//!
//! Its package is among those that `cargo xtask test` installs. Without it the tests are skipped.

use common::{Exporter, FakeDaemon, connect, wait};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

mod common;

const DASHBOARD: &str = include_str!("../../docs/prometheus/dashboard.json");

/// Prints to stderr, which the test harness does not capture.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        say(&format!("skipped: there is no {program}: apt-get install prometheus"));
    }
    is_there
}

fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/prometheus"));
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_alerts_are_sound_and_fire() {
    if !is_there("promtool") {
        return;
    }
    let checked = promtool(&["check", "rules", "vrdma.rules.yml"], "");
    assert!(checked.status.success(), "{checked:?}");
    let tested = promtool(&["test", "rules", "vrdma.rules.test.yml"], "");
    assert!(tested.status.success(), "{tested:?}");
    // Each alert has an example, and stands in the documentation.
    let tests = include_str!("../../docs/prometheus/vrdma.rules.test.yml");
    let page = include_str!("../../docs/metrics.md");
    let rules = include_str!("../../docs/prometheus/vrdma.rules.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    for alert in &alerts {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} has no example");
        assert!(page.contains(&format!("| `{alert}` |")), "{alert} is not in docs/metrics.md");
    }
    assert_eq!(page.matches("| `Vrdma").count(), alerts.len());
}

#[test]
fn promtool_finds_no_fault_in_the_series() {
    if !is_there("promtool") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("observe");
    let _daemon = FakeDaemon::start(&socket);
    let exporter = Exporter::start(&socket, &[]);
    let checked = promtool(&["check", "metrics"], &exporter.metrics());
    let said = [&checked.stdout[..], &checked.stderr].concat();
    assert!(checked.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// A Prometheus that scrapes one target each second. It is killed when dropped.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(directory: &Path, target: &str) -> Prometheus {
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/prometheus/vrdma.rules.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{rules}']\n\
             scrape_configs: [{{job_name: vrdma, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        // Another program may take the port between the two.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut prometheus = Prometheus { child, port };
        wait::until_with(
            "Prometheus",
            || std::fs::read_to_string(directory.join("log")).unwrap(),
            || {
                assert_eq!(prometheus.child.try_wait().unwrap(), None, "it ended");
                prometheus.get("/-/ready").filter(|answer| answer.starts_with("HTTP/1.0 200"))
            },
        );
        prometheus
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = match connect(([127, 0, 0, 1], self.port).into()) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return None,
            stream => stream.unwrap(),
        };
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        Some(answer)
    }

    /// Calls Prometheus' interface, and returns `data` of its answer.
    fn call(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let parameters: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
        let answer = self.get(&format!("/api/v1/{path}?{}", parameters.join("&"))).expect("it listens");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let value: Value = serde_json::from_str(body).unwrap();
        assert_eq!(value["status"], "success", "{path} {parameters:?}: {value}");
        value["data"].clone()
    }
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() { char::from(byte).into() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

/// Returns the queries of the dashboard's panels, with all guests of all hosts.
fn queries() -> BTreeSet<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    queries
        .map(|query| {
            query.replace("$instance", ".*").replace("$guest", ".*").replace("$__rate_interval", "1m")
        })
        .collect()
}

#[test]
fn each_query_of_the_dashboard_finds_data() {
    if !is_there("prometheus") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("observe");
    let _daemon = FakeDaemon::start(&socket);
    let exporter = Exporter::start(&socket, &[]);
    let prometheus = Prometheus::start(directory.path(), &exporter.address.to_string());
    let queries = queries();
    assert!(queries.len() > 30, "too few for that to mean something: {}", queries.len());
    for query in &queries {
        assert!(!query.contains('$'), "{query}");
        let found = wait::until(query, || {
            let data = prometheus.call("query", &[("query", query)]);
            let found = data["result"].as_array().unwrap().clone();
            (!found.is_empty()).then_some(found)
        });
        let is_number = |each: &Value| each["value"][1].as_str().unwrap().parse::<f64>().unwrap().is_finite();
        assert!(found.iter().all(is_number), "{query}: {found:?}");
    }
    say(&format!("{} queries of the dashboard found data", queries.len()));
    // The guests from which one chooses.
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(of) = variable["definition"].as_str() else { continue };
        let (series, label) = of.strip_prefix("label_values(").unwrap().split_once(", ").unwrap();
        let (series, path) =
            (series.replace("$instance", ".*"), format!("label/{}/values", label.trim_end_matches(')')));
        let values = prometheus.call(&path, &[("match[]", &series)]);
        assert!(!values.as_array().unwrap().is_empty(), "{of}");
        assert!(
            label != "guest)" || values.to_string().contains(&Value::from(common::ODD_NAME).to_string()),
            "{values}"
        );
    }
    // It read OpenMetrics, and evaluates the alerts.
    let target = &prometheus.call("targets", &[])["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()), "{target}");
    wait::until("the alerts", || {
        let rules = &prometheus.call("rules", &[])["groups"][0]["rules"];
        let rules = rules.as_array().unwrap();
        assert!(rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
        rules.iter().all(|rule| rule["health"] == "ok").then_some(())
    });
}
