//! Replays the corpus and former crashes of a target.

use std::path::Path;

/// Runs all inputs in `testing/fuzz/corpus/TARGET` and `testing/fuzz/crashes/TARGET`.
///
/// For each crash NAME, the file NAME.txt describes it.
pub fn replay(target: &str, mut run: impl FnMut(&[u8])) {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let fuzz = above
        .map(|folder| folder.join("testing/fuzz"))
        .find(|folder| folder.is_dir())
        .expect("testing/fuzz/ is above");
    let mut inputs = 0;
    for kind in ["corpus", "crashes"] {
        let folder = fuzz.join(kind).join(target);
        let Ok(entries) = std::fs::read_dir(&folder) else {
            assert!(kind == "crashes", "there is no {}", folder.display());
            continue;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.extension().is_some_and(|extension| extension == "txt") {
                continue;
            }
            let said = kind == "corpus" || path.with_extension("txt").exists();
            assert!(said, "{}.txt has to say what it was", path.display());
            // Shown if the run fails.
            println!("{}", path.display());
            run(&std::fs::read(path).unwrap());
            inputs += 1;
        }
    }
    assert!(inputs > 20, "{inputs} inputs");
}
