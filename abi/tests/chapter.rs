//! Renders docs/device.md from the crate's pages and declarations, with the names of C.
#![allow(missing_docs, reason = "a test has no users")]

mod generated;

use std::collections::HashMap;
use std::fmt::Write;
use vrdma_abi::layout::{ConstsInfo, Item, StructInfo};
use vrdma_abi::{HEADER, ah, config, control, cqe, event, user, wqe};

/// A page of the chapter: its source, and its declarations.
///
/// The module `user` is not a page: the device does not see what provider and kernel driver
/// exchange.
struct Page {
    module: &'static str,
    source: &'static str,
    items: &'static [Item],
}

const PAGES: &[Page] = &[
    Page { module: "config", source: include_str!("../src/config.rs"), items: config::ITEMS },
    Page { module: "control", source: include_str!("../src/control.rs"), items: control::ITEMS },
    Page { module: "wqe", source: include_str!("../src/wqe.rs"), items: wqe::ITEMS },
    Page { module: "cqe", source: include_str!("../src/cqe.rs"), items: cqe::ITEMS },
    Page { module: "event", source: include_str!("../src/event.rs"), items: event::ITEMS },
    Page { module: "ah", source: include_str!("../src/ah.rs"), items: ah::ITEMS },
    Page { module: "width", source: include_str!("../src/width.rs"), items: &[] },
    Page { module: "connections", source: include_str!("../src/connections.rs"), items: &[] },
];

const PREAMBLE: &str = "\
<!-- Generated from the crate vrdma-abi: VRDMA_BLESS=1 cargo test -p vrdma-abi -->

# The vrdma device

What a guest and the vrdma device say to each other, for whoever writes another driver. The chapter is of the same source as the crate
`vrdma-abi` and the C header.

";

#[test]
fn chapter_is_current() {
    generated::assert_current("../docs/device.md", &render());
}

#[test]
fn each_declaration_for_the_device_is_in_the_chapter() {
    let declared: usize = HEADER.iter().map(|items| items.len()).sum();
    let shown: usize = PAGES.iter().map(|page| page.items.len()).sum();
    assert_eq!(shown + user::ITEMS.len(), declared, "a page of the crate is missing here");
}

#[test]
fn each_page_says_what_driver_and_device_have_to_do() {
    for page in PAGES.iter().filter(|page| !page.items.is_empty()) {
        for heading in ["//! # Driver requirements\n", "//! # Device requirements\n"] {
            assert!(page.source.contains(heading), "{} lacks {heading}", page.module);
        }
    }
}

fn render() -> String {
    let names = names();
    let mut out = String::from(PREAMBLE);
    for (number, page) in PAGES.iter().enumerate() {
        writeln!(out, "{}. {}", number + 1, documentation(page.source).0).unwrap();
    }
    // The text before this heading lists the crate's pages.
    let (_, introduction) = documentation(include_str!("../src/lib.rs"));
    let start = introduction.iter().position(|line| line == "# Conventions").expect("the conventions");
    out.push('\n');
    render_text(&mut out, &introduction[start..], "##", &names);
    for (number, page) in PAGES.iter().enumerate() {
        let (title, text) = documentation(page.source);
        writeln!(out, "\n## {}. {}\n", number + 1, title.trim_end_matches('.')).unwrap();
        render_text(&mut out, &text, "###", &names);
        for item in page.items {
            match item {
                Item::Struct(info) => render_struct(&mut out, info, &names),
                Item::Consts(info) => render_consts(&mut out, info, &names),
            }
        }
    }
    out
}

/// Returns the first line of a page's documentation, and the lines behind it.
fn documentation(source: &str) -> (String, Vec<String>) {
    let lines = source.lines().take_while(|line| line.starts_with("//!"));
    let mut lines = lines.map(|line| line["//!".len()..].strip_prefix(' ').unwrap_or_default().to_owned());
    let title = lines.next().expect("each page is documented");
    (title, lines.skip_while(String::is_empty).collect())
}

