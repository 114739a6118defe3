//! `forebay completions` and `forebay man`: completions for shells and manual pages, made from the command line's
//! definition.

use crate::failure::Failure;
use crate::output;
use clap::Command;
use clap_complete::Shell;
use std::path::PathBuf;

/// For which shell.
#[derive(Debug, clap::Args)]
pub struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Where the pages go.
#[derive(Debug, clap::Args)]
pub struct ManArguments {
    /// Write a page for each command into this folder, which is created if it is not there.
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
}

/// Prints the completions for the arguments of `command`.
///
/// # Errors
/// When standard output cannot be written.
pub fn completions(arguments: &CompletionsArguments, mut command: Command) -> Result<(), Failure> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    output::bytes(&script)
}

/// Prints the manual page of `command`, or writes the pages of all its commands.
///
/// # Errors
/// When the pages cannot be written.
pub fn pages(arguments: &ManArguments, command: Command) -> Result<(), Failure> {
    if let Some(folder) = &arguments.folder {
        let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
        return written.map_err(Failure::io(format_args!("--folder {}", folder.display())));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::io("making the manual page"))?;
    output::bytes(&page)
}
