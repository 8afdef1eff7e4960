//! `listwatch completions`.

use std::io::{self, Write};

use clap_complete::{Shell, generate};

use crate::failure::Failure;

/// Print the completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  source <(listwatch completions bash)                               in ~/.bashrc
  listwatch completions zsh >~/.zfunc/_listwatch                     a directory in $fpath
  listwatch completions fish >~/.config/fish/completions/listwatch.fish")]
pub struct CompletionsArgs {
    /// Shell to print the script for
    shell: Shell,
}

/// Prints the script that completes this command, without its hidden subcommands.
pub fn run(args: &CompletionsArgs, command: &clap::Command) -> Result<(), Failure> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut shown = clap::Command::new("listwatch")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(command.get_arguments())
        .subcommands(shown);
    let mut script = Vec::new();
    generate(args.shell, &mut shown, "listwatch", &mut script);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&script)?;
    Ok(stdout.flush()?)
}
