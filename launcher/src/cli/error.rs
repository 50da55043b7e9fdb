//! The reasons why a word, a value or a variable is refused, in argparse's words.

use crate::cli::python::repr;

/// A value that its option does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It is not a whole number.
    #[error("invalid int value: {}", repr(.0))]
    Int(String),
    /// It is not a number.
    #[error("invalid float value: {}", repr(.0))]
    Float(String),
    /// It is none of the option's choices.
    #[error("invalid choice: {} (choose from {})", repr(.found), list(.choices))]
    Choice {
        /// The value given.
        found: String,
        /// The choices, in the order of the help.
        choices: &'static [&'static str],
    },
}

impl ValueError {
    /// Returns the error for a value that is none of `choices`.
    pub fn choice(found: &str, choices: &'static [&'static str]) -> ValueError {
        ValueError::Choice {
            found: found.to_owned(),
            choices,
        }
    }
}

fn list(choices: &[&str]) -> String {
    let quoted: Vec<String> = choices.iter().map(|choice| repr(choice)).collect();
    quoted.join(", ")
}

/// A word of the command line that cannot be split into options and values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// It abbreviates several options.
    #[error("ambiguous option: {word} could match {options}")]
    Ambiguous {
        /// The word.
        word: String,
        /// The spellings that it abbreviates, separated by commas.
        options: String,
    },
    /// No value follows an option that takes one.
    #[error("argument {names}: expected one argument")]
    NoValue {
        /// The spellings of the option.
        names: String,
    },
    /// A flag has a value.
    #[error("argument {names}: ignored explicit argument {}", repr(.value))]
    ValueOfFlag {
        /// The spellings of the flag.
        names: String,
        /// The value.
        value: String,
    },
}

/// The variable `PET_<FLAG>` of a flag is not a whole number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: invalid literal for int() with base 10: {}", repr(.value))]
pub struct FlagError {
    /// Name of the variable.
    pub variable: String,
    /// Its value.
    pub value: String,
}
