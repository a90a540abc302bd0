//! Each released ABI still holds for the current one.
//!
//! `golden/` has the C header of each release. Allowed additions are structures, constants, and
//! fields in the place of reserved ones.
#![allow(missing_docs, reason = "a test has no users")]

use std::collections::BTreeMap;
use std::path::Path;

/// The content of a header by name: sizes, offsets, types of fields, and constants.
type Facts = BTreeMap<String, String>;

/// The one constant that grows with each addition.
const MINOR: &str = "VRDMA_VERSION_MINOR";

/// Suffix of masks of all defined bits. Such masks may gain bits.
const MASK: &str = "_ALL";

#[test]
fn every_release_still_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The test `c_header_is_current` compares this header with the declarations.
    let today = facts(&read(&root.join("../guest-driver/kernel/vrdma_abi.h")));
    let releases = std::fs::read_dir(root.join("golden")).unwrap().map(|entry| entry.unwrap().path());
    // A driver of version 1.0, which was never released, runs in the end-to-end tests.
    let all: Vec<_> = releases.chain([root.join("../tests/golden/abi-1.0.h")]).collect();
    assert!(all.len() > 1, "there is no golden header");
    for path in all {
        let broken = broken(&facts(&read(&path)), &today);
        assert!(broken.is_empty(), "{} does not hold any more:\n{}", path.display(), broken.join("\n"));
    }
}

#[test]
fn a_header_is_read_as_a_whole() {
    let text = release();
    let facts = facts(&text);
    let count = |text: &str, what: &str| text.lines().filter(|line| line.starts_with(what)).count();
    // All constants, except for the include guard.
    assert_eq!(facts.keys().filter(|name| name.starts_with("VRDMA_")).count(), count(&text, "#define ") - 1);
    assert_eq!(facts.keys().filter(|name| name.starts_with("sizeof")).count(), count(&text, "struct "));
    let fields = facts.keys().filter(|name| name.contains('.')).count();
    assert_eq!(fields, facts.keys().filter(|name| name.starts_with("offsetof")).count());
    let indented = |line: &&str| line.starts_with('\t') && line.ends_with(';') && !line.contains(" reserved");
    assert_eq!(fields, text.lines().filter(indented).count());
    assert_eq!(facts["vrdma_config.mac"], "__u8 [6]");
    assert_eq!(facts["offsetof(struct vrdma_config, mac)"], "8");
    assert_eq!(facts["sizeof(struct vrdma_config)"], "64");
    assert_eq!(facts["VRDMA_MAGIC"], "0x6d647276u");
}

#[test]
fn every_change_of_what_was_released_is_noticed() {
    let changes = [
        ("\t__le32 max_mtu;", "\t__le64 max_mtu;", "vrdma_config.max_mtu"),
        (
            "offsetof(struct vrdma_config, max_mtu) == 20",
            "offsetof(struct vrdma_config, max_mtu) == 24",
            "offsetof(struct vrdma_config, max_mtu)",
        ),
        (
            "sizeof(struct vrdma_config) == 64",
            "sizeof(struct vrdma_config) == 72",
            "sizeof(struct vrdma_config)",
        ),
        ("#define VRDMA_CMD_ADD_GID 4", "#define VRDMA_CMD_ADD_GID 5", "VRDMA_CMD_ADD_GID"),
        ("#define VRDMA_CMD_DEL_GID 5", "#define VRDMA_CMD_REMOVE_GID 5", "VRDMA_CMD_DEL_GID"),
        ("#define VRDMA_WQE_F_ALL 15", "#define VRDMA_WQE_F_ALL 23", "VRDMA_WQE_F_ALL"),
    ];
    let text = release();
    for (from, to, name) in changes {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from} is not in the header");
        let broken = broken(&facts(&text), &facts(&changed));
        assert!(matches!(&broken[..], [one] if one.starts_with(&format!("{name}: "))), "{from}: {broken:?}");
    }
}

#[test]
fn additions_are_allowed() {
    let text = release();
    let added = "struct vrdma_new {\n\t__u8 a;\n};\nstatic_assert(sizeof(struct vrdma_new) == 1);\n\
                 static_assert(offsetof(struct vrdma_new, a) == 0);\n#define VRDMA_NEW 7 /* New. */\n";
    let newer =
        format!("{text}{added}").replace("\t__u8 reserved[40];", "\t__le32 speed;\n\t__u8 reserved[36];");
    let newer = newer.replace("#define VRDMA_VERSION_MINOR 1", "#define VRDMA_VERSION_MINOR 2");
    let newer = newer.replace("#define VRDMA_WQE_F_ALL 15", "#define VRDMA_WQE_F_ALL 31");
    assert_eq!(broken(&facts(&text), &facts(&newer)), [""; 0]);
    // The minor version must not go back.
    assert_eq!(
        broken(&facts(&newer), &facts(&text)).iter().filter(|line| line.starts_with(MINOR)).count(),
        1
    );
}

fn release() -> String {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v0.1.0.h"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a line for each fact of the release that has changed or is gone.
fn broken(released: &Facts, today: &Facts) -> Vec<String> {
    let holds = |name: &str, was: &str, is: &str| match (name, was.parse::<u32>(), is.parse::<u32>()) {
        (MINOR, Ok(was), Ok(is)) => is >= was,
        (_, Ok(was), Ok(is)) if name.ends_with(MASK) => is & was == was,
        _ => is == was,
    };
    let line = |(name, was): (&String, &String)| match today.get(name) {
        Some(is) if holds(name, was, is) => None,
        Some(is) => Some(format!("{name}: was {was}, is {is}")),
        None => Some(format!("{name}: was {was}, is gone")),
    };
    released.iter().filter_map(line).collect()
}

/// Reads a generated header. Reserved fields are not facts: other fields may take their place.
fn facts(text: &str) -> Facts {
    let mut facts = Facts::new();
    let mut tag = None;
    for line in text.lines() {
        let line = line.split(" /*").next().unwrap_or_default().trim_end();
        let fact = if let Some(rest) = line.strip_prefix("#define ") {
            rest.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()))
        } else if let Some(claim) = line.strip_prefix("static_assert(") {
            let (name, value) =
                claim.trim_end_matches(");").split_once(" == ").expect("an assertion of equality");
            (!name.contains(", reserved")).then(|| (name.to_owned(), value.to_owned()))
        } else if let Some(name) = line.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {")) {
            tag = Some(name);
            None
        } else if line == "};" {
            tag = None;
            None
        } else if let (Some(tag), Some(field)) =
            (tag, line.strip_prefix('\t').and_then(|l| l.strip_suffix(';')))
        {
            let (c_type, name) = field.rsplit_once(' ').expect("a type and a name");
            let (name, array) = name.find('[').map_or((name, ""), |at| name.split_at(at));
            let c_type = format!("{c_type} {array}").trim_end().to_owned();
            (!name.starts_with("reserved")).then(|| (format!("{tag}.{name}"), c_type))
        } else {
            None
        };
        if let Some((name, value)) = fact {
            assert!(facts.insert(name.clone(), value).is_none(), "{name} is there twice");
        }
    }
    facts
}
