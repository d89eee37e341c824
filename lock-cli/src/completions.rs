use clap_complete::generate;

use crate::args::{self, CompletionsArgs};
use crate::exit::{Exit, Failure};
use crate::output;

/// Prints the completions for a shell. Touches no store.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut args::grammar(), "distlock", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
