//! A summary of what perftest measured.
//!
//! It has latency, bandwidth and message rate of each verb, beside those of Linux's own device.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use vrdma_lab::accel::Accel;
use vrdma_lab::paths;

/// Sizes whose bandwidth is shown.
const SIZES: [(&str, &str); 2] = [("65536", "64 KiB"), ("8388608", "8 MiB")];

/// The size whose message rate is shown.
const SMALL: &str = "8";

/// A figure's name, and its value with the unit.
type Figure = (String, String);

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary(Vec<Figure>);

impl Summary {
    /// Adds the figures of the table that a command printed. Ignores commands that are not
    /// perftest's.
    pub fn add(&mut self, command: &str, printed: &str) {
        let name = command.split_whitespace().next().unwrap_or_default();
        let Some((verb, kind)) = name.strip_prefix("ib_").and_then(|name| name.split_once('_')) else {
            return;
        };
        let verb = verb.to_uppercase();
        for line in printed.lines() {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let [size, _, _, _, fourth, ..] = columns[..] else { continue };
            match kind {
                // Columns: bytes, iterations, least, most, typical, average, deviation, 99th and
                // 99.9th percentile.
                "lat" if size.parse::<u64>().is_ok() => {
                    self.0.push((format!("{verb}, {size} bytes"), format!("{fourth} us")));
                    if let Some(percentile) = columns.get(8) {
                        self.0.push((format!("{verb}, {size} bytes, 99.9 %"), format!("{percentile} us")));
                    }
                }
                // Columns: bytes, iterations, peak, average, rate.
                "bw" if size == SMALL => self.0.push((format!("{verb}, 8 bytes"), format!("{fourth} M/s"))),
                "bw" => {
                    if let Some((_, size)) = SIZES.iter().find(|(bytes, _)| *bytes == size) {
                        self.0.push((format!("{verb}, {size}"), format!("{} MiB/s", columns[3])));
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether there are no figures.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sorts latencies to the front.
    pub fn sort(&mut self) {
        self.0.sort_by_key(|(_, value)| !value.ends_with("us"));
    }

    /// Returns the figures as a table, in their order.
    ///
    /// If there are other figures, they are in the next column, with the ratio in the last one.
    pub fn table(&self, name: &str, beside: Option<(&str, &Self)>) -> String {
        let other = beside.map(|(name, _)| name).unwrap_or_default();
        let times = if beside.is_some() { "times as good" } else { "" };
        let mut text = format!("{:<24}{name:>18}{other:>18}{times:>16}", "");
        for (figure, value) in &self.0 {
            // A latency and a rate may have the same name, so the units are compared, too.
            let is_same = |(name, other): &&Figure| name == figure && unit(other) == unit(value);
            let other = beside.and_then(|(_, other)| other.0.iter().find(is_same));
            let other = other.map_or("", |(_, value)| value.as_str());
            let times = times_as_good(value, other).map_or(String::new(), |times| format!("{times:.1}"));
            text += &format!("\n{figure:<24}{value:>18}{other:>18}{times:>16}");
        }
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }

    /// Stores the figures for later runs, with the load of the machine before the measurement.
    pub fn keep(&self, device: &str, accel: Accel, load: Load) -> Result<()> {
        paths::write(&file(device, accel), self.to_text(load))
    }

    fn to_text(&self, load: Load) -> String {
        let lines: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}\t{value}\n")).collect();
        format!("{}\n{}", load.0, lines.concat())
    }

    /// Parses the text of [`Self::to_text`].
    fn of_text(text: &str) -> Option<(Self, Load)> {
        let (load, lines) = text.split_once('\n')?;
        let figure = |line: &str| line.split_once('\t').map(|(name, value)| (name.into(), value.into()));
        Some((Self(lines.lines().filter_map(figure).collect()), Load(load.parse().ok()?)))
    }

    /// Returns the figures of the last run with this device, if there was one.
    ///
    /// The text says when they were measured, and with which load.
    pub fn kept(device: &str, accel: Accel) -> Option<(Self, String)> {
        let file = file(device, accel);
        let text = fs::read_to_string(&file).ok()?;
        let age = fs::metadata(&file).ok()?.modified().ok()?.elapsed().unwrap_or_default();
        let (figures, load) = Self::of_text(&text)?;
        let said = format!("{device} was measured {} minutes ago, {load}", age.as_secs() / 60);
        Some((figures, said))
    }
}

/// How busy the machine was before a run: Linux's load average of one minute (proc_loadavg(5)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load(f64);

impl Load {
    /// Returns the present load.
    pub fn now() -> Result<Self> {
        let text = paths::read("/proc/loadavg".as_ref())?;
        let first = text.split(' ').next().and_then(|first| first.parse().ok());
        first.map(Self).context("/proc/loadavg does not begin with a number")
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "begun at a load average of {:.2}", self.0)
    }
}

fn unit(value: &str) -> Option<&str> {
    value.split(' ').nth(1)
}

/// Returns how many times as good a figure is as another. Of times the smaller one is better.
fn times_as_good(value: &str, other: &str) -> Option<f64> {
    let number = |text: &str| text.split(' ').next()?.parse::<f64>().ok().filter(|&number| number > 0.);
    let ratio = number(value)? / number(other)?;
    Some(if value.ends_with("us") { ratio.recip() } else { ratio })
}

fn file(device: &str, accel: Accel) -> PathBuf {
    paths::vm().join(format!("figures-{device}-{}", accel.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANDWIDTH: &str =
        " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 2          2000             1.04               1.02                   0.536600
 8          2000             4.16               4.08                   0.534512
 65536      2000             7000.04            6543.21                0.104691
 8388608    2000             9000.00            8999.99                0.001124
";
    const LATENCY: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 2       1000          70.00          170.00       88.50             90.00           1.00            100.0            170.00
";

    #[test]
    fn kept_figures_come_back_with_the_load_that_they_began_at() {
        let mut summary = Summary::default();
        summary.add("ib_write_bw -a", BANDWIDTH);
        let load = Load(0.25);
        assert_eq!(Summary::of_text(&summary.to_text(load)), Some((summary, load)));
        // A file without a load, of an older version, is measured again.
        assert_eq!(Summary::of_text("WRITE, 8 bytes\t1 M/s\n"), None);
        assert_eq!(load.to_string(), "begun at a load average of 0.25");
    }

    #[test]
    fn tables_are_read() {
        let mut summary = Summary::default();
        summary.add("ib_write_bw -a", BANDWIDTH);
        summary.add("ib_write_lat -s 2", LATENCY);
        summary.add("ibv_rc_pingpong", "8192000 bytes in 0.01 seconds = 1 Mbit/sec");
        summary.sort();
        let mut rxe = Summary::default();
        rxe.add("ib_write_lat -s 2", &LATENCY.replace("88.50", "456.70"));
        // The size is that of a rate.
        rxe.add("ib_write_lat -s 8", &LATENCY.replace("\n 2 ", "\n 8 "));
        rxe.add("ib_write_bw -s 65536", &BANDWIDTH.replace("6543.21", "13.10"));
        assert_eq!(
            summary.table("vrdma0", Some(("rxe0", &rxe))),
            "                                    vrdma0              rxe0   times as good\n\
             WRITE, 2 bytes                    88.50 us         456.70 us             5.2\n\
             WRITE, 2 bytes, 99.9 %           170.00 us         170.00 us             1.0\n\
             WRITE, 8 bytes                0.534512 M/s      0.534512 M/s             1.0\n\
             WRITE, 64 KiB                6543.21 MiB/s       13.10 MiB/s           499.5\n\
             WRITE, 8 MiB                 8999.99 MiB/s     8999.99 MiB/s             1.0"
        );
    }
}
