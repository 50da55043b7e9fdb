//! `PET_*`: defaults of torchrun's options in the environment.
//!
//! A value is parsed by the option's type as on the command line; a flag is a whole number, and on
//! unless it is zero.

use crate::cli::environment::Environment;
use crate::cli::error::FlagError;
use crate::cli::python::int;
use crate::cli::words::{GivenOption, Spelling};

/// Options without a variable: torchrun has none for them, or does not have the option.
const WITHOUT: &[&str] = &[
    "logs-specs",
    "numa-binding",
    "dry-run",
    "print-completion",
    "write-man",
    "help",
    "version",
];

/// Returns the options that the environment sets, in the order of `spellings`.
///
/// # Errors
/// Returns an error if the variable of a flag is not a whole number.
pub fn options<'a>(
    env: &Environment,
    spellings: &'a [Spelling],
) -> Result<Vec<GivenOption<'a>>, FlagError> {
    let mut options = Vec::new();
    for spelling in spellings
        .iter()
        .filter(|spelling| !WITHOUT.contains(&spelling.long.as_str()))
    {
        let variable = format!("PET_{}", spelling.variable());
        let Some(value) = env.get(&variable) else {
            continue;
        };
        if spelling.takes_value {
            options.push((spelling, Some(value.to_owned())));
        } else if is_on(&variable, &value.to_string_lossy())? {
            options.push((spelling, None));
        }
    }
    Ok(options)
}

fn is_on(variable: &str, value: &str) -> Result<bool, FlagError> {
    let number = int(value).ok_or_else(|| FlagError {
        variable: variable.to_owned(),
        value: value.to_owned(),
    })?;
    Ok(number != 0)
}
