//! Words of a command line.

use std::ffi::{OsStr, OsString};

/// One text that is split at its blanks, or a list of words.
pub trait Words {
    /// Returns the words.
    fn words(self) -> Vec<OsString>;
}

impl Words for &str {
    fn words(self) -> Vec<OsString> {
        self.split_whitespace().map(OsString::from).collect()
    }
}

fn each(words: &[impl AsRef<OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

impl<S: AsRef<OsStr>, const N: usize> Words for [S; N] {
    fn words(self) -> Vec<OsString> {
        each(&self)
    }
}

impl<S: AsRef<OsStr>, const N: usize> Words for &[S; N] {
    fn words(self) -> Vec<OsString> {
        each(self)
    }
}

impl<S: AsRef<OsStr>> Words for &[S] {
    fn words(self) -> Vec<OsString> {
        each(self)
    }
}

impl<S: AsRef<OsStr>> Words for &Vec<S> {
    fn words(self) -> Vec<OsString> {
        each(self)
    }
}
