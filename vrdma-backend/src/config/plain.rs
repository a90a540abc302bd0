//! Plain words for serde's messages about values and keys.

use crate::nearest::nearest;

/// Puts a message of serde's into plain words, in one line.
///
/// A message that is not one of serde's about keys and types stays as it is.
pub fn plain(message: &str) -> String {
    let message = message.trim_end().replace('\n', ", ");
    let about_name = |kind: &str, word| {
        let (name, known) = message.strip_prefix(kind)?.strip_prefix('`')?.split_once('`')?;
        Some(unknown(word, name, &names(known)))
    };
    // In a flag, the key precedes the message about its value, or about a key of its table.
    let behind = |kind: &str, word| {
        let (before, rest) = message.split_at(message.find(kind)?);
        let (name, known) = rest.strip_prefix(kind)?.split_once('`')?;
        Some(format!("{before}{}", unknown(word, name, &names(known))))
    };
    about_name("unknown field ", "key")
        .or_else(|| missing(&message))
        .or_else(|| mistyped(&message))
        .or_else(|| behind("unknown variant `", "value"))
        .or_else(|| behind("unknown field `", "key"))
        .unwrap_or(message)
}

/// Returns the message for an unknown name.
pub fn unknown(kind: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("there is no {kind} {name}: did you mean {meant}?"),
        None => format!("there is no {kind} {name}: there are {}", known.join(", ")),
    }
}

/// Returns the names in backquotes, in their order.
fn names(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Translates `missing field `mac``.
fn missing(message: &str) -> Option<String> {
    let key = message.strip_prefix("missing field `")?.strip_suffix('`')?;
    Some(format!("the key {key} is missing"))
}

/// Translates `invalid type: string "200", expected u64`.
fn mistyped(message: &str) -> Option<String> {
    let is_value = message.strip_prefix("invalid value: ");
    let (found, wanted) = is_value.or(message.strip_prefix("invalid type: "))?.rsplit_once(", expected ")?;
    let (kind, value) = match found.split_once(' ') {
        Some((kind, value)) if !found.starts_with("floating") => (kind, value),
        Some((_, value)) => ("floating", value.trim_start_matches("point ")),
        None => (found, ""),
    };
    let found = match kind {
        "string" => format!("{value} is a text"),
        "integer" | "floating" => format!("{} is a number", value.trim_matches('`')),
        "boolean" => format!("{} is true or false", value.trim_matches('`')),
        "map" => "this is a table".into(),
        "sequence" => "this is a list".into(),
        _ => return None,
    };
    Some(format!("{found}; give {}", wanted_words(wanted)))
}

/// Returns what was expected, with the names of Rust's types in words.
fn wanted_words(wanted: &str) -> String {
    let most = match wanted {
        "u8" => u64::from(u8::MAX),
        "u16" => u16::MAX.into(),
        "u32" => u32::MAX.into(),
        // A TOML file has no larger numbers.
        "u64" => i64::MAX as u64,
        "f64" => return "a number, without quotes".into(),
        "a boolean" => return "true or false, without quotes".into(),
        "a string" | "path string" => return "a text, in quotes".into(),
        other => return other.strip_prefix("struct ").map_or(other.into(), |of| format!("a table of {of}")),
    };
    format!("a whole number from 0 to {most}, without quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_for_people() {
        for (serde, said) in [
            (
                "unknown field `soket`, expected one of `name`, `socket`",
                "there is no key soket: did you mean socket?",
            ),
            ("unknown field `x`, expected `name` or `socket`", "there is no key x: there are name, socket"),
            (
                "transport: unknown variant `rocee`, expected `roce` or `iwarp`",
                "transport: there is no value rocee: did you mean roce?",
            ),
            ("missing field `mac`", "the key mac is missing"),
            (
                "invalid type: string \"200\", expected u64",
                "\"200\" is a text; give a whole number from 0 to 9223372036854775807, without quotes",
            ),
            (
                "invalid type: floating point `1.5`, expected u16",
                "1.5 is a number; give a whole number from 0 to 65535, without quotes",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "-1 is a number; give a whole number from 0 to 4294967295, without quotes",
            ),
            (
                "invalid type: integer `1`, expected a boolean",
                "1 is a number; give true or false, without quotes",
            ),
            (
                "invalid type: boolean `true`, expected path string",
                "true is true or false; give a text, in quotes",
            ),
            ("invalid type: sequence, expected a string", "this is a list; give a text, in quotes"),
            ("it is given twice, and takes one value", "it is given twice, and takes one value"),
        ] {
            assert_eq!(plain(serde), said);
        }
    }
}
