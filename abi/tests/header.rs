//! Renders the C header of the kernel driver from the declarations, and checks the crate's
//! conventions.
#![allow(missing_docs, reason = "a test has no users")]

mod generated;

use std::fmt::Write;
use vrdma_abi::HEADER;
use vrdma_abi::layout::{ConstsInfo, Item, StructInfo};

const PREAMBLE: &str = "\
/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * What the driver and the vrdma device say to each other in memory.
 *
 * Generated from the crate vrdma-abi, whose documentation is the specification:
 * VRDMA_BLESS=1 cargo test -p vrdma-abi
 */
#ifndef VRDMA_ABI_H
#define VRDMA_ABI_H

#include <linux/types.h>
#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/stddef.h>
#else
#include <assert.h>
#include <stddef.h>
#endif
";

#[test]
fn c_header_is_current() {
    generated::assert_current("../guest-driver/kernel/vrdma_abi.h", &render());
}

#[test]
fn fields_are_naturally_aligned_without_holes() {
    for info in structs() {
        let mut end = 0;
        for field in info.fields {
            assert_eq!(field.offset, end, "{}.{} leaves a hole", info.c_name, field.name);
            let align = align_of(field.c_type);
            assert_eq!(field.offset % align, 0, "{}.{} is not aligned", info.c_name, field.name);
            end = field.offset + field.size;
        }
        let align = info.fields.iter().map(|f| align_of(f.c_type)).max().unwrap();
        assert_eq!(info.size, end);
        assert_eq!(info.size % align, 0, "{} would be padded in C", info.c_name);
    }
}

#[test]
fn sizes_that_the_design_fixes() {
    use vrdma_abi::{ah, cqe, event, wqe};
    assert_eq!(wqe::WqeHeader::SIZE, wqe::unit::BODY_OFFSET as usize);
    assert_eq!(wqe::RdmaBody::SIZE, wqe::UdBody::SIZE);
    assert_eq!(wqe::unit::BODY_OFFSET as usize + wqe::RdmaBody::SIZE, wqe::unit::DATA_OFFSET as usize);
    let room = (wqe::unit::MAX_UNITS * wqe::unit::UNIT_SIZE - wqe::unit::DATA_OFFSET) as usize;
    assert_eq!(room / wqe::Sge::SIZE, wqe::unit::MAX_SGE as usize);
    assert_eq!(room, wqe::unit::MAX_INLINE as usize);
    let room = wqe::unit::MAX_UNITS_V1_1 * wqe::unit::UNIT_SIZE - wqe::unit::DATA_OFFSET;
    assert!(room >= wqe::unit::MAX_INLINE_V1_1 && room >= wqe::unit::MAX_SGE_V1_1 * wqe::Sge::SIZE as u32);
    assert_eq!((cqe::Cqe::SIZE, cqe::TimedCqe::SIZE), (32, 64));
    assert_eq!(cqe::CqRecord::SIZE, 128);
    assert_eq!(event::Event::SIZE, 16);
    assert_eq!(ah::AhEntry::SIZE, 64);
}

fn structs() -> impl Iterator<Item = &'static StructInfo> {
    HEADER.iter().copied().flatten().filter_map(|item| match item {
        Item::Struct(info) => Some(*info),
        Item::Consts(_) => None,
    })
}

fn align_of(c_type: &str) -> usize {
    match c_type {
        "__u8" => 1,
        "__le16" => 2,
        "__le32" | "__be32" => 4,
        "__le64" => 8,
        nested => {
            let tag = nested.strip_prefix("struct ").unwrap();
            let info = structs().find(|s| s.c_name == tag).unwrap();
            info.fields.iter().map(|f| align_of(f.c_type)).max().unwrap()
        }
    }
}

fn render() -> String {
    let mut out = String::from(PREAMBLE);
    for item in HEADER.iter().copied().flatten() {
        out.push('\n');
        match item {
            Item::Struct(info) => render_struct(&mut out, info),
            Item::Consts(info) => render_consts(&mut out, info),
        }
    }
    out.push_str("\n#endif /* VRDMA_ABI_H */\n");
    out
}

fn render_consts(out: &mut String, info: &ConstsInfo) {
    render_doc(out, "", info.doc);
    for (name, value, doc) in info.consts {
        let value = if *value > 0xffff { format!("0x{value:x}u") } else { format!("{value}") };
        let define = format!("#define {}_{name} {value}", info.c_prefix);
        let line = format!("{define} /* {} */", plain(&doc.join(" ")));
        if line.len() <= COLUMNS {
            writeln!(out, "{line}").unwrap();
        } else {
            render_doc(out, "", doc);
            writeln!(out, "{define}").unwrap();
        }
    }
}

fn render_struct(out: &mut String, info: &StructInfo) {
    render_doc(out, "", info.doc);
    writeln!(out, "struct {} {{", info.c_name).unwrap();
    for field in info.fields {
        render_doc(out, "\t", field.doc);
        let array = field.array.map(|n| format!("[{n}]")).unwrap_or_default();
        writeln!(out, "\t{} {}{array};", field.c_type, field.name).unwrap();
    }
    writeln!(out, "}};").unwrap();
    let tag = info.c_name;
    writeln!(out, "static_assert(sizeof(struct {tag}) == {});", info.size).unwrap();
    for field in info.fields {
        writeln!(out, "static_assert(offsetof(struct {tag}, {}) == {});", field.name, field.offset).unwrap();
    }
}

fn render_doc(out: &mut String, indent: &str, doc: &[&str]) {
    let indented = indent.replace('\t', TAB).len();
    let lines = filled(doc, COLUMNS - indented - " * ".len());
    match &lines[..] {
        [] => {}
        [line] if indented + line.len() + "/*  */".len() <= COLUMNS => {
            writeln!(out, "{indent}/* {line} */").unwrap();
        }
        lines => {
            writeln!(out, "{indent}/*").unwrap();
            for line in lines {
                writeln!(out, "{}", format!("{indent} * {line}").trim_end()).unwrap();
            }
            writeln!(out, "{indent} */").unwrap();
        }
    }
}

/// Columns of a line. A tab counts as many columns as [`TAB`].
const COLUMNS: usize = 100;
const TAB: &str = "        ";

/// Returns the paragraphs of a doc in lines of at most `columns`. A list item begins a new line.
fn filled(doc: &[&str], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut begins = true;
    for line in doc {
        let line = plain(line);
        let is_item = line.starts_with("* ") || line.starts_with("- ");
        if line.is_empty() {
            lines.push(String::new());
        }
        begins |= line.is_empty() || is_item;
        for word in line.split_whitespace() {
            match lines.last_mut() {
                Some(last) if !begins && last.len() + 1 + word.len() <= columns => {
                    last.push(' ');
                    last.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
            begins = false;
        }
        begins = line.is_empty();
    }
    lines
}

/// Returns rustdoc text without the targets of its links, and without link and code marks.
fn plain(doc: &str) -> String {
    let (mut out, mut rest) = (String::new(), doc.trim());
    while let Some((before, target)) = rest.split_once("](") {
        out += before;
        rest = target.split_once(')').expect("a link ends on its line").1;
    }
    (out + rest).replace(['[', ']', '`'], "").replace("crate::", "")
}
