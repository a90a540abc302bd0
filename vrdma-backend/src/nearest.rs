//! Suggests the name that a mistyped name stands for.

/// Length in bytes of the longest name for which another one is suggested.
const LONGEST: usize = 256;

/// Returns the known name that is nearest to `name`, or `None` if none is near enough.
///
/// Near enough means: at most every third letter is wrong, missing, superfluous, or swapped with
/// its neighbour.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Names of other lengths cannot be near enough. A comparison takes time for each pair of
    // letters, and names may come from clients.
    let is_alike = |known: &&str| 3 * known.len().abs_diff(name.len()) <= known.len().max(name.len());
    if name.len() > LONGEST {
        return None;
    }
    let lower = name.to_lowercase();
    let far = |known: &str| strsim::damerau_levenshtein(&lower, &known.to_lowercase());
    let known = known.into_iter().filter(is_alike);
    let (distance, nearest) = known.map(|known| (far(known), known)).min_by_key(|(far, _)| *far)?;
    (3 * distance <= nearest.len().max(name.len())).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_or_two_may_be_wrong() {
        let known = ["poll_us", "socket", "socket_mode", "mtu", "tcp"];
        for (typed, meant) in [
            ("pol_us", Some("poll_us")),
            ("soket", Some("socket")),
            ("SOCKET", Some("socket")),
            ("mut", Some("mtu")),
            ("socketmode", Some("socket_mode")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
        assert_eq!(nearest("mtu", []), None);
        let long = "x".repeat(300);
        assert_eq!(nearest(&long, [&long[1..]]), None);
    }
}
