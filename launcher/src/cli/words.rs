//! Splits a command line as torchrun's argparse does: into options, their values, and the program
//! with its arguments.
//!
//! ```text
//! -r3 --nproc_per 2 --stand -- train.py --lr 1
//!  └► redirects=3, nproc-per-node=2, standalone       program: train.py   args: --lr 1
//! ```
//! Options end at the first word that is not an option. The first `--` is dropped if it is right
//! before the program or right after it, as in argparse: `train.py -- --lr 1` gives the program
//! `--lr 1`. Any other `--` belongs to the program. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::{ArgAction, Command};

use crate::cli::error::WordError;

/// Options that torchrun does not have. They cannot be abbreviated, so that they never make an
/// abbreviation of torchrun's ambiguous.
const OUR_OWN: &[&str] = &[
    "dry-run",
    "kubernetes",
    "rusage",
    "slurm",
    "version",
    "write-man",
];

/// The names of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// The long name without dashes, as `nproc-per-node`.
    pub long: String,
    /// The short name, as `r`.
    pub short: Option<char>,
    /// Whether the option takes a value.
    pub takes_value: bool,
    /// Whether the option may have a value after `=`. The next word is never its value, because it
    /// may be the program.
    pub may_have_value: bool,
}

impl Spelling {
    /// Returns the options that `command` declares.
    pub fn of(command: &Command) -> Vec<Spelling> {
        let options = command
            .get_arguments()
            .filter_map(|arg| Some((arg.get_long()?, arg)));
        options
            .map(|(long, arg)| Spelling {
                long: long.to_owned(),
                short: arg.get_short(),
                takes_value: matches!(arg.get_action(), ArgAction::Set)
                    && !arg.is_require_equals_set(),
                may_have_value: arg.is_require_equals_set(),
            })
            .collect()
    }

    /// Returns all names as argparse lists them: `-r/--redirects`,
    /// `--nproc-per-node/--nproc_per_node`.
    pub fn names(&self) -> String {
        let short = self.short.map(|short| format!("-{short}"));
        let names: Vec<String> = short.into_iter().chain(self.longs()).collect();
        names.join("/")
    }

    /// Returns the variable's name without its prefix: `NPROC_PER_NODE`.
    pub fn variable(&self) -> String {
        self.long.replace('-', "_").to_uppercase()
    }

    fn longs(&self) -> Vec<String> {
        let (dashed, underscored) = (
            format!("--{}", self.long),
            format!("--{}", self.long.replace('-', "_")),
        );
        if dashed == underscored {
            vec![dashed]
        } else {
            vec![dashed, underscored]
        }
    }
}

/// The parts of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split<'a> {
    /// The options in order, with their values.
    pub options: Vec<(&'a Spelling, Option<OsString>)>,
    /// Words before the program that look like options but are unknown.
    pub unknown: Vec<OsString>,
    /// The program, and everything after it unchanged, except for a `--` right after the program.
    pub program: Vec<OsString>,
}

/// Splits `words`.
///
/// # Errors
/// Returns argparse's text for an ambiguous option, a missing value, or an unexpected value.
pub fn split<'a>(words: Vec<OsString>, spellings: &'a [Spelling]) -> Result<Split<'a>, WordError> {
    let mut split = Split::default();
    let mut words = words.into_iter().peekable();
    let mut has_dashes = false;
    while let Some(word) = words.next_if(|word| is_dashed(word)) {
        if word == "--" {
            has_dashes = true;
            break;
        }
        let Some(found) = find(&word, spellings)? else {
            split.unknown.push(word);
            continue;
        };
        for (spelling, value) in found {
            let value = match (spelling.takes_value, value) {
                (true, None) => {
                    let value = words.next_if(|word| is_value(word, spellings));
                    Some(value.ok_or_else(|| WordError::NoValue {
                        names: spelling.names(),
                    })?)
                }
                (_, value) => value,
            };
            split.options.push((spelling, value));
        }
    }
    split.program = words.collect();
    if !has_dashes && split.program.get(1).is_some_and(|word| word == "--") {
        split.program.remove(1);
    }
    Ok(split)
}

/// An option that a word names, and its value if it has one.
pub type GivenOption<'a> = (&'a Spelling, Option<OsString>);

fn is_dashed(word: &OsStr) -> bool {
    word.len() > 1 && word.as_bytes()[0] == b'-'
}

/// Returns whether `word` can be a value: negative numbers and texts with blanks can, although they
/// begin with a dash.
fn is_value(word: &OsStr, spellings: &[Spelling]) -> bool {
    let is_unknown = || matches!(find(word, spellings), Ok(None));
    !is_dashed(word)
        || (is_unknown() && (is_negative_number(word) || word.as_bytes().contains(&b' ')))
}

/// Returns whether a word is a negative number: `-3`, `-.5`, `-1.5`.
fn is_negative_number(word: &OsStr) -> bool {
    let number = word.to_str().and_then(|text| text.strip_prefix('-'));
    let (whole, fraction) = number.map_or(("", None), |text| match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    });
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits(whole)
        && fraction.map_or(!whole.is_empty(), |text| {
            !text.is_empty() && is_digits(text)
        })
}

