//! What a file of Rust defines and uses, as `syn` parses it.

mod attributes;
mod code;
mod reader;
mod tokens;
mod types;

pub use code::{Code, Facts, Function, Import, Kind, Named, Receiver, Type};
pub use reader::read;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the product has of a file.
    fn product(text: &str) -> Facts {
        read(text).unwrap().product
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn paths(facts: &Facts) -> Vec<(Vec<String>, Vec<String>)> {
        facts.paths.iter().map(|named| (named.path.clone(), named.within.clone())).collect()
    }

    #[test]
    fn comments_and_literals_are_no_names() {
        let text = "m! { a /* b */ // c\n\"d \\\" \" b\"e\" r#\"f\"\"# 'g' '\\'' b'h' &'i j 'k::br }";
        assert_eq!(product(text).names.into_iter().collect::<Vec<_>>(), ["a", "br", "j", "m"]);
    }

    #[test]
    fn imports_are_trees() {
        let code = product(
            "use a::{b, c::{self, d as e, *}};\npub(crate) use super::f;\nfn x() -> impl Y + use<'a> {}",
        );
        let import = |path: &[&'static str], name, is_public| {
            let line = if is_public { 2 } else { 1 };
            Import { within: Vec::new(), path: strings(path), name: String::from(name), is_public, line }
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
        let code = product("fn f(x: &crate::a::B<c::D>) { E::<u8>::new(); <F as g::H>::i::j() }");
        let expected: [&[&str]; 3] = [&["crate", "a", "B"], &["c", "D"], &["g", "H"]];
        assert_eq!(paths(&code), expected.map(|path| (strings(path), Vec::new())));
        let code = product("mod m { fn f() { a::b() } mod n { use super::c; } } fn g() { d::e() }");
        let expected = [(strings(&["a", "b"]), strings(&["m"])), (strings(&["d", "e"]), Vec::new())];
        assert_eq!(paths(&code), expected);
        assert_eq!(code.imports[0].within, ["m", "n"]);
        let code = product("fn f() {}");
        assert_eq!(code.items, ["f"]);
    }

    #[test]
    fn behaviour_is_found_with_its_type() {
        let code = product(
            "struct A<T>(T);\nimpl<T: Fn(u8) -> u8> A<T> where T: B { fn f<'a>(&'a mut self) -> impl B { self.g::<u8>() } }\n\
             impl B for A<u8> { fn h(self) {} fn i(x: u8) { x.j(); } }\nimpl c::D<'_> {}\nunsafe impl Send for E {}",
        );
        assert_eq!(types(&code), ["A"]);
        assert_eq!(code.impls, ["A", "D"]);
        let methods: Vec<_> =
            code.methods.iter().map(|method| (method.name.as_str(), method.takes_self)).collect();
        assert_eq!(methods, [("f", true), ("h", true), ("i", false)]);
        assert!(code.methods.iter().all(|method| method.of.as_deref() == Some("A")));
        let calls: Vec<_> = code.calls.into_iter().map(|call| (call.name, call.on)).collect();
        let own = Receiver::Own(Some("A".into()));
        assert_eq!(calls, [("g".into(), own), ("j".into(), Receiver::Value)]);
    }

    #[test]
    fn an_alias_is_a_type_if_it_says_more_than_a_name() {
        let code = product(
            "type A<'a, R> = B<'a, R, u8>;\ntype C<R> = B<R>;\ntype D = B<E>;\ntype F = B;\ntype G = (u8, u8);",
        );
        assert_eq!(types(&code), ["A", "D"]);
    }

    /// Names of types, without traits and other names of types.
    fn types(facts: &Facts) -> Vec<&str> {
        let types = facts.types.iter().filter(|found| found.kind == Kind::Type);
        types.map(|found| found.name.as_str()).collect()
    }

    #[test]
    fn what_only_tests_have_does_not_count() {
        let code = product(
            "#[cfg(test)]\nuse a::b;\n#[cfg(all(test, loom))]\n#[path = \"x\"]\nmod m { use a::c; }\n\
             #[cfg(test)]\nfn f(x: [u8; 2]) { a::d() }\n#[cfg(not(test))]\nfn g() { a::e() }\nmod n {}",
        );
        assert!(code.imports.is_empty());
        assert_eq!(paths(&code), [(strings(&["a", "e"]), Vec::new())]);
        assert_eq!(code.items, ["g"]);
    }

    #[test]
    fn functions_of_a_type_are_called_by_its_name() {
        let code = product("impl A { fn f() { Self::g(); b::B::h(x); <C<u8>>::i(); d::j() } }");
        let calls: Vec<_> = code.calls.into_iter().map(|call| (call.name, call.on)).collect();
        let expected = [("g", "A"), ("h", "B"), ("i", "C")];
        assert_eq!(calls, expected.map(|(name, of)| (name.into(), Receiver::Type(of.into()))));
    }

    #[test]
    fn macros_are_read_too() {
        let code = product(
            "impl A { fn f(&self) { assert!(self.g(b::c) == x.h(), \"{}\", B::i()); } }\n\
             table! { pub enum C { D = e::F } }\n\
             macro_rules! m { ($a:ident) => { impl $a { fn k(&self) { self.l(); } } }; }",
        );
        let calls: Vec<_> = code.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(calls, ["g", "h", "i", "l"]);
        assert_eq!(
            paths(&code)[..2].iter().map(|(path, _)| path.join("::")).collect::<Vec<_>>(),
            ["b::c", "B::i"]
        );
        assert!(paths(&code).contains(&(strings(&["e", "F"]), Vec::new())));
        let types: Vec<_> = code.types.iter().map(|found| (found.name.as_str(), found.is_visible)).collect();
        assert_eq!(types, [("C", true)]);
        assert!(code.methods.iter().any(|method| method.name == "k" && method.takes_self));
    }

    #[test]
    fn types_are_visible_to_other_files_or_not() {
        let code = product(
            "pub struct A; pub(crate) enum B {} pub(super) trait C {} pub(in crate::a) type D = u8; struct E;\n\
             pub(self) union F { g: u8 } mod h { pub struct I; } pub mod j { pub struct K; pub(super) struct L; }\n\
             fn m() { pub struct N; }",
        );
        let visible = code.types.iter().filter(|found| found.is_visible);
        let visible: Vec<_> = visible.map(|found| found.name.as_str()).collect();
        assert_eq!(visible, ["A", "B", "C", "D", "K"]);
    }

    #[test]
    fn statements_and_fields_that_only_tests_have_are_of_the_tests() {
        let code = read(
            "struct A { #[cfg(test)] b: c::D, e: f::G }\n\
             fn h() { #[cfg(test)] i::j(); #[cfg(test)] { k::l(); } #[cfg(test)] (m.n += o::p()); q::r(); }\n\
             #[cfg(test)] mod s { fn t() { u::v() } }\n#[cfg(test)]\nmod w;",
        )
        .unwrap();
        assert_eq!(paths(&code.product).len(), 2);
        assert_eq!(paths(&code.tests).len(), 5);
        assert_eq!(code.test_files, ["w"]);
        assert_eq!(code.test_modules, [(3, 3)]);
    }
}
