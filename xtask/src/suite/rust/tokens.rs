//! Tokens of which it is not known what they are: what a macro is given.

use proc_macro2::{TokenStream, TokenTree};

use super::types::name;

/// Whether a token is a name.
pub fn is_ident(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Ident(_))
}

/// Whether tokens begin with `::`.
pub fn is_colons(tokens: &[TokenTree]) -> bool {
    let is =
        |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is(tokens.first()) && is(tokens.get(1))
}

/// The path that tokens begin with, and how many tokens it has.
pub fn path(tokens: &[TokenTree]) -> (Vec<String>, usize) {
    let (mut path, mut length) = (Vec::new(), 0);
    while let Some(TokenTree::Ident(ident)) = tokens.get(length) {
        path.push(name(ident));
        length += 1;
        let goes_on = is_colons(&tokens[length..]) && tokens.get(length + 2).is_some_and(is_ident);
        if !goes_on {
            break;
        }
        length += 2;
    }
    (path, length)
}

/// Whether tokens end with `pub`, or `pub(...)`.
pub fn end_with_pub(before: &[TokenTree]) -> bool {
    let is_pub = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word == "pub");
    match before {
        [.., word, TokenTree::Group(_)] => is_pub(word),
        [.., word] => is_pub(word),
        [] => false,
    }
}

/// Whether the parameters of a function begin with `self`.
pub fn begin_with_self(parameters: &TokenStream) -> bool {
    let mut words = parameters.clone().into_iter().filter_map(|token| match token {
        TokenTree::Ident(word) => Some(Some(word.to_string())),
        TokenTree::Punct(punct) if [',', ':'].contains(&punct.as_char()) => Some(None),
        _ => None,
    });
    words.by_ref().map_while(|word| word).any(|word| word == "self")
}
