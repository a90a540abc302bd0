//! Parsers for arguments that are not just a number.

/// Parses two processor numbers, such as `0,1`.
///
/// # Errors
/// The text is no valid pair.
pub fn processors(text: &str) -> Result<(usize, usize), String> {
    let two = text.split_once(',').and_then(|(ours, other)| Some((ours.parse().ok()?, other.parse().ok()?)));
    let two: (usize, usize) = two.ok_or("two numbers of processors, such as 0,1")?;
    let there = std::thread::available_parallelism().map_or(1, |n| n.get());
    match two {
        (ours, other) if ours == other => Err("each needs a processor of its own".into()),
        (ours, other) if ours.max(other) >= 1024 => Err(format!("there are {there}")),
        two => Ok(two),
    }
}

/// Parses a duration.
///
/// # Errors
/// The duration is not from 0.01 to 3600 seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.01 to 3600".into()),
    }
}
