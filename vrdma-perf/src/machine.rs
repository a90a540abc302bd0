//! The machine that runs a measurement.

use std::fs;

/// Describes in a line the date, the processors, the kernel and the page size.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let there = std::thread::available_parallelism().map_or(1, |n| n.get());
    let cpuinfo = read("/proc/cpuinfo");
    let model = field(&cpuinfo, "model name").unwrap_or("a processor without a name");
    let shared = if cpuinfo.contains(" hypervisor") { ", in a virtual machine" } else { "" };
    let pages = match huge_pages() {
        0 => "4 KiB (no huge page is free: sysctl vm.nr_hugepages=1024)".to_owned(),
        free => format!("2 MiB ({free} are free)"),
    };
    format!(
        "{}: {there} x {model}{shared}, Linux {}; guests' memory in pages of {pages}.",
        today(),
        kernel.trim()
    )
}

/// Returns the number of free huge pages of 2 MiB.
pub fn huge_pages() -> u64 {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// Returns a field of `/proc/cpuinfo`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':').map(|(_, value)| value.trim()))
}

/// Returns the date in UTC, as YEAR-MONTH-DAY.
fn today() -> String {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let (year, month, day) = date((since.as_secs() / 86_400) as i64);
    format!("{year}-{month:02}-{day:02}")
}

/// Returns the date of a day, counted from 1970. Internally years begin in March, so that the leap
/// day is the last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(20_781), (2026, 11, 24));
    }

    #[test]
    fn the_processor_has_its_name() {
        assert_eq!(field("a: 1\nmodel name\t: AMD EPYC\n", "model name"), Some("AMD EPYC"));
        assert_eq!(field("", "model name"), None);
    }
}
