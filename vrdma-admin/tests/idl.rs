//! Compares the types with the descriptions of the interfaces.
//!
//! A value of each type is made by the description, parsed into the type, and emitted again. Both
//! are equal only if the type has the description's fields, and no others.

#[path = "idl/parser.rs"]
mod parser;

use parser::{Description, Kind, parse};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use vrdma_admin::{Fault, INTERFACES, Interface, Method, interface};

/// A way to make one value of a kind: which variant of each enumeration, and whether optional
/// values are there.
#[derive(Clone, Copy)]
struct Choice {
    variant: usize,
    is_there: bool,
}

fn value(kind: &Kind, description: &Description, choice: Choice) -> Value {
    match kind {
        Kind::Bool => true.into(),
        Kind::Int => 7.into(),
        Kind::Float => 0.5.into(),
        Kind::String => "text".into(),
        Kind::Object => Map::from_iter([("key".to_owned(), 1.into())]).into(),
        Kind::Enum(names) => names[choice.variant % names.len()].clone().into(),
        Kind::Struct(fields) => object(fields, description, choice),
        Kind::Named(name) => {
            let found = description.types.get(name).unwrap_or_else(|| panic!("there is no type {name}"));
            value(found, description, choice)
        }
        Kind::Maybe(inner) if choice.is_there => value(inner, description, choice),
        Kind::Maybe(_) => Value::Null,
        Kind::Array(inner) => vec![value(inner, description, choice)].into(),
    }
}

fn object(fields: &[(String, Kind)], description: &Description, choice: Choice) -> Value {
    let fields = fields.iter().map(|(name, kind)| (name.clone(), value(kind, description, choice)));
    Map::from_iter(fields).into()
}

/// Checks that a type has the fields of a description.
fn check<T: Serialize + DeserializeOwned>(name: &str, fields: &[(String, Kind)], description: &Description) {
    for is_there in [true, false] {
        for variant in 0..8 {
            let sample = object(fields, description, Choice { variant, is_there });
            let parsed: T = serde_json::from_value(sample.clone())
                .unwrap_or_else(|error| panic!("{name}: {error}: {sample}"));
            assert_eq!(serde_json::to_value(parsed).unwrap(), sample, "{name}");
        }
    }
}

/// Checks a method's parameters and result. Returns its name.
fn check_method<M: Method>() -> String {
    let (of, name) = M::NAME.rsplit_once('.').unwrap();
    let description = parse(interface(of).unwrap().description).unwrap();
    let method = description.methods.get(name).unwrap_or_else(|| panic!("{of} has no method {name}"));
    check::<M>(M::NAME, &method.input, &description);
    check::<M::Output>(M::NAME, &method.output, &description);
    M::NAME.to_owned()
}

#[test]
fn types_agree_with_the_descriptions() {
    use vrdma_admin::{capture, daemon, guest, log, mr, port, qp, service, worker};
    let known: BTreeSet<String> = [
        check_method::<service::GetService>(),
        check_method::<service::GetDescription>(),
        check_method::<capture::StartCapture>(),
        check_method::<daemon::GetDaemon>(),
        check_method::<daemon::GetStats>(),
        check_method::<daemon::SaveConfig>(),
        check_method::<daemon::Drain>(),
        check_method::<daemon::Resume>(),
        check_method::<daemon::Reload>(),
        check_method::<guest::AddGuest>(),
        check_method::<guest::RemoveGuest>(),
        check_method::<guest::SetGuest>(),
        check_method::<guest::ListGuests>(),
        check_method::<guest::ShowGuest>(),
        check_method::<log::GetLog>(),
        check_method::<log::SetLog>(),
        check_method::<mr::ListMrs>(),
        check_method::<port::ListPorts>(),
        check_method::<port::ShowPort>(),
        check_method::<qp::ListQps>(),
        check_method::<qp::ShowQp>(),
        check_method::<worker::ListWorkers>(),
    ]
    .into();
    let described = INTERFACES
        .iter()
        .flat_map(|interface| interface.methods().map(|method| format!("{}.{method}", interface.name)));
    assert_eq!(described.collect::<BTreeSet<_>>(), known, "each method has a type, and the other way round");
}

#[test]
fn errors_agree_with_the_descriptions() {
    for Interface { name, description } in INTERFACES {
        let description = parse(description).unwrap();
        for (error, fields) in &description.errors {
            let error = format!("{name}.{error}");
            let sample = object(fields, &description, Choice { variant: 0, is_there: true });
            let fault = Fault::from_parts(error.clone(), sample.clone());
            assert!(!matches!(fault, Fault::Other { .. }), "there is no type for {error}: {sample}");
            let (again, mut parameters) = fault.parts();
            if error == "org.varlink.service.InvalidParameter" {
                // This one has more than varlink describes.
                parameters.as_object_mut().unwrap().remove("reason").unwrap();
            }
            assert_eq!((again, parameters), (error, sample));
        }
    }
}

#[test]
fn descriptions_are_complete() {
    for Interface { name, description } in INTERFACES {
        let parsed = parse(description).unwrap();
        assert_eq!(parsed.name, *name);
        assert!(!parsed.methods.is_empty());
        for line in description.lines() {
            assert!(line.len() <= 100, "{name}: {line}");
        }
        // Whatever has a name has a comment before it.
        let lines: Vec<&str> = description.lines().collect();
        for (before, line) in lines.iter().zip(&lines[1..]) {
            let is_item =
                ["type ", "method ", "error ", "interface "].iter().any(|word| line.starts_with(word));
            assert!(!is_item || before.starts_with('#'), "{name}: {line}: there is no comment");
        }
        let listed: BTreeSet<&str> = interface(name).unwrap().methods().collect();
        assert_eq!(listed, parsed.methods.keys().map(String::as_str).collect(), "{name}");
    }
}

#[test]
fn a_type_that_differs_is_found() {
    #[derive(serde::Deserialize, Serialize)]
    struct Short {
        a: u32,
    }
    #[derive(serde::Deserialize, Serialize)]
    struct Long {
        a: u32,
        b: Option<String>,
    }
    let description = parse("interface org.x\nmethod M(a: int, b: ?string) -> ()").unwrap();
    let fields = &description.methods["M"].input;
    check::<Long>("long", fields, &description);
    let differs = |test: fn(&[(String, Kind)], &Description), fields: &[(String, Kind)]| {
        let description = &description;
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(fields, description))).is_err()
    };
    assert!(differs(|fields, all| check::<Short>("short", fields, all), fields), "a field is missing");
    assert!(differs(|fields, all| check::<Long>("long", fields, all), &fields[..1]), "a field is too much");
}