fn render_text(out: &mut String, lines: &[String], heading: &str, names: &HashMap<String, String>) {
    let mut is_code = false;
    for line in lines {
        is_code ^= line.starts_with("```");
        match line.strip_prefix("# ") {
            Some(title) if !is_code => writeln!(out, "{heading} {title}").unwrap(),
            _ if is_code => writeln!(out, "{line}").unwrap(),
            _ => writeln!(out, "{}", in_c(line, names)).unwrap(),
        }
    }
}

fn render_struct(out: &mut String, info: &StructInfo, names: &HashMap<String, String>) {
    writeln!(out, "\n### struct {}\n", info.c_name).unwrap();
    render_doc(out, info.doc, names);
    writeln!(out, "{} bytes.\n\n| at | type | field | |\n|--:|---|---|---|", info.size).unwrap();
    for field in info.fields {
        let array = field.array.map(|n| format!("[{n}]")).unwrap_or_default();
        let (at, name, doc) = (field.offset, field.name, cell(field.doc, names));
        writeln!(out, "| {at} | `{}{array}` | `{name}` | {doc} |", field.c_type).unwrap();
    }
}

fn render_consts(out: &mut String, info: &ConstsInfo, names: &HashMap<String, String>) {
    writeln!(out, "\n### {}\n", heading_of(info)).unwrap();
    render_doc(out, info.doc, names);
    writeln!(out, "\n| | value | |\n|---|--:|---|").unwrap();
    for (name, value, doc) in info.consts {
        let value = if *value > 0xffff { format!("0x{value:x}") } else { value.to_string() };
        writeln!(out, "| `{}_{name}` | {value} | {} |", info.c_prefix, cell(doc, names)).unwrap();
    }
}

/// Returns the heading of a group of constants.
///
/// Groups may share a prefix; the name in Rust distinguishes them.
fn heading_of(info: &ConstsInfo) -> String {
    format!("{}_* ({})", info.c_prefix, info.name)
}

fn render_doc(out: &mut String, doc: &[&str], names: &HashMap<String, String>) {
    for line in doc {
        writeln!(out, "{}", in_c(line.trim(), names)).unwrap();
    }
}

fn cell(doc: &[&str], names: &HashMap<String, String>) -> String {
    in_c(&doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "), names).replace('|', "\\|")
}

/// Returns the text with rustdoc's links as names of C: "[`Status::OK`]" becomes
/// "`VRDMA_STATUS_OK`".
fn in_c(text: &str, names: &HashMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, link)) = rest.split_once("[`") {
        let (path, after) = link.split_once("`]").expect("a link ends on its line");
        let after =
            after.strip_prefix('(').and_then(|target| target.split_once(')')).map_or(after, |of| of.1);
        out += before;
        out += &name_in_c(path, names);
        rest = after;
    }
    out + rest
}

fn name_in_c(path: &str, names: &HashMap<String, String>) -> String {
    let parts: Vec<&str> =
        path.split("::").filter(|part| !["crate", "self", "super"].contains(part)).collect();
    // The longest suffix of the path that has a name.
    let found = (0..parts.len()).find_map(|at| names.get(&parts[at..].join("::")));
    found.unwrap_or_else(|| panic!("`{path}` has no name in C")).clone()
}

/// Returns the chapter's name of each name of the crate.
fn names() -> HashMap<String, String> {
    let mut names = HashMap::new();
    for (number, page) in PAGES.iter().enumerate() {
        names.insert(page.module.to_owned(), format!("section {}", number + 1));
    }
    for item in HEADER.iter().copied().flatten() {
        match item {
            Item::Struct(info) => {
                names.insert(info.name.to_owned(), format!("`struct {}`", info.c_name));
                for field in info.fields {
                    let of = format!("`{}` of `struct {}`", field.name, info.c_name);
                    names.insert(format!("{}::{}", info.name, field.name), of);
                }
                names.insert(format!("{}::SIZE", info.name), info.size.to_string());
            }
            Item::Consts(info) => {
                names.insert(info.name.to_owned(), format!("`{}_*`", info.c_prefix));
                for (name, _, _) in info.consts {
                    let c_name = format!("`{}_{name}`", info.c_prefix);
                    names.insert(format!("{}::{name}", info.name), c_name.clone());
                    names.insert((*name).to_owned(), c_name);
                }
            }
        }
    }
    names
}
