//! What a file of Rust names: its imports and paths, by its tokens.

/// A file of Rust as far as it says what it uses. Comments, literals and what only tests have are
/// not in it.
#[derive(Default)]
pub struct Code<'a> {
    pub imports: Vec<Import<'a>>,
    /// Paths of two names and more outside of imports, each with the modules of the file that it is
    /// in.
    pub paths: Vec<(Vec<&'a str>, Vec<&'a str>)>,
    /// All names outside of imports.
    pub names: Vec<&'a str>,
    /// Names of items that it defines.
    pub items: Vec<&'a str>,
    /// Those of them that are types.
    pub types: Vec<&'a str>,
    /// The types that have behaviour in it, other than that of a trait.
    pub impls: Vec<&'a str>,
    /// Methods that it defines.
    pub methods: Vec<&'a str>,
    /// Methods that it calls, other than on `self`.
    pub calls: Vec<&'a str>,
    /// Methods that it calls on `self`.
    pub own_calls: Vec<&'a str>,
}

/// One name of a `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import<'a> {
    /// The modules of the file that it is in.
    pub within: Vec<&'a str>,
    /// Its path as written; `*` is the last of those that import everything.
    pub path: Vec<&'a str>,
    /// What it is called in the file.
    pub name: &'a str,
    /// It is handed on (`pub use`).
    pub is_public: bool,
}

/// Words before the name of a type.
const TYPES: &[&str] = &["struct", "enum", "union", "type"];

/// Words before the name of an item.
const ITEMS: &[&str] = &["struct", "enum", "union", "fn", "trait", "type", "const", "static"];

impl<'a> Code<'a> {
    pub fn new(text: &'a str) -> Code<'a> {
        let tokens = without_tests(&tokens(text));
        let mut code = Code { impls: impls(&tokens), ..Code::default() };
        code.methods(&tokens);
        // The modules that are open, with the depth of their braces.
        let (mut within, mut depth) = (Vec::new(), 0_usize);
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            at += match rest {
                ["mod", name, "{", ..] => {
                    depth += 1;
                    within.push((*name, depth));
                    3
                }
                // A declaration is no use.
                ["mod", ..] => 2,
                ["{", ..] => {
                    depth += 1;
                    1
                }
                ["}", ..] => {
                    within.retain(|(_, open)| *open < depth);
                    depth = depth.saturating_sub(1);
                    1
                }
                // `use<'a>` is a bound.
                ["use", next, ..] if *next != "<" => {
                    let length = rest.iter().position(|token| *token == ";").unwrap_or(rest.len());
                    let within = within.iter().map(|(name, _)| *name).collect();
                    code.import(
                        &mut &rest[1..length],
                        Import { within, path: Vec::new(), name: "", is_public: is_public(&tokens[..at]) },
                    );
                    length
                }
                [name, ..] if is_name(name) => {
                    // `*const T` is no item, and `const fn` not its name.
                    let before = &tokens[..at];
                    let is_item = matches!(before, [.., word] if ITEMS.contains(word));
                    if is_item && !ITEMS.contains(name) && !before.ends_with(&["*", "const"]) {
                        code.items.push(name);
                        let is_type = matches!(before, [.., word] if TYPES.contains(word));
                        if is_type && !(before.ends_with(&["type"]) && is_other_name(&rest[1..])) {
                            code.types.push(name);
                        }
                    }
                    code.path(rest, &within)
                }
                ["::", ..] => {
                    1 + rest[1..].iter().take_while(|token| is_name(token) || **token == "::").count()
                }
                _ => 1,
            };
        }
        code
    }

