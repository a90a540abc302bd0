//! Completions and man pages, made of the command line's definition.

use crate::args::Args;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};

/// Prints completions for a shell.
///
/// # Errors
/// The output is closed.
pub fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "vrdma-ctl", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Prints the man page of the program, or of one of its commands.
///
/// # Errors
/// There is no such command, or the output is closed.
pub fn man(command: Option<&str>) -> Result<()> {
    let page = page(command)?;
    Ok(io::stdout().write_all(&page)?)
}

fn page(command: Option<&str>) -> Result<Vec<u8>> {
    let mut program = Args::command();
    program.build();
    let (about, title) = match command {
        None => (program, "vrdma-ctl".to_owned()),
        Some(name) => {
            let found = program.find_subcommand(name).with_context(|| {
                let known: Vec<&str> = program.get_subcommands().map(|known| known.get_name()).collect();
                format!("there is no command {name}: there are {}", known.join(", "))
            })?;
            (found.clone(), format!("vrdma-ctl-{name}"))
        }
    };
    let mut page = Vec::new();
    Man::new(about).title(title).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_man_page() {
        let text = |command| {
            let page = String::from_utf8(page(command).unwrap()).unwrap();
            // The language of man pages has signs of its own for these.
            page.replace("\\-", "-").replace("\\*(Aq", "'")
        };
        let whole = text(None);
        for command in Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(whole.contains(name), "{name} is missing");
            assert!(text(Some(name)).contains(&command.get_about().unwrap().to_string()), "{name}");
        }
        assert!(page(Some("lst")).unwrap_err().to_string().contains("there are list, show"));
    }

    #[test]
    fn completions_name_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "vrdma-ctl", &mut script);
            assert!(String::from_utf8(script).unwrap().contains("show"), "{shell}");
        }
    }
}
