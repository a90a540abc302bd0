//! The attribute `vm_test`, which declares a test in VMs where its function stands.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, ItemFn, LitStr, Result, Token, parenthesized};

/// Declares a test in VMs. A function with several of these attributes is several tests.
///
/// The name comes first and begins with `vm-`. One of these says where the test runs:
///
/// - `lab = LAB`: in a pair of VMs of this kind, a variant of `Lab`. The function takes
///   `&mut Pair`.
/// - `alone`: in VMs that the test boots itself. The function takes no pair.
///
/// These are optional:
///
/// - `needs = NEEDS`: what the test cannot do without, a variant of `Needs`; the default is `Rdma`.
/// - `long`: the test runs with `--long` only.
/// - `disturbs`: the VMs are not afterwards what they were. The test runs behind those that leave
///   its pair as it is.
/// - `args(ARGUMENTS)`: what the function takes behind the pair.
///
/// ```text
/// #[vm_test("vm-cm", lab = Usual, args(Family::Cm))]
/// #[vm_test("vm-sockets", lab = TwoHosts, long, args(Family::Sockets))]
/// fn short_form(pair: &mut Pair, family: Family) -> Result<()> { .. }
/// ```
#[proc_macro_attribute]
pub fn vm_test(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let item = TokenStream::from(item);
    let declared = declare(attribute.into(), item.clone()).unwrap_or_else(Error::into_compile_error);
    quote! { #item #declared }.into()
}

/// What an attribute says.
struct Declaration {
    name: LitStr,
    /// None: it runs alone.
    lab: Option<Ident>,
    needs: Ident,
    long: bool,
    disturbs: bool,
    arguments: Punctuated<Expr, Token![,]>,
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: LitStr = input.parse()?;
        if !name.value().starts_with("vm-") {
            return Err(Error::new(name.span(), "the name of a test in VMs begins with `vm-`"));
        }
        let span = name.span();
        let needs = Ident::new("Rdma", Span::call_site());
        let mut declaration =
            Self { name, lab: None, needs, long: false, disturbs: false, arguments: Punctuated::new() };
        let mut alone = false;
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "lab" => declaration.lab = Some(value(input)?),
                "needs" => declaration.needs = value(input)?,
                "alone" => alone = true,
                "long" => declaration.long = true,
                "disturbs" => declaration.disturbs = true,
                "args" => {
                    let arguments;
                    parenthesized!(arguments in input);
                    declaration.arguments = Punctuated::parse_terminated(&arguments)?;
                }
                _ => {
                    let keys = "there are `lab`, `alone`, `needs`, `long`, `disturbs` and `args`";
                    return Err(Error::new(key.span(), keys));
                }
            }
        }
        if alone == declaration.lab.is_some() {
            return Err(Error::new(span, "a test runs in a pair, `lab = LAB`, or `alone`"));
        }
        Ok(declaration)
    }
}

/// A variant behind `=`.
fn value(input: ParseStream<'_>) -> Result<Ident> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// The element of the slice of all tests that a declaration stands for.
fn declare(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function = syn::parse2::<ItemFn>(item)?.sig.ident;
    let Declaration { name, lab, needs, long, disturbs, arguments } = syn::parse2(attribute)?;
    let run = match (&lab, arguments.is_empty()) {
        (Some(_), true) => quote! { InPair(#function) },
        (Some(_), false) => quote! { InPair(|pair| #function(pair, #arguments)) },
        (None, true) => quote! { Alone(#function) },
        (None, false) => quote! { Alone(|| #function(#arguments)) },
    };
    let lab = lab.map_or_else(|| quote! { Usual }, ToTokens::into_token_stream);
    Ok(quote! {
        const _: () = {
            #[::linkme::distributed_slice(crate::test::TESTS)]
            static TEST: crate::test::VmTest = crate::test::VmTest {
                name: #name,
                needs: crate::test::Needs::#needs,
                lab: crate::lab::Lab::#lab,
                long: #long,
                disturbs: #disturbs,
                run: crate::test::Run::#run,
                module: ::core::module_path!(),
                line: ::core::line!(),
            };
        };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a declaration of the function `f` becomes, without spaces.
    fn declared(attribute: &str) -> std::result::Result<String, String> {
        let attribute = attribute.parse().expect("it is made of tokens");
        let tokens = declare(attribute, quote! { fn f(pair: &mut Pair) -> Result<()> { g(pair) } });
        tokens.map(|tokens| tokens.to_string().replace(' ', "")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_declaration_says_all_of_a_test() {
        let test = declared("\"vm-a\", lab = TwoHosts").unwrap();
        for field in [
            "name:\"vm-a\"",
            "needs:crate::test::Needs::Rdma",
            "lab:crate::lab::Lab::TwoHosts",
            "long:false",
            "disturbs:false",
            "run:crate::test::Run::InPair(f)",
        ] {
            assert!(test.contains(&format!("{field},")), "{field} is not in {test}");
        }
        let test = declared("\"vm-a\", alone, needs = Vms, long, disturbs, args(A::B, 2),").unwrap();
        for field in ["Needs::Vms", "long:true", "disturbs:true", "run:crate::test::Run::Alone(||f(A::B,2))"]
        {
            assert!(test.contains(field), "{field} is not in {test}");
        }
        let test = declared("\"vm-a\", lab = Usual, args(&[1])").unwrap();
        assert!(test.contains("InPair(|pair|f(pair,&[1]))"), "{test}");
    }

    #[test]
    fn a_declaration_that_says_nonsense_is_refused() {
        for (attribute, why) in [
            ("\"ping\", lab = Usual", "the name of a test in VMs begins with `vm-`"),
            ("\"vm-a\"", "a test runs in a pair, `lab = LAB`, or `alone`"),
            ("\"vm-a\", lab = Usual, alone", "a test runs in a pair, `lab = LAB`, or `alone`"),
            ("\"vm-a\", lab = Usual, quick", "there are `lab`, "),
        ] {
            let error = declared(attribute).unwrap_err();
            assert!(error.starts_with(why), "{attribute}: {error}");
        }
    }
}
