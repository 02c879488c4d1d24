//! `portero completions`: the script that completes the command line in a shell.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::print;

/// Prints the script of a shell.
pub(crate) async fn run(shell: Shell) -> anyhow::Result<()> {
    print::raw(&script(shell))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "portero", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let script = String::from_utf8(script(shell)).expect("text");
            assert!(script.contains("standard") || script.contains("dead-letters"), "{shell}");
        }
    }
}