/// Returns the options that a word with a leading dash names, or `None` if it is unknown.
fn find<'a>(
    word: &OsStr,
    spellings: &'a [Spelling],
) -> Result<Option<Vec<GivenOption<'a>>>, WordError> {
    let bytes = word.as_bytes();
    if !bytes.starts_with(b"--") {
        return find_short(bytes, spellings);
    }
    let equals = bytes.iter().position(|&byte| byte == b'=');
    let (name, value) = match equals {
        Some(at) => (&bytes[..at], Some(os(&bytes[at + 1..]))),
        None => (bytes, None),
    };
    let Some(name) = std::str::from_utf8(name).ok().filter(|name| name.len() > 2) else {
        return Ok(None);
    };
    let Some(spelling) = find_long(name, word, spellings)? else {
        return Ok(None);
    };
    match value {
        Some(value) if !(spelling.takes_value || spelling.may_have_value) => {
            Err(superfluous(spelling, &value))
        }
        value => Ok(Some(vec![(spelling, value)])),
    }
}

/// Returns the option with this exact name, otherwise the one with the only spelling that `name`
/// abbreviates. As in argparse, two spellings of one option count separately: `--nproc` abbreviates
/// both `--nproc-per-node` and `--nproc_per_node`.
fn find_long<'a>(
    name: &str,
    word: &OsStr,
    spellings: &'a [Spelling],
) -> Result<Option<&'a Spelling>, WordError> {
    if let Some(exact) = spellings
        .iter()
        .find(|spelling| spelling.longs().iter().any(|long| long == name))
    {
        return Ok(Some(exact));
    }
    let torchrun_s = spellings
        .iter()
        .filter(|spelling| !OUR_OWN.contains(&spelling.long.as_str()));
    let longs = torchrun_s.flat_map(|spelling| {
        spelling
            .longs()
            .into_iter()
            .map(move |long| (spelling, long))
    });
    let matches: Vec<(&Spelling, String)> =
        longs.filter(|(_, long)| long.starts_with(name)).collect();
    match matches.as_slice() {
        [] => Ok(None),
        [(spelling, _)] => Ok(Some(spelling)),
        several => {
            let longs: Vec<&str> = several.iter().map(|(_, long)| long.as_str()).collect();
            Err(WordError::Ambiguous {
                word: word.to_string_lossy().into_owned(),
                options: longs.join(", "),
            })
        }
    }
}

/// Parses short options: `-r3`, `-r=3`, `-r`, and flags before it in one word: `-mr3`.
fn find_short<'a>(
    word: &[u8],
    spellings: &'a [Spelling],
) -> Result<Option<Vec<GivenOption<'a>>>, WordError> {
    let mut found: Vec<GivenOption<'a>> = Vec::new();
    let mut rest = &word[1..];
    while let Some((&short, after)) = rest.split_first() {
        let Some(spelling) = spellings
            .iter()
            .find(|spelling| spelling.short == Some(char::from(short)))
        else {
            return found
                .last()
                .map_or(Ok(None), |(flag, _)| Err(superfluous(flag, &os(rest))));
        };
        if spelling.takes_value {
            let value = after
                .strip_prefix(b"=")
                .or((!after.is_empty()).then_some(after));
            found.push((spelling, value.map(os)));
            return Ok(Some(found));
        }
        found.push((spelling, None));
        rest = after;
    }
    Ok(Some(found))
}

fn superfluous(flag: &Spelling, value: &OsStr) -> WordError {
    WordError::ValueOfFlag {
        names: flag.names(),
        value: value.to_string_lossy().into_owned(),
    }
}

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use proptest::prelude::*;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn an_exact_name_wins_over_longer_ones() {
        let spelling = |long: &str| Spelling {
            long: long.to_owned(),
            short: None,
            takes_value: false,
            may_have_value: false,
        };
        let spellings = [spelling("log-dir"), spelling("log")];
        let split = split(vec!["--log".into()], &spellings).unwrap();
        assert_eq!(split.options[0].0.long, "log");
    }

    #[test]
    fn words_that_are_not_text_are_kept() {
        let spellings = Spelling::of(&Cli::command());
        let words = [&b"--rdzv-id=\xff"[..], b"\xfe"].map(os).to_vec();
        let split = split(words, &spellings).unwrap();
        assert_eq!(split.options[0].1, Some(os(b"\xff")));
        assert_eq!(split.program, [os(b"\xfe")]);
    }

    proptest! {
        #[test]
        fn no_command_line_makes_it_panic_and_the_program_s_words_survive(
            words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 0..8)
        ) {
            let spellings = Spelling::of(&Cli::command());
            let mut line: Vec<OsString> = vec!["-m".into(), "program".into()];
            line.extend(words.iter().map(|word| os(word)));
            let words: Vec<OsString> = words.iter().map(|word| os(word)).collect();
            let dropped = usize::from(words.first().is_some_and(|word| word == "--"));
            prop_assert_eq!(&split(line, &spellings).unwrap().program[1..], &words[dropped..]);
            let _ = split(words, &spellings);
        }
    }
}
