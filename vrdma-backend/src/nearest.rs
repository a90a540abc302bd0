//! Suggests the name that a mistyped name stands for.

/// Returns the known name that is nearest to `name`, or `None` if none is near enough.
///
/// Near enough means: at most every third letter is wrong, missing, superfluous, or swapped with
/// its neighbour.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let far = |known: &str| strsim::damerau_levenshtein(&name, &known.to_lowercase());
    let (distance, nearest) =
        known.into_iter().map(|known| (far(known), known)).min_by_key(|(far, _)| *far)?;
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
    }
}
