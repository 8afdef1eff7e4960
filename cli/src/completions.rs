//! `listwatch completions`.

use std::io::{self, Write};

use clap_complete::{Shell, generate};

use crate::failure::Failure;

/// Prints completions for a shell.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  source <(listwatch completions bash)                               in ~/.bashrc
  listwatch completions zsh >~/.zfunc/_listwatch                     a directory of $fpath
  listwatch completions fish >~/.config/fish/completions/listwatch.fish")]
pub struct Args {
    /// Which one
    shell: Shell,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    // A plugin of kubectl is completed by kubectl; the script is for the command itself.
    generate(args.shell, &mut crate::command("listwatch"), "listwatch", &mut script);
    Ok(io::stdout().write_all(&script)?)
}
