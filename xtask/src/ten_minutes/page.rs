//! The commands of `docs/ten-minutes.md`, and what they print.

use anyhow::{Context, Result, bail, ensure};

/// Where a block's commands are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The host.
    Host,
    /// The guest with this index.
    Guest(usize),
    /// Each guest.
    Guests,
}

impl Place {
    /// Whether the block is for guests.
    pub fn is_guest(self) -> bool {
        self != Self::Host
    }

    /// Returns a name for messages and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Guest(0) => "guest-a",
            Self::Guest(_) => "guest-b",
            Self::Guests => "guests",
        }
    }
}

/// When a block's commands are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After those of the block before.
    Next,
    /// After the guests have booted.
    Booted,
    /// Before those of the next block, which they serve. They end with them.
    Meanwhile,
}

/// A block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where they are typed.
    pub place: Place,
    /// When they are typed.
    pub when: When,
    /// The commands.
    pub commands: String,
    /// What they print, in lines. `...` stands for any text in a line.
    pub output: Vec<String>,
}

impl Block {
    /// Fails if one of the lines is not printed, or not after the line before it.
    pub fn check(&self, printed: &str) -> Result<()> {
        let mut lines = printed.lines().map(str::trim);
        for expected in &self.output {
            ensure!(
                lines.any(|line| matches(expected, line)),
                "the page says that this prints `{expected}`, and it printed\n{printed}"
            );
        }
        Ok(())
    }
}

/// Whether a line is the expected one. Spaces count as one.
fn matches(expected: &str, line: &str) -> bool {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, line) = (squeeze(expected), squeeze(line));
    let mut parts = expected.split("...").map(str::trim);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    last == Some("") || rest.is_empty()
}

/// Returns the page's blocks, in order.
pub fn blocks(page: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let content: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if kind == "output" {
            let block = blocks.last_mut().context("an output follows commands")?;
            ensure!(block.output.is_empty(), "`{}` has two outputs", block.commands);
            block.output = content.into_iter().map(str::to_owned).collect();
        } else {
            let (place, when) = info(kind)?;
            blocks.push(Block { place, when, commands: content.join("\n"), output: Vec::new() });
        }
    }
    let ends_meanwhile = blocks.last().is_some_and(|block| block.when == When::Meanwhile);
    ensure!(!blocks.is_empty() && !ends_meanwhile, "the page's last block is not one that ends it");
    Ok(blocks)
}

/// Returns what a block's first line says.
///
/// All blocks of the page have one, so that none is left out by a mistake.
fn info(kind: &str) -> Result<(Place, When)> {
    let (place, when) = kind.split_once(", ").unwrap_or((kind, ""));
    let place = match place {
        "sh host" => Place::Host,
        "sh guest a" => Place::Guest(0),
        "sh guest b" => Place::Guest(1),
        "sh guests" => Place::Guests,
        _ => bail!("```{kind}: where is this typed?"),
    };
    let when = match when {
        "" => When::Next,
        "when the guests have booted" => When::Booted,
        "meanwhile" => When::Meanwhile,
        _ => bail!("```{kind}: when is this typed?"),
    };
    Ok((place, when))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrdma_lab::paths;

    #[test]
    fn blocks_have_a_place_and_their_output() {
        let page = "# A\n```sh host\na\nb\n```\nThen:\n```output\nc ...\n```\n```sh guest b, meanwhile\nd\n```\n```sh guests\n```\n";
        let found = blocks(page).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].place, found[0].when), (Place::Host, When::Next));
        assert_eq!((found[0].commands.as_str(), &found[0].output[..]), ("a\nb", &["c ...".to_owned()][..]));
        assert_eq!((found[1].place, found[1].when), (Place::Guest(1), When::Meanwhile));
        assert!(found[1].output.is_empty() && found[2].place == Place::Guests);
        for wrong in
            ["```\na\n```\n", "```sh\na\n```\n", "```sh host, soon\n```\n", "```output\n```\n", "text"]
        {
            assert!(blocks(wrong).is_err(), "{wrong}");
        }
        assert!(blocks("```sh guest a, meanwhile\nserve\n```\n").is_err());
    }

    #[test]
    fn lines_come_in_their_order() {
        let mut block =
            blocks("```sh host\nx\n```\n```output\na 1 ...\n... end\nb ...: c\n```\n").unwrap().remove(0);
        block.check("x\n  a   1 2\nthe end\nb 5: c\n").unwrap();
        assert!(block.check("the end\na 1\nb 5: c\n").is_err());
        assert!(block.check("a 1\nthe end\nb 5: cd\n").is_err());
        assert!(block.check("a 1\nthe end\n").is_err());
        block.output.clear();
        block.check("").unwrap();
    }

    #[test]
    fn the_page_has_all_places() {
        let page = paths::read(&paths::workspace().join("docs/ten-minutes.md")).unwrap();
        let blocks = blocks(&page).unwrap();
        for place in [Place::Host, Place::Guest(0), Place::Guest(1), Place::Guests] {
            assert!(blocks.iter().any(|block| block.place == place), "{place:?}");
        }
        let all: String = blocks.iter().map(|block| block.commands.as_str()).collect();
        for words in ["apt install", "rping -s", "rping -c", "apt purge"] {
            assert!(all.contains(words), "{words}");
        }
    }
}
