//! Reads a file of Rust.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Item, Path, PathSegment, QSelf, Signature, UseTree, Visibility};

use super::code::{self, Call, Code, Facts, Function, Import, Kind, Method, Named, Receiver};
use super::types::{is_other_name, name, type_name};
use super::{attributes, tokens};

/// What the text of a file says.
///
/// # Errors
/// It is no Rust.
pub fn read(text: &str) -> syn::Result<Code> {
    let file = syn::parse_file(text)?;
    let mut reader = Reader::default();
    reader.visit_file(&file);
    drop(file);
    // Else the next file's places would be looked for among those of all files before it.
    proc_macro2::extra::invalidate_current_thread_spans();
    Ok(reader.code)
}

/// Where it is in a file.
#[derive(Default)]
struct Reader {
    code: Code,
    /// The modules that are open.
    within: Vec<String>,
    /// What is here is not visible in other files.
    is_hidden: bool,
    /// The type or trait whose functions it reads.
    own: Option<String>,
    /// Only tests have it.
    is_of_tests: bool,
    /// It is in a module that only tests have.
    is_test_module: bool,
}

/// Words before the name of a type.
const TYPES: &[&str] = &["struct", "enum", "union", "type", "trait"];

/// Words before the name of another item.
const ITEMS: &[&str] = &["fn", "const", "static"];

impl Reader {
    /// Where facts belong at this place.
    fn facts(&mut self) -> &mut Facts {
        if self.is_of_tests { &mut self.code.tests } else { &mut self.code.product }
    }

    /// Reads what has these attributes.
    fn part(&mut self, attributes: &[Attribute], read: impl FnOnce(&mut Self)) {
        let before = self.is_of_tests;
        self.is_of_tests |= attributes::are_of_tests(attributes);
        read(self);
        self.is_of_tests = before;
    }

