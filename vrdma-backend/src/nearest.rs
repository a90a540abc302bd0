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

/// Says that something is not there, and which name was probably meant.
pub fn no_such(kind: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("there is no {kind} {name}: did you mean {meant}?"),
        None if known.is_empty() => format!("there is no {kind} {name}: there is none at all"),
        None => format!("there is no {kind} {name}: there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_told_with_the_nearest_name() {
        assert_eq!(no_such("guest", "vm1", &["vm2", "db"]), "there is no guest vm1: did you mean vm2?");
        assert_eq!(no_such("guest", "x", &["vm2", "db"]), "there is no guest x: there are vm2, db");
        assert_eq!(no_such("port", "x", &[]), "there is no port x: there is none at all");
    }

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
