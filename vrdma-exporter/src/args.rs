//! The command line.

use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Shows the counters of a running vrdma daemon to Prometheus.
///
/// The series are at `http://ADDRESS/metrics`, in OpenMetrics or in Prometheus' own format, as the
/// client wants. docs/metrics.md lists them. While the daemon does not run or does not answer,
/// there is `vrdma_up 0`, and the exporter goes on. It needs no right but to open the daemon's
/// socket for observers: run it as a user of the group `vrdma`.
///
/// SIGTERM and SIGINT end it.
#[derive(Debug, Parser)]
#[command(name = "vrdma-exporter", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// Address and port at which to listen. `[::]:9471` is all addresses of the host
    #[arg(short, long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9471", value_parser = address)]
    pub listen: SocketAddr,
    /// The daemon's socket for observers
    #[arg(short, long, value_name = "PATH", default_value = vrdma_admin::OBSERVE)]
    pub socket: PathBuf,
    /// Longest time that a scrape waits for the daemon. It has to be less than Prometheus'
    /// scrape_timeout, and more than the 5 s for which the daemon waits for a stuck worker
    #[arg(short, long, value_name = "SECONDS", default_value = "8", value_parser = seconds)]
    pub timeout: Duration,
}

const EXAMPLES: &str = "\
Examples:
  vrdma-exporter
      for a Prometheus on this host
  vrdma-exporter --listen [::]:9471
      for a Prometheus on another host. Whoever reaches the port can read the counters
  curl http://127.0.0.1:9471/metrics
      what Prometheus sees

Prometheus' configuration:
  scrape_configs:
    - job_name: vrdma
      static_configs: [{targets: ['127.0.0.1:9471']}]";

/// Parses an address with its port.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give an IP address and a port, like 127.0.0.1:9471 or [::]:9471".into())
}

/// Parses a time in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=300.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds from 0.1 to 300, like 5".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        for (line, said) in [
            ("--listen 9471", "like 127.0.0.1:9471 or [::]:9471"),
            ("--listen ::1:9471x", "like 127.0.0.1:9471"),
            ("--timeout 0", "from 0.1 to 300"),
            ("--timeout inf", "from 0.1 to 300"),
            ("--sockt x", "'--socket'"),
        ] {
            let words = std::iter::once("vrdma-exporter").chain(line.split(' '));
            let error = Args::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
