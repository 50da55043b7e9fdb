//! Words that name no file: the programs and tools that `rrun` brings, and `help`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use jobs::known::nearest;

use crate::tools;

/// Programs that ranks run.
pub const PROGRAMS: [&str; 2] = ["eval", "serve"];

/// Programs and tools.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.into_iter().chain(tools::NAMES)
}

/// `help` as `--help`, and `help eval` as `eval --help`; other words as they are, and all of them where a file of that name
/// is there to be run.
pub fn without_help(words: Vec<OsString>) -> Vec<OsString> {
    if words.first().is_none_or(|word| word != "help") || Path::new("help").exists() {
        return words;
    }
    let about = words.get(1).and_then(|word| names().find(|name| word == name));
    about.into_iter().chain(["--help"]).map(OsString::from).collect()
}

/// The word that is meant by one that names no file: a plain word, and near enough.
pub fn meant_by(program: &OsStr) -> Option<&'static str> {
    let word = program.to_str().filter(|word| !word.contains(['/', '.']) && !Path::new(word).exists())?;
    nearest(word, &names().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Vec<OsString> {
        without_help(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn help_is_no_script() {
        assert_eq!(read(&["help"]), ["--help"]);
        assert_eq!(read(&["help", "eval"]), ["eval", "--help"]);
        assert_eq!(read(&["help", "me"]), ["--help"]);
        assert_eq!(read(&["train.py", "help"]), ["train.py", "help"]);
    }

    #[test]
    fn a_misspelt_word_is_known_and_a_script_is_left_alone() {
        let meant = |word: &str| meant_by(OsStr::new(word));
        assert_eq!([meant("evall"), meant("sevre"), meant("reprot")], [Some("eval"), Some("serve"), Some("report")]);
        assert_eq!([meant("train.py"), meant("./evall"), meant("train"), meant("src")], [None; 4]);
    }
}