    /// Adds the methods that these tokens define, and those that they call.
    fn methods(&mut self, tokens: &[&'a str]) {
        for (at, token) in tokens.iter().enumerate() {
            let rest = &tokens[at + 1..];
            match (*token, rest) {
                ("self", [".", name, "(" | "::", ..]) if is_name(name) => self.own_calls.push(name),
                (".", [name, "(" | "::", ..]) if is_name(name) && !tokens[..at].ends_with(&["self"]) => {
                    self.calls.push(name);
                }
                ("fn", [name, after @ ..]) if takes_self(after) => self.methods.push(name),
                _ => {}
            }
        }
    }

    /// Adds the names of a tree of imports below `prefix`, and takes it from `tokens`.
    fn import(&mut self, tokens: &mut &[&'a str], prefix: Import<'a>) {
        let mut import = prefix;
        let mut name = None;
        while let Some((&token, rest)) = tokens.split_first() {
            match token {
                "," | "}" => break,
                "{" => {
                    *tokens = rest;
                    while !matches!(tokens.first(), None | Some(&"}")) {
                        self.import(tokens, import.clone());
                        *tokens = tokens.strip_prefix(&[","]).unwrap_or(tokens);
                    }
                    *tokens = tokens.get(1..).unwrap_or_default();
                    return;
                }
                "as" => name = rest.first().copied(),
                "self" if !import.path.is_empty() => {}
                _ if token != "::" && name.is_none() => import.path.push(token),
                _ => {}
            }
            *tokens = rest;
        }
        if let Some(name) = name.or(import.path.last().copied()) {
            self.imports.push(Import { name, ..import });
        }
    }

    /// Adds the path that these tokens begin with; how many tokens it has.
    fn path(&mut self, tokens: &[&'a str], within: &[(&'a str, usize)]) -> usize {
        let mut path = vec![tokens[0]];
        while let Some(["::", name]) = tokens.get(2 * path.len() - 1..2 * path.len() + 1)
            && is_name(name)
        {
            path.push(name);
        }
        let length = 2 * path.len() - 1;
        self.names.push(path[0]);
        if path.len() > 1 {
            self.paths.push((path, within.iter().map(|(name, _)| *name).collect()));
        }
        length
    }
}

/// Whether these tokens, behind the name of an alias, make it another name of a type and say
/// nothing of its parameters.
fn is_other_name(tokens: &[&str]) -> bool {
    let own = generics(tokens);
    let parameters: Vec<&str> = tokens[..own].iter().copied().filter(|token| is_name(token)).collect();
    let end = tokens.iter().position(|token| *token == ";").unwrap_or(tokens.len());
    let of = tokens.get(own + 1..end).unwrap_or_default();
    let arguments = of.iter().skip_while(|token| **token != "<").filter(|token| is_name(token));
    arguments.into_iter().all(|token| parameters.contains(token))
}

/// Whether these tokens, behind the name of a function, have it take `self`.
fn takes_self(tokens: &[&str]) -> bool {
    let rest = &tokens[generics(tokens)..];
    let parameters = rest.strip_prefix(&["("]).unwrap_or_default();
    let mut words = parameters.iter().skip_while(|token| ["&", "mut"].contains(token));
    words.next() == Some(&"self")
}

/// The types of `impl TYPE { ... }` in these tokens.
fn impls<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        // Elsewhere `impl` is a type.
        let begins = matches!(tokens[..at].last(), None | Some(&("}" | ";" | "]" | "{" | "unsafe")));
        if *token != "impl" || !begins {
            continue;
        }
        let mut rest = &tokens[at + 1..];
        rest = &rest[generics(rest)..];
        let mut name = None;
        loop {
            match rest {
                ["<", ..] => rest = &rest[generics(rest)..],
                ["{" | "where", ..] => {
                    found.extend(name);
                    break;
                }
                // That of a trait.
                ["for", ..] | [] => break,
                [word, ..] => {
                    name = if is_name(word) { Some(*word) } else { name };
                    rest = &rest[1..];
                }
            }
        }
    }
    found
}

