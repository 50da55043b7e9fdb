//! The environment of the ranks: ours, under what the launch sets for all, under what each rank has of its own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;

/// What all ranks of this node have in common, as `exec` takes it: `NAME=value`, by name.
#[derive(Debug)]
pub struct Environment(BTreeMap<Vec<u8>, CString>);

impl Environment {
    /// Our own environment with these variables over it.
    pub fn inherited(over: &BTreeMap<String, String>) -> io::Result<Environment> {
        let ours = env::vars_os().map(|(name, value)| (name.into_vec(), value));
        let over = over.iter().map(|(name, value)| (name.clone().into_bytes(), OsString::from(value)));
        let entry = |(name, value): (Vec<u8>, OsString)| Ok((name.clone(), entry(name, value.into_vec())?));
        Ok(Environment(ours.chain(over).map(entry).collect::<io::Result<_>>()?))
    }

    /// The same with more variables over it; later maps win over earlier ones.
    pub fn with(&self, over: &[&BTreeMap<String, String>]) -> io::Result<Vec<Cow<'_, CStr>>> {
        let over: BTreeMap<&[u8], &[u8]> = over.iter().flat_map(|variables| variables.iter()).map(bytes).collect();
        let common = self.0.iter().filter(|(name, _)| !over.contains_key(name.as_slice()));
        let common = common.map(|(_, entry)| Ok(Cow::Borrowed(entry.as_c_str())));
        let own = over.iter().map(|(name, value)| Ok(Cow::Owned(entry(name.to_vec(), value.to_vec())?)));
        common.chain(own).collect()
    }
}

fn bytes<'a>((name, value): (&'a String, &'a String)) -> (&'a [u8], &'a [u8]) {
    (name.as_bytes(), value.as_bytes())
}

fn entry(mut name: Vec<u8>, value: Vec<u8>) -> io::Result<CString> {
    name.push(b'=');
    name.extend(value);
    Ok(CString::new(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_variable_is_there_once_and_the_last_word_counts() {
        let launch = Environment::inherited(&map(&[("A", "launch"), ("B", "launch"), ("C", "launch")]));
        let launch = launch.expect("no NUL in it");
        let own = [map(&[("A", "round"), ("B", "round")]), map(&[("A", "rank")])];
        let found = launch.with(&[&own[0], &own[1]]).expect("no NUL in it");
        let of =
            |name: &str| found.iter().filter(|entry| entry.to_bytes().starts_with(name.as_bytes())).collect::<Vec<_>>();
        assert_eq!(of("A="), [&Cow::Borrowed(c"A=rank")]);
        assert_eq!(of("B="), [&Cow::Borrowed(c"B=round")]);
        assert_eq!(of("C="), [&Cow::Borrowed(c"C=launch")]);
        assert_eq!(of("PATH=").len(), 1);
    }

    #[test]
    fn a_value_that_no_program_can_be_given_is_refused() {
        assert!(Environment::inherited(&map(&[("A", "a\0b")])).is_err());
    }
}
