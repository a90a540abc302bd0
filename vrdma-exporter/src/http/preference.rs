//! The choice of a format by the field Accept (RFC 9110, clause 12.5.1).

use crate::exposition::Format;

/// Returns the format that a client likes best.
///
/// It is OpenMetrics only if the client names that. All clients get some format: Prometheus reads
/// the field Content-Type.
pub fn format<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Format {
    let (mut open, mut plain) = (0.0, 0.0);
    for field in fields.filter_map(|field| std::str::from_utf8(field).ok()) {
        for range in field.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(String, &str)> = parts
                .filter_map(|part| part.split_once('='))
                .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"')))
                .collect();
            let value = |name: &str| parameters.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
            let quality = value("q").map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0));
            let version = value("version");
            match media.as_str() {
                "application/openmetrics-text" if matches!(version, None | Some("1.0.0")) => {
                    open = quality.max(open);
                }
                "text/plain" if matches!(version, None | Some("0.0.4")) => plain = quality.max(plain),
                _ => {}
            }
        }
    }
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_they_like_best() {
        let of_prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let of_newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                        text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (field, expected) in [
            (of_prometheus, Format::OpenMetrics),
            (of_newer, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.5", Format::OpenMetrics),
            ("application/openmetrics-text; version=0.0.1", Format::Plain),
            ("application/openmetrics-text; q=0", Format::Plain),
            ("application/openmetrics-text; q=x", Format::Plain),
            ("application/openmetrics-text; q=0.4, text/plain; q=0.5", Format::Plain),
            ("text/plain", Format::Plain),
            ("text/html, */*;q=0.8", Format::Plain),
            ("", Format::Plain),
            (";;,,=;q", Format::Plain),
        ] {
            assert_eq!(format([field.as_bytes()].into_iter()), expected, "{field}");
        }
        assert_eq!(format(std::iter::empty()), Format::Plain);
        let two = ["text/plain;q=0.1", "application/openmetrics-text"];
        assert_eq!(format(two.into_iter().map(str::as_bytes)), Format::OpenMetrics);
        assert_eq!(format([&b"\xff"[..]].into_iter()), Format::Plain);
    }
}