/// How many tokens the generics have that these begin with, if they do.
fn generics(tokens: &[&str]) -> usize {
    if tokens.first() != Some(&"<") {
        return 0;
    }
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "<" => depth += 1,
            // `->` closes nothing.
            ">" if at > 0 && tokens[at - 1] != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Whether what follows these tokens is `pub`, or `pub(...)`.
fn is_public(before: &[&str]) -> bool {
    match before {
        [.., "pub"] => true,
        [.., ")"] => {
            let open = before.iter().rposition(|token| *token == "(");
            open.is_some_and(|open| before[..open].last() == Some(&"pub"))
        }
        _ => false,
    }
}

/// The tokens without items that only tests have.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let (mut kept, mut rest) = (Vec::new(), tokens);
    while let Some(&token) = rest.first() {
        let length = for_tests(rest);
        if length == 0 {
            kept.push(token);
        }
        rest = &rest[length.max(1)..];
    }
    kept
}

/// The parts of these tokens that only tests have.
pub fn test_code<'t, 'a>(tokens: &'t [&'a str]) -> Vec<&'t [&'a str]> {
    let (mut found, mut rest) = (Vec::new(), tokens);
    while !rest.is_empty() {
        let length = for_tests(rest);
        if length > 0 {
            found.push(&rest[..length]);
        }
        rest = &rest[length.max(1)..];
    }
    found
}

/// How many tokens the item has that these begin with, if only tests have it; else 0.
fn for_tests(tokens: &[&str]) -> usize {
    if !is_for_tests(tokens) {
        return 0;
    }
    let mut rest = &tokens[attribute(tokens)..];
    while rest.starts_with(&["#", "["]) {
        rest = &rest[attribute(rest)..];
    }
    tokens.len() - rest[item(rest)..].len()
}

/// Whether these tokens begin with `#[cfg(test)]`, or one with further conditions.
fn is_for_tests(tokens: &[&str]) -> bool {
    let condition = tokens.strip_prefix(&["#", "[", "cfg", "("]);
    let is_test = |condition: &[&str]| {
        let end = condition.iter().position(|token| *token == "]").unwrap_or_default();
        condition[..end].contains(&"test")
            && !condition[..end].iter().any(|word| ["not", "any"].contains(word))
    };
    condition.is_some_and(is_test)
}

/// How many tokens the attribute has that these begin with.
fn attribute(tokens: &[&str]) -> usize {
    tokens.iter().position(|token| *token == "]").map_or(tokens.len(), |end| end + 1)
}

