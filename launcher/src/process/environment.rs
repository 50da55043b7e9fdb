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
        let over = over.iter();
        let over = over.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let all = env::vars_os().chain(over);
        let entries = all.map(|(name, value)| {
            let name = name.into_vec();
            Ok((name.clone(), entry(name, value.into_vec())?))
        });
        Ok(ChildEnvironment(entries.collect::<io::Result<_>>()?))
    }

    /// Returns the entries overridden by these variables; later maps override earlier ones.
    pub fn with(&self, over: &[&BTreeMap<String, String>]) -> io::Result<Vec<Cow<'_, CStr>>> {
        let over = over.iter().copied().flatten();
        let over: BTreeMap<&[u8], &String> =
            over.map(|(name, value)| (name.as_bytes(), value)).collect();
        let is_common = |(name, _): &(&Vec<u8>, &CString)| !over.contains_key(name.as_slice());
        let common = self.0.iter().filter(is_common);
        let common = common.map(|(_, entry)| Ok(Cow::Borrowed(entry.as_c_str())));
        let own = over.iter().map(|(name, value)| {
            let value = value.as_bytes().to_vec();
            Ok(Cow::Owned(entry(name.to_vec(), value)?))
        });
        common.chain(own).collect()
    }
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