    /// Reads the functions of a type or trait.
    fn functions_of(&mut self, own: Option<String>, read: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.own, own);
        read(self);
        self.own = before;
    }

    fn add_item(&mut self, ident: &Ident) {
        let name = name(ident);
        self.facts().items.push(name);
    }

    fn add_type(&mut self, ident: &Ident, kind: Kind, visibility: &Visibility, attributes: &[Attribute]) {
        let is_visible = self.is_visible(visibility);
        let condition = attributes::condition(attributes);
        self.add_item(ident);
        self.facts().types.push(code::Type { name: name(ident), kind, is_visible, condition });
    }

    /// Whether other files can name what has this visibility here.
    fn is_visible(&self, visibility: &Visibility) -> bool {
        let is_visible = match visibility {
            Visibility::Public(_) => true,
            Visibility::Restricted(within) if within.path.is_ident("self") => false,
            // The module above is of this file, too.
            Visibility::Restricted(within) if within.path.is_ident("super") => self.within.is_empty(),
            Visibility::Restricted(_) => true,
            _ => false,
        };
        is_visible && !self.is_hidden
    }

    fn add_import(&mut self, path: &[String], rename: Option<&Ident>, is_public: bool, line: usize) {
        let last = path.last().cloned().unwrap_or_default();
        let name = rename.map_or(last, name);
        let import = Import { within: self.within.clone(), path: path.to_vec(), name, is_public, line };
        self.facts().imports.push(import);
    }

    /// Adds the names of a tree of imports below a path.
    fn add_imports(&mut self, tree: &UseTree, path: &mut Vec<String>, is_public: bool) {
        match tree {
            UseTree::Path(tree) => {
                path.push(name(&tree.ident));
                self.add_imports(&tree.tree, path, is_public);
                path.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_imports(tree, path, is_public));
            }
            UseTree::Name(tree) => self.add_name(&tree.ident, None, path, is_public),
            UseTree::Rename(tree) => self.add_name(&tree.ident, Some(&tree.rename), path, is_public),
            UseTree::Glob(tree) => {
                path.push("*".into());
                self.add_import(path, None, is_public, line(tree.star_token.span));
                path.pop();
            }
        }
    }

    fn add_name(&mut self, ident: &Ident, rename: Option<&Ident>, path: &mut Vec<String>, is_public: bool) {
        // That of the module itself.
        let is_self = ident == "self" && !path.is_empty();
        if !is_self {
            path.push(name(ident));
        }
        self.add_import(path, rename, is_public, line(ident.span()));
        if !is_self {
            path.pop();
        }
    }

    /// Adds a path, up to the first name that has arguments.
    fn add_path(&mut self, segments: &[&PathSegment]) {
        let Some(first) = segments.first() else { return };
        let mut names = Vec::new();
        for segment in segments {
            names.push(name(&segment.ident));
            if !segment.arguments.is_none() {
                break;
            }
        }
        self.add_names(names, line(first.ident.span()));
    }

    /// Adds a path of these names.
    fn add_names(&mut self, path: Vec<String>, line: usize) {
        let Some(first) = path.first() else { return };
        let first = first.clone();
        self.facts().names.insert(first);
        if path.len() > 1 {
            let within = self.within.clone();
            self.facts().paths.push(Named { within, path, line });
        }
    }

    /// Adds a function that is named behind its type, if it is one.
    fn add_associated(&mut self, of: &str, name: &Ident) {
        let of = match of {
            "Self" => self.own.clone(),
            _ => Some(of.to_owned()),
        };
        if let Some(of) = of.filter(|of| of.starts_with(char::is_uppercase)) {
            self.add_call(name, Receiver::Type(of));
        }
    }

    fn add_call(&mut self, ident: &Ident, on: Receiver) {
        let call = Call { name: name(ident), on, line: line(ident.span()) };
        self.facts().calls.push(call);
    }

    /// Adds a function with this body.
    fn add_function(&mut self, head: Span, open: Span, close: Span) {
        let (head, open, close) = (line(head), line(open), line(close));
        if !self.is_test_module && open < close {
            self.code.functions.push(Function { head, open, close });
        }
    }

    fn add_method(&mut self, signature: &Signature) {
        let method = Method {
            name: name(&signature.ident),
            of: self.own.clone(),
            takes_self: signature.receiver().is_some(),
        };
        self.facts().methods.push(method);
    }

    /// Reads a path of which the type `qself`, if there is one, has the names behind its position.
    fn qualified(&mut self, qself: Option<&QSelf>, path: &Path) {
        let Some(qself) = qself else { return self.visit_path(path) };
        self.visit_type(&qself.ty);
        let (of_trait, rest): (Vec<_>, Vec<_>) =
            path.segments.iter().enumerate().partition(|(at, _)| *at < qself.position);
        let of_trait: Vec<&PathSegment> = of_trait.into_iter().map(|(_, segment)| segment).collect();
        if path.leading_colon.is_none() {
            self.add_path(&of_trait);
        }
        if let (Some(of), [(_, segment), ..]) = (type_name(&qself.ty), rest.as_slice()) {
            self.add_associated(&of, &segment.ident);
        }
        path.segments.iter().for_each(|segment| self.visit_path_arguments(&segment.arguments));
    }

    /// Reads what a macro is given, or what stands in an attribute: as items if it is some, else by
    /// its names alone.
    fn tokens(&mut self, tokens: &TokenStream) {
        let mut words = tokens.clone().into_iter().filter_map(|token| match token {
            TokenTree::Ident(ident) => Some(ident.to_string()),
            _ => None,
        });
        let begins = ["pub", "struct", "enum", "fn", "impl", "static", "const", "mod", "use", "trait"];
        if words.next().is_some_and(|word| begins.contains(&word.as_str()))
            && let Ok(file) = syn::parse2::<syn::File>(tokens.clone())
        {
            file.items.iter().for_each(|item| self.visit_item(item));
        } else {
            let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
            self.loose(&tokens);
        }
    }

    /// Reads tokens that are no items.
    fn loose(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while at < tokens.len() {
            let (before, rest) = tokens.split_at(at);
            at += match &rest[0] {
                TokenTree::Group(group) => {
                    self.tokens(&group.stream());
                    1
                }
                TokenTree::Punct(punct) if punct.as_char() == '\'' => 2,
                TokenTree::Punct(punct) if punct.as_char() == ':' && tokens::is_colons(rest) => {
                    // A path from the roots of all crates on.
                    2 + if before.last().is_some_and(tokens::is_ident) {
                        0
                    } else {
                        tokens::path(&rest[2..]).1
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == '.' => self.loose_call(before, rest),
                TokenTree::Ident(ident) => self.loose_name(ident, before, rest),
                _ => 1,
            };
        }
    }

    /// Reads the name behind a dot; how many tokens that are.
    fn loose_call(&mut self, before: &[TokenTree], rest: &[TokenTree]) -> usize {
        let Some(TokenTree::Ident(ident)) = rest.get(1) else { return 1 };
        let is_call = matches!(rest.get(2), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
        if is_call || tokens::is_colons(rest.get(2..).unwrap_or_default()) {
            let is_own = match before {
                [.., TokenTree::Punct(dot), TokenTree::Ident(_)] if dot.as_char() == '.' => false,
                [.., TokenTree::Ident(of)] => of == "self",
                _ => false,
            };
            let on = if is_own { Receiver::Own(self.own.clone()) } else { Receiver::Value };
            self.add_call(ident, on);
        }
        2
    }

    /// Reads a name, and the path that it begins; how many tokens that are.
    fn loose_name(&mut self, ident: &Ident, before: &[TokenTree], rest: &[TokenTree]) -> usize {
        let word = before.last().and_then(|token| match token {
            TokenTree::Ident(word) => Some(word.to_string()),
            _ => None,
        });
        let is_pointer = matches!(before, [.., TokenTree::Punct(star), _] if star.as_char() == '*');
        match word.as_deref() {
            Some("fn") => {
                self.add_item(ident);
                self.loose_function(ident, before, rest);
            }
            Some(word) if TYPES.contains(&word) => {
                let visibility = if tokens::end_with_pub(&before[..before.len() - 1]) {
                    Visibility::Public(syn::token::Pub::default())
                } else {
                    Visibility::Inherited
                };
                let kind = if word == "trait" { Kind::Trait } else { Kind::Type };
                self.add_type(ident, kind, &visibility, &[]);
            }
            Some(word) if ITEMS.contains(&word) && !is_pointer && ident != "fn" => self.add_item(ident),
            _ => {}
        }
        let (path, length) = tokens::path(rest);
        if let [.., of, _] = path.as_slice()
            && let Some(TokenTree::Ident(last)) = rest.get(length - 1)
        {
            self.add_associated(of, last);
        }
        self.add_names(path, line(ident.span()));
        length
    }

    /// Reads the head of a function, whose name `rest` begins with.
    fn loose_function(&mut self, ident: &Ident, before: &[TokenTree], rest: &[TokenTree]) {
        let is = |token: &TokenTree, delimiter| matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter);
        let end = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
        let head: Vec<&TokenTree> = rest.iter().take_while(|token| !end(token)).collect();
        let parameters = head.iter().find(|token| is(token, Delimiter::Parenthesis));
        let takes_self = parameters.is_some_and(
            |token| matches!(token, TokenTree::Group(group) if tokens::begin_with_self(&group.stream())),
        );
        let method = Method { name: name(ident), of: self.own.clone(), takes_self };
        self.facts().methods.push(method);
        if let Some(TokenTree::Group(body)) = head.into_iter().find(|token| is(token, Delimiter::Brace)) {
            let begins = before.last().map_or_else(|| ident.span(), TokenTree::span);
            self.add_function(begins, body.span_open(), body.span_close());
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        self.part(attributes::of_item(item), |reader| visit::visit_item(reader, item));
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        self.part(attributes::of_impl_item(item), |reader| visit::visit_impl_item(reader, item));
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        self.part(attributes::of_trait_item(item), |reader| visit::visit_trait_item(reader, item));
    }

    fn visit_foreign_item(&mut self, item: &'ast syn::ForeignItem) {
        self.part(attributes::of_foreign_item(item), |reader| visit::visit_foreign_item(reader, item));
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        self.part(attributes::of_statement(statement), |reader| visit::visit_stmt(reader, statement));
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.part(&field.attrs, |reader| visit::visit_field(reader, field));
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.part(&field.attrs, |reader| visit::visit_field_value(reader, field));
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.part(&variant.attrs, |reader| visit::visit_variant(reader, variant));
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.part(&arm.attrs, |reader| visit::visit_arm(reader, arm));
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        self.part(attributes::of_expression(expression), |reader| visit::visit_expr(reader, expression));
    }

    fn visit_block(&mut self, block: &'ast Block) {
        let before = std::mem::replace(&mut self.is_hidden, true);
        visit::visit_block(self, block);
        self.is_hidden = before;
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_of_tests = attributes::are_of_tests(&module.attrs);
        let Some((brace, items)) = &module.content else {
            if is_of_tests {
                self.code.test_files.push(name(&module.ident));
            }
            return;
        };
        if is_of_tests && !self.is_test_module {
            let first = module.attrs.first().map_or(module.mod_token.span, |first| first.pound_token.span);
            self.code.test_modules.push((line(first), line(brace.span.close())));
        }
        let before = (self.is_hidden, self.is_test_module);
        self.is_hidden = !self.is_visible(&module.vis);
        self.is_test_module |= is_of_tests;
        self.within.push(name(&module.ident));
        items.iter().for_each(|item| self.visit_item(item));
        self.within.pop();
        (self.is_hidden, self.is_test_module) = before;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            let is_public = !matches!(item.vis, Visibility::Inherited);
            self.add_imports(&item.tree, &mut Vec::new(), is_public);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add_type(&item.ident, Kind::Type, &item.vis, &item.attrs);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add_type(&item.ident, Kind::Type, &item.vis, &item.attrs);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.add_type(&item.ident, Kind::Type, &item.vis, &item.attrs);
        visit::visit_item_union(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        let kind = if is_other_name(item) { Kind::Name } else { Kind::Type };
        self.add_type(&item.ident, kind, &item.vis, &item.attrs);
        visit::visit_item_type(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add_type(&item.ident, Kind::Trait, &item.vis, &item.attrs);
        let own = Some(name(&item.ident));
        self.functions_of(own, |reader| visit::visit_item_trait(reader, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let own = type_name(&item.self_ty);
        if item.trait_.is_none() {
            let of = own.clone();
            self.facts().impls.extend(of);
        }
        self.functions_of(own, |reader| visit::visit_item_impl(reader, item));
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.add_item(&item.ident);
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.add_item(&item.ident);
        visit::visit_item_static(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        item.ident.iter().for_each(|ident| self.add_item(ident));
        visit::visit_item_macro(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_item(&item.sig.ident);
        if item.sig.receiver().is_some() {
            // What a macro is given may be the inside of an `impl`.
            self.add_method(&item.sig);
        }
        self.visit_body(&item.vis, &item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add_method(&item.sig);
        self.visit_body(&item.vis, &item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.add_method(&item.sig);
        if let Some(block) = &item.default {
            self.visit_body(&Visibility::Inherited, &item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_foreign_item_fn(&mut self, item: &'ast syn::ForeignItemFn) {
        self.add_item(&item.sig.ident);
        visit::visit_foreign_item_fn(self, item);
    }

    fn visit_foreign_item_static(&mut self, item: &'ast syn::ForeignItemStatic) {
        self.add_item(&item.ident);
        visit::visit_foreign_item_static(self, item);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<&PathSegment> = path.segments.iter().collect();
        if path.leading_colon.is_none() {
            self.add_path(&segments);
        }
        if let [.., of, last] = segments.as_slice() {
            self.add_associated(&name(&of.ident), &last.ident);
        }
        segments.iter().for_each(|segment| self.visit_path_arguments(&segment.arguments));
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.qualified(path.qself.as_ref(), &path.path);
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        self.qualified(path.qself.as_ref(), &path.path);
    }

    fn visit_expr_struct(&mut self, expression: &'ast syn::ExprStruct) {
        self.qualified(expression.qself.as_ref(), &expression.path);
        expression.fields.iter().for_each(|field| self.visit_field_value(field));
        expression.rest.iter().for_each(|rest| self.visit_expr(rest));
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        // It may be a constant.
        let name = name(&pattern.ident);
        self.facts().names.insert(name);
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let on = match &*call.receiver {
            Expr::Path(path) if path.path.is_ident("self") => Receiver::Own(self.own.clone()),
            _ => Receiver::Value,
        };
        self.add_call(&call.method, on);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {
        // Who may see something uses nothing.
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if !["cfg", "doc"].iter().any(|name| attribute.path().is_ident(name)) {
            visit::visit_attribute(self, attribute);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(&call.tokens);
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.visit_path(&list.path);
        self.tokens(&list.tokens);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        // It is what syn made nothing of.
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        self.loose(&tokens);
    }
}

impl Reader {
    fn visit_body(&mut self, visibility: &Visibility, signature: &Signature, block: &Block) {
        let head = match visibility {
            Visibility::Public(word) => word.span,
            Visibility::Restricted(restricted) => restricted.pub_token.span,
            _ => signature.fn_token.span,
        };
        self.add_function(head, block.brace_token.span.open(), block.brace_token.span.close());
    }
}

fn line(span: Span) -> usize {
    span.start().line
}