/// How many tokens the item has that these begin with: up to its semicolon, or the end of its body.
fn item(tokens: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            // The end of what it is in: it is a field, or an arm.
            ")" | "]" | "}" if depth == 0 => return at,
            "}" if depth == 1 => return at + 1,
            ")" | "]" | "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Names, `::`, and each other character that is neither space nor part of a comment or a literal.
pub fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (length, is_token) = if let Some(length) = comment(rest).or_else(|| literal(rest)) {
            (length, false)
        } else if word > 0 {
            (word, true)
        } else if rest.starts_with("::") {
            (2, true)
        } else {
            (first.len_utf8(), !first.is_whitespace())
        };
        if is_token {
            found.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    found
}

/// Bytes of the comment that a text begins with.
fn comment(text: &str) -> Option<usize> {
    let end = |mark: &str| text.find(mark).map_or(text.len(), |at| at + mark.len());
    if text.starts_with("//") { Some(end("\n")) } else { text.starts_with("/*").then(|| end("*/")) }
}

/// Bytes of the string, character or lifetime that a text begins with.
fn literal(text: &str) -> Option<usize> {
    let raw = text.strip_prefix("br").or_else(|| text.strip_prefix('r'));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let mark = format!("\"{}", &raw[..hashes]);
            let begin = text.len() - raw.len() + hashes + 1;
            return Some(text[begin..].find(&mark).map_or(text.len(), |at| begin + at + mark.len()));
        }
    }
    let quote = text.strip_prefix(['b', 'c']).unwrap_or(text);
    let before = text.len() - quote.len();
    let mut characters = quote.char_indices();
    match characters.next()?.1 {
        '"' => {}
        '\'' => {
            let mut two = quote[1..].chars();
            let first = two.next();
            if first != Some('\\') && two.next() != Some('\'') {
                let lifetime = quote[1..].find(|c: char| !(c.is_alphanumeric() || c == '_'));
                return (before == 0).then_some(1 + lifetime.unwrap_or(quote.len() - 1));
            }
        }
        _ => return None,
    }
    let closing = quote.as_bytes()[0] as char;
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == closing {
            return Some(before + at + 1);
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_tokens() {
        let text = "a /* b */ // c\n\"d \\\" \" b\"e\" r#\"f\"\"# 'g' '\\'' b'h' &'i j 'k::br";
        assert_eq!(tokens(text), ["a", "&", "j", "::", "br"]);
    }

    #[test]
    fn imports_are_trees() {
        let code = Code::new(
            "use a::{b, c::{self, d as e, *}};\npub(crate) use super::f;\nfn x() -> impl Y + use<'a> {}",
        );
        let import = |path: &[&'static str], name, is_public| {
            let (within, path) = (Vec::new(), path.to_vec());
            Import { within, path, name, is_public }
        };
        let expected = [
            import(&["a", "b"], "b", false),
            import(&["a", "c"], "c", false),
            import(&["a", "c", "d"], "e", false),
            import(&["a", "c", "*"], "*", false),
            import(&["super", "f"], "f", true),
        ];
        assert_eq!(code.imports, expected);
        assert_eq!(code.items, ["x"]);
    }

    #[test]
    fn paths_are_found_wherever_they_are() {
        let code = Code::new("fn f(x: &crate::a::B<c::D>) { E::<u8>::new(); <F as g::H>::i::j() }");
        let expected: [&[&str]; 3] = [&["crate", "a", "B"], &["c", "D"], &["g", "H"]];
        assert_eq!(code.paths, expected.map(|path| (path.to_vec(), Vec::new())));
        let code = Code::new("mod m { fn f() { a::b() } mod n { use super::c; } } fn g() { d::e() }");
        assert_eq!(code.paths, [(vec!["a", "b"], vec!["m"]), (vec!["d", "e"], Vec::new())]);
        assert_eq!(code.imports[0].within, ["m", "n"]);
        let code = Code::new("fn f() {}");
        assert_eq!(code.items, ["f"]);
    }

    #[test]
    fn behaviour_is_found_with_its_type() {
        let code = Code::new(
            "struct A<T>(T);\nimpl<T: Fn(u8) -> u8> A<T> where T: B { fn f<'a>(&'a mut self) -> impl B { self.g::<u8>() } }\n\
             impl B for A<u8> { fn h(self) {} fn i(x: u8) { x.j(); } }\nimpl c::D<'_> {}\nunsafe impl Send for E {}",
        );
        assert_eq!(code.types, ["A"]);
        assert_eq!(code.impls, ["A", "D"]);
        assert_eq!(code.methods, ["f", "h"]);
        assert_eq!((code.calls, code.own_calls), (vec!["j"], vec!["g"]));
    }

    #[test]
    fn an_alias_is_a_type_if_it_says_more_than_a_name() {
        let code = Code::new(
            "type A<'a, R> = B<'a, R, u8>;\ntype C<R> = B<R>;\ntype D = B<E>;\ntype F = B;\ntype G = (u8, u8);",
        );
        assert_eq!(code.types, ["A", "D"]);
    }

    #[test]
    fn what_only_tests_have_does_not_count() {
        let code = Code::new(
            "#[cfg(test)]\nuse a::b;\n#[cfg(all(test, loom))]\n#[path = \"x\"]\nmod m { use a::c; }\n\
             #[cfg(test)]\nfn f(x: [u8; 2]) { a::d() }\n#[cfg(not(test))]\nfn g() { a::e() }\nmod n {}",
        );
        assert!(code.imports.is_empty());
        assert_eq!(code.paths, [(vec!["a", "e"], Vec::new())]);
        assert_eq!(code.items, ["g"]);
    }
}
