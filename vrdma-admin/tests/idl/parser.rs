//! Parses the description of an interface in varlink's language.

use std::collections::BTreeMap;

/// The kind of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Bool,
    Int,
    Float,
    String,
    Object,
    Enum(Vec<String>),
    Struct(Vec<(String, Kind)>),
    Named(String),
    Maybe(Box<Kind>),
    Array(Box<Kind>),
}

/// A method.
#[derive(Debug)]
pub struct Signature {
    pub input: Vec<(String, Kind)>,
    pub output: Vec<(String, Kind)>,
}

/// An interface.
#[derive(Debug, Default)]
pub struct Description {
    pub name: String,
    pub types: BTreeMap<String, Kind>,
    pub methods: BTreeMap<String, Signature>,
    pub errors: BTreeMap<String, Vec<(String, Kind)>>,
}

/// Parses a description.
///
/// # Errors
/// It does not follow the language. The error tells what was found.
pub fn parse(text: &str) -> Result<Description, String> {
    let mut tokens = Tokens { all: tokens(text), at: 0 };
    let mut found = Description::default();
    tokens.expect("interface")?;
    found.name = tokens.word()?;
    while let Some(kind) = tokens.next() {
        let name = tokens.word()?;
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return Err(format!("{name} does not begin with a capital"));
        }
        let is_new = match kind.as_str() {
            "type" => found.types.insert(name.clone(), tokens.braces()?).is_none(),
            "error" => found.errors.insert(name.clone(), tokens.fields()?).is_none(),
            "method" => {
                let input = tokens.fields()?;
                tokens.expect("->")?;
                let output = tokens.fields()?;
                found.methods.insert(name.clone(), Signature { input, output }).is_none()
            }
            other => return Err(format!("{other} is no type, method or error")),
        };
        if !is_new {
            return Err(format!("{name} is there twice"));
        }
    }
    Ok(found)
}

/// Cuts a description into words and signs, without comments.
fn tokens(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut word = String::new();
    for line in text.lines() {
        let code = line.split('#').next().unwrap_or_default();
        for c in code.chars().chain([' ']) {
            let is_word = c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            if is_word {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                found.push(std::mem::take(&mut word));
            }
            match (c, found.last().map(String::as_str)) {
                ('>', Some("-")) => *found.last_mut().unwrap() = "->".into(),
                (']', Some("[")) => *found.last_mut().unwrap() = "[]".into(),
                (c, _) if !c.is_whitespace() => found.push(c.into()),
                _ => {}
            }
        }
    }
    found
}

struct Tokens {
    all: Vec<String>,
    at: usize,
}

impl Tokens {
    fn next(&mut self) -> Option<String> {
        let found = self.all.get(self.at).cloned();
        self.at += 1;
        found
    }

    fn peek(&self, ahead: usize) -> &str {
        self.all.get(self.at + ahead).map_or("", String::as_str)
    }

    fn word(&mut self) -> Result<String, String> {
        let word = self.next().ok_or("a name is missing at the end")?;
        let good = word.starts_with(|c: char| c.is_ascii_alphabetic());
        good.then_some(word.clone()).ok_or(format!("{word} is no name"))
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        let found = self.next().unwrap_or_default();
        (found == sign).then_some(()).ok_or(format!("{found} where {sign} has to be"))
    }

    fn fields(&mut self) -> Result<Vec<(String, Kind)>, String> {
        match self.braces()? {
            Kind::Struct(fields) => Ok(fields),
            other => Err(format!("{other:?} where fields have to be")),
        }
    }

    /// Parses the fields of a structure, or the names of an enumeration.
    fn braces(&mut self) -> Result<Kind, String> {
        self.expect("(")?;
        let is_enum = matches!(self.peek(1), "," | ")") && self.peek(0) != ")";
        let (mut names, mut fields) = (Vec::new(), Vec::new());
        while self.peek(0) != ")" {
            let name = self.word()?;
            if is_enum {
                names.push(name);
            } else {
                self.expect(":")?;
                fields.push((name, self.kind()?));
            }
            if self.peek(0) != ")" {
                self.expect(",")?;
            }
        }
        self.expect(")")?;
        Ok(if is_enum { Kind::Enum(names) } else { Kind::Struct(fields) })
    }

    fn kind(&mut self) -> Result<Kind, String> {
        if self.peek(0) == "(" {
            return self.braces();
        }
        Ok(match self.next().unwrap_or_default().as_str() {
            "?" => Kind::Maybe(Box::new(self.kind()?)),
            "[]" => Kind::Array(Box::new(self.kind()?)),
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "float" => Kind::Float,
            "string" => Kind::String,
            "object" => Kind::Object,
            name if name.starts_with(|c: char| c.is_ascii_uppercase()) => Kind::Named(name.into()),
            other => return Err(format!("{other} is no kind of value")),
        })
    }
}

#[test]
fn the_language_is_understood() {
    let text = "# c\ninterface org.x.y\ntype T (a: ?[]int, b: (one, two), c: T)\nmethod M() -> (t: []T)\nerror E (r: string)";
    let found = parse(text).unwrap();
    assert_eq!(found.name, "org.x.y");
    let Kind::Struct(fields) = &found.types["T"] else { panic!("{found:?}") };
    assert_eq!(fields[0].1, Kind::Maybe(Box::new(Kind::Array(Box::new(Kind::Int)))));
    assert_eq!(fields[1].1, Kind::Enum(vec!["one".into(), "two".into()]));
    assert!(found.methods["M"].input.is_empty() && found.errors["E"].len() == 1);
    for wrong in [
        "interface",
        "interface org.x\ntype t (a: int)",
        "interface org.x\ntype T (a: number)",
        "interface org.x\ntype T (a: int",
        "interface org.x\nmethod M() (a: int)",
        "interface org.x\ntype T (a: int)\ntype T (a: int)",
        "interface org.x\nvar X (a: int)",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
