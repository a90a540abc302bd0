//! Attributes of items, expressions and what else may have them.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ForeignItem, ImplItem, Item, Meta, Stmt, Token, TraitItem};

/// Whether only tests have what these attributes stand before.
pub fn are_of_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|attribute| attribute.parse_args::<Meta>().ok()).any(|meta| is_of_tests(&meta))
}

/// Whether a condition holds in tests alone.
fn is_of_tests(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
    let mut are_of_tests = parts.iter().map(is_of_tests);
    match condition.path() {
        path if path.is_ident("all") => are_of_tests.any(|is| is),
        path if path.is_ident("any") => are_of_tests.len() > 0 && are_of_tests.all(|is| is),
        _ => false,
    }
}

/// The condition of the first attribute `cfg`.
pub fn condition(attributes: &[Attribute]) -> Option<String> {
    let condition = attributes.iter().find(|attribute| attribute.path().is_ident("cfg"))?;
    Some(condition.meta.require_list().ok()?.tokens.to_string())
}

/// The attributes of an item.
pub fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item within `impl`.
pub fn of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item within a trait.
pub fn of_trait_item(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(item) => &item.attrs,
        TraitItem::Fn(item) => &item.attrs,
        TraitItem::Type(item) => &item.attrs,
        TraitItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item within `extern "C"`.
pub fn of_foreign_item(item: &ForeignItem) -> &[Attribute] {
    match item {
        ForeignItem::Fn(item) => &item.attrs,
        ForeignItem::Static(item) => &item.attrs,
        ForeignItem::Type(item) => &item.attrs,
        ForeignItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of a statement. Those of an expression and of an item are theirs.
pub fn of_statement(statement: &Stmt) -> &[Attribute] {
    match statement {
        Stmt::Local(local) => &local.attrs,
        Stmt::Macro(call) => &call.attrs,
        Stmt::Item(_) | Stmt::Expr(..) => &[],
    }
}

/// The attributes of an expression. Those before an assignment and the like are of its left side.
pub fn of_expression(expression: &Expr) -> &[Attribute] {
    match expression {
        Expr::Assign(expression) => of_expression(&expression.left),
        Expr::Binary(expression) => of_expression(&expression.left),
        Expr::Cast(expression) => of_expression(&expression.expr),
        Expr::Block(expression) => &expression.attrs,
        Expr::Break(expression) => &expression.attrs,
        Expr::Call(expression) => &expression.attrs,
        Expr::Closure(expression) => &expression.attrs,
        Expr::Continue(expression) => &expression.attrs,
        Expr::Field(expression) => &expression.attrs,
        Expr::ForLoop(expression) => &expression.attrs,
        Expr::If(expression) => &expression.attrs,
        Expr::Index(expression) => &expression.attrs,
        Expr::Lit(expression) => &expression.attrs,
        Expr::Loop(expression) => &expression.attrs,
        Expr::Macro(expression) => &expression.attrs,
        Expr::Match(expression) => &expression.attrs,
        Expr::MethodCall(expression) => &expression.attrs,
        Expr::Paren(expression) => &expression.attrs,
        Expr::Path(expression) => &expression.attrs,
        Expr::Return(expression) => &expression.attrs,
        Expr::Struct(expression) => &expression.attrs,
        Expr::Try(expression) => &expression.attrs,
        Expr::Tuple(expression) => &expression.attrs,
        Expr::Unary(expression) => &expression.attrs,
        Expr::Unsafe(expression) => &expression.attrs,
        Expr::While(expression) => &expression.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tests_have_says_so() {
        let of_tests =
            |text: &str| are_of_tests(of_item(&syn::parse_str(&format!("{text} fn f() {{}}")).unwrap()));
        for text in [
            "#[cfg(test)]",
            "#[inline] #[cfg(test)]",
            "#[cfg(all(test, not(loom)))]",
            "#[cfg(any(test, all(test, loom)))]",
        ] {
            assert!(of_tests(text), "{text}");
        }
        for text in [
            "",
            "#[cfg(not(test))]",
            "#[cfg(any(test, loom))]",
            "#[cfg(any())]",
            "#[cfg(feature = \"test\")]",
            "#[test]",
        ] {
            assert!(!of_tests(text), "{text}");
        }
    }

    #[test]
    fn the_condition_is_that_of_cfg() {
        let of = |text: &str| condition(of_item(&syn::parse_str(&format!("{text} fn f() {{}}")).unwrap()));
        assert_eq!(of("#[inline] #[cfg(not(a))]").as_deref(), Some("not (a)"));
        assert_eq!(of("#[inline]"), None);
    }
}
