//! What a type is called.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::{GenericArgument, PathArguments, Type};

/// A name, without the `r#` of one that is a word of the language.
pub fn name(ident: &Ident) -> String {
    ident.unraw().to_string()
}

/// The last name of a type that is a path.
pub fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => Some(name(&path.path.segments.last()?.ident)),
        Type::Reference(reference) => type_name(&reference.elem),
        Type::Group(group) => type_name(&group.elem),
        Type::Paren(paren) => type_name(&paren.elem),
        _ => None,
    }
}

/// Whether an alias is another name of a type and says nothing of its parameters.
pub fn is_other_name(alias: &syn::ItemType) -> bool {
    let Type::Path(path) = &*alias.ty else { return true };
    let parameters: Vec<String> = alias
        .generics
        .params
        .iter()
        .map(|parameter| match parameter {
            syn::GenericParam::Lifetime(lifetime) => name(&lifetime.lifetime.ident),
            syn::GenericParam::Type(parameter) => name(&parameter.ident),
            syn::GenericParam::Const(parameter) => name(&parameter.ident),
        })
        .collect();
    let is_own = |argument: &GenericArgument| match argument {
        GenericArgument::Lifetime(_) => true,
        GenericArgument::Type(Type::Path(path)) => {
            path.path.get_ident().is_some_and(|ident| parameters.contains(&name(ident)))
        }
        _ => false,
    };
    path.path.segments.iter().all(|segment| match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.iter().all(is_own),
        arguments => arguments.is_none(),
    })
}
