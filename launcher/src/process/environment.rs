//! Builds the environment of the ranks in layers: the launcher's own, what the launch sets for all
//! ranks, and what each rank has for itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;

/// The environment that all ranks of this node share, as `NAME=value` entries for `exec`, sorted by
/// name.
#[derive(Debug)]
pub struct ChildEnvironment(BTreeMap<Vec<u8>, CString>);

impl ChildEnvironment {
    /// Returns the launcher's environment, overridden by these variables.
    pub fn inherited(over: &BTreeMap<String, String>) -> io::Result<ChildEnvironment> {
        let ours = env::vars_os().map(|(name, value)| (name.into_vec(), value));
        let over = over
            .iter()
            .map(|(name, value)| (name.clone().into_bytes(), OsString::from(value)));
        let entry =
            |(name, value): (Vec<u8>, OsString)| Ok((name.clone(), entry(name, value.into_vec())?));
        Ok(ChildEnvironment(
            ours.chain(over).map(entry).collect::<io::Result<_>>()?,
        ))
    }

    /// Returns the entries overridden by these variables; later maps override earlier ones.
    pub fn with(&self, over: &[&BTreeMap<String, String>]) -> io::Result<Vec<Cow<'_, CStr>>> {
        let over: BTreeMap<&[u8], &[u8]> = over
            .iter()
            .flat_map(|variables| variables.iter())
            .map(bytes)
            .collect();
        let common = self
            .0
            .iter()
            .filter(|(name, _)| !over.contains_key(name.as_slice()));
        let common = common.map(|(_, entry)| Ok(Cow::Borrowed(entry.as_c_str())));
        let own = over
            .iter()
            .map(|(name, value)| Ok(Cow::Owned(entry(name.to_vec(), value.to_vec())?)));
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
        variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn each_variable_is_there_once_and_the_last_word_counts() {
        let launch =
            ChildEnvironment::inherited(&map(&[("A", "launch"), ("B", "launch"), ("C", "launch")]));
        let launch = launch.expect("no NUL in it");
        let own = [
            map(&[("A", "round"), ("B", "round")]),
            map(&[("A", "rank")]),
        ];
        let found = launch.with(&[&own[0], &own[1]]).expect("no NUL in it");
        let of = |name: &str| {
            found
                .iter()
                .filter(|entry| entry.to_bytes().starts_with(name.as_bytes()))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("A="), [&Cow::Borrowed(c"A=rank")]);
        assert_eq!(of("B="), [&Cow::Borrowed(c"B=round")]);
        assert_eq!(of("C="), [&Cow::Borrowed(c"C=launch")]);
        assert_eq!(of("PATH=").len(), 1);
    }

    #[test]
    fn a_value_that_no_program_can_be_given_is_refused() {
        assert!(ChildEnvironment::inherited(&map(&[("A", "a\0b")])).is_err());
    }
}
