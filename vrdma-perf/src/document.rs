//! The output of `report` in a folder: the table between two marks of a document, and plots next to
//! it.

use crate::args::Figure;
use crate::lines::Unit;
use crate::plot::{self, Drawing, Series};
use crate::rows::Curve;
use crate::turns::Turns;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// The document. Its plots are in the same folder.
const FILE: &str = "report.md";

/// Puts the report's table into the document of a folder, and writes plots next to it.
///
/// # Errors
/// Files cannot be written, or the document's marks are wrong.
pub fn report(dir: &Path, text: &str, points: &[((Curve, u32), Turns)]) -> Result<()> {
    let mut text = text.to_owned();
    for curve in Curve::ALL {
        let of: Vec<(u32, &Turns)> =
            points.iter().filter(|((of, _), _)| *of == curve).map(|((_, at), turns)| (*at, turns)).collect();
        let (name, title, along) = curve.words();
        let drawing = Drawing {
            title: title.to_owned(),
            along: along.to_owned(),
            up: "million a second".to_owned(),
            powers: false,
            series: series(&of),
        };
        if drawing.series.iter().all(|series| series.points.is_empty()) {
            continue;
        }
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        plot::write(&drawing, &dir.join(format!("{name}.svg")))?;
        text += &format!("\n![{title}]({name}.svg)\n");
    }
    put(dir, "report", &text)
}

/// Returns the curve of the measured values, and that of one QP between two guests. Both are of the
/// regime with the most windows.
fn series(points: &[(u32, &Turns)]) -> Vec<Series> {
    let factor = Unit::of(Figure::Rate).factor;
    let of = |value: fn(&crate::turns::Regime) -> f64| {
        let regime =
            |(at, turns): &(u32, &Turns)| Some((f64::from(*at), value(turns.regimes.first()?) * factor));
        points.iter().filter_map(regime).collect()
    };
    vec![
        Series { name: "measured".into(), points: of(|regime| regime.own.median) },
        Series { name: "one QP, in turns with it".into(), points: of(|regime| regime.limit.median) },
    ]
}

/// Puts a text between the marks of that name in the document. Creates the document if it does not
/// exist.
///
/// # Errors
/// The document does not have exactly these two marks, or cannot be written.
pub fn put(dir: &Path, name: &str, text: &str) -> Result<()> {
    let file = dir.join(FILE);
    let old = match fs::read_to_string(&file) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            String::new()
        }
        Err(error) => return Err(error).context(file.display().to_string()),
    };
    let new = replaced(&old, name, text).with_context(|| file.display().to_string())?;
    fs::write(&file, new).with_context(|| file.display().to_string())
}

fn replaced(old: &str, name: &str, text: &str) -> Result<String> {
    let [begin, end] = ["begin", "end"].map(|which| format!("<!-- {name}: {which} -->\n"));
    let text = format!("{begin}{}\n{end}", text.trim_end());
    if !old.contains(&begin) && !old.contains(&end) && (old.is_empty() || old.starts_with("<!-- ")) {
        // The document contains nothing but such marks and texts.
        return Ok(format!("{old}{text}"));
    }
    let Some((before, rest)) = old.split_once(&begin) else {
        bail!("it has no mark {}", begin.trim_end());
    };
    let Some((_, after)) = rest.split_once(&end) else { bail!("it has no mark {}", end.trim_end()) };
    Ok(format!("{before}{text}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let old = "# A\n<!-- x: begin -->\nold\n<!-- x: end -->\nB\n<!-- y: begin -->\n<!-- y: end -->\n";
        let new = replaced(old, "x", "new\n\n").unwrap();
        assert_eq!(new, old.replace("old", "new"));
        assert_eq!(replaced(&new, "x", "new").unwrap(), new);
        assert!(replaced(&new, "y", "z").unwrap().contains("<!-- y: begin -->\nz\n<!-- y: end -->"));
    }

    #[test]
    fn a_document_without_marks_is_left_alone() {
        for old in ["# A\n", "# A\n<!-- x: begin -->\n", "# A\n<!-- x: end -->\n"] {
            assert!(replaced(old, "x", "new").is_err(), "{old}");
        }
    }

    #[test]
    fn a_document_that_is_not_there_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let docs = dir.path().join("docs");
        put(&docs, "x", "one").unwrap();
        put(&docs, "y", "two").unwrap();
        put(&docs, "x", "three").unwrap();
        let text = fs::read_to_string(docs.join(FILE)).unwrap();
        assert_eq!(
            text,
            "<!-- x: begin -->\nthree\n<!-- x: end -->\n<!-- y: begin -->\ntwo\n<!-- y: end -->\n"
        );
    }
}
