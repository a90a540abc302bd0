//! The commands that README.md tells people to type.

use anyhow::{Context, Result, ensure};

/// Returns the commands of README's "Try it". The quick half leaves out the tests in VMs.
pub fn commands(readme: &str, quick: bool) -> Result<Vec<String>> {
    let section = readme.split("\n## ").find(|section| section.starts_with("Try it\n"));
    let block = section.and_then(|section| section.split("```\n").nth(1));
    let block = block.context("README.md has no block of commands under \"Try it\"")?;
    let test = |line: &str| if quick && line == "cargo xtask test" { " --no-vm" } else { "" };
    let commands: Vec<String> = block.lines().map(|line| format!("{line}{}", test(line))).collect();
    ensure!(commands.iter().any(|line| line.starts_with("cargo xtask test")), "README.md runs no tests");
    Ok(commands)
}

/// Returns the command that README promises to need neither root nor DPDK.
pub fn unprivileged(readme: &str) -> Result<String> {
    let behind = readme.split_once("need neither root nor DPDK").map(|(_, behind)| behind);
    let command = behind.and_then(|text| text.split('`').nth(1));
    let command = command.context("README.md names no command that needs neither root nor DPDK")?;
    ensure!(command.starts_with("cargo test "), "README.md says that `{command}` needs no root");
    Ok(command.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrdma_lab::paths;

    #[test]
    fn commands_are_those_of_readme() {
        let readme = "# x\n```\nno\n```\n\n## Try it\n\nWords.\n\n```\ncargo xtask demo\ncargo xtask test\n```\n\n```\nno\n```\n## Y\n";
        assert_eq!(commands(readme, false).unwrap(), ["cargo xtask demo", "cargo xtask test"]);
        assert_eq!(commands(readme, true).unwrap(), ["cargo xtask demo", "cargo xtask test --no-vm"]);
        assert!(commands("# x\n", true).is_err());
        let ours = paths::read(&paths::workspace().join("README.md")).unwrap();
        assert_eq!(commands(&ours, false).unwrap(), ["cargo xtask demo", "cargo xtask test"]);
        let protocol = "cargo test -p vrdma-wire -p vrdma-tcp -p vrdma-transport";
        assert_eq!(unprivileged(&ours).unwrap(), protocol);
        assert!(unprivileged(readme).is_err());
    }
}
