//! What a file of Rust says of itself and of others.

use std::collections::BTreeSet;

/// A file of Rust. Comments and literals are not in it.
#[derive(Default)]
pub struct Code {
    /// What the product has.
    pub product: Facts,
    /// What only tests have.
    pub tests: Facts,
    /// Names of the modules in other files that only tests have.
    pub test_files: Vec<String>,
    /// The lines of each module in this file that only tests have, from its first attribute on.
    pub test_modules: Vec<(usize, usize)>,
    /// Functions outside of these modules.
    pub functions: Vec<Function>,
}

/// What part of a file defines and uses.
#[derive(Default)]
pub struct Facts {
    pub imports: Vec<Import>,
    /// Paths of two names and more outside of imports. A path ends with the first name that has
    /// arguments.
    pub paths: Vec<Named>,
    /// First names of all paths outside of imports.
    pub names: BTreeSet<String>,
    /// Names of items.
    pub items: Vec<String>,
    /// Those items that are types.
    pub types: Vec<Type>,
    /// The types that have behaviour here, other than that of a trait.
    pub impls: Vec<String>,
    /// Functions of types and traits.
    pub methods: Vec<Method>,
    /// Calls of such functions.
    pub calls: Vec<Call>,
}

/// One name of a `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The modules of the file that it is in.
    pub within: Vec<String>,
    /// Its path as written; `*` is the last of those that import everything.
    pub path: Vec<String>,
    /// What it is called in the file.
    pub name: String,
    /// It is handed on (`pub use`).
    pub is_public: bool,
    /// The line that it stands in.
    pub line: usize,
}

/// A path outside of imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The modules of the file that it is in.
    pub within: Vec<String>,
    /// Its names.
    pub path: Vec<String>,
    /// The line that it begins in.
    pub line: usize,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Other files can name it.
    pub is_visible: bool,
    /// The condition of its attribute `cfg`, if it has one.
    pub condition: Option<String>,
}

/// Kinds of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A structure, enumeration or union, or an alias that says more than a name.
    Type,
    /// A trait.
    Trait,
    /// Another name of a type, which says nothing of its parameters.
    Name,
}

/// A function of a type or trait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// The type or trait. A macro may not say it.
    pub of: Option<String>,
    /// It is called on a value.
    pub takes_self: bool,
}

/// A call of a method, or the name of one behind that of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method's name.
    pub name: String,
    /// What it is called on.
    pub on: Receiver,
    /// The line of its name.
    pub line: usize,
}

/// What a method is called on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// `self`, which is of this type or trait if a macro does not hide it.
    Own(Option<String>),
    /// The type itself: `Type::name`.
    Type(String),
    /// Another value.
    Value,
}

/// A function with a body of its own lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The line that its head begins in, without attributes.
    pub head: usize,
    /// The line with the opening brace.
    pub open: usize,
    /// The line with the closing brace.
    pub close: usize,
}
