//! `--path [THERE=]HERE`: where a file or folder that a certificate names is on this machine, and
//! whether its policies are the same there.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use jobs::count::counted;
use jobs::sha256;
use report::certificate::CertifiedFiles;
use serde_json::Value;

/// A path of another machine, and where the same file or folder is on this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    there: String,
    here: String,
}

/// Replaces paths in the jobs of a certificate, as `given` says. The policies that are elsewhere on
/// this machine have to be those of the certificate, or `all_alike`.
pub(super) fn apply(
    given: &[String],
    jobs: &mut Value,
    policies: &[CertifiedFiles],
    all_alike: bool,
) -> anyhow::Result<Vec<Place>> {
    let mut places = Vec::new();
    for text in given {
        let place = Place::read(text, jobs, policies)?;
        place.replace(jobs);
        places.push(place);
    }
    for files in policies {
        let moved = here(&places, &files.path);
        let path = moved.as_deref().unwrap_or(&files.path);
        if moved.is_some() || Path::new(path).exists() {
            if moved.is_none() && !all_alike {
                continue;
            }
            let found =
                sha256::of_files(path.as_ref(), |file| sha256::of_reader(File::open(file)?));
            let found = found.with_context(|| format!("cannot read the policy `{path}`"))?;
            ensure!(
                found.sha256 == files.sha256,
                "the policy `{path}` is not the one that was evaluated: its SHA-256 is {}, that of \
                 `{}` was {}",
                found.sha256,
                files.path,
                files.sha256
            );
        } else if is_named(&files.path, jobs) {
            // The path of a model of the Hugging Face Hub is in the cache of the author's machine,
            // and the jobs have its name.
            bail!("the policy `{path}` is not on this machine; use --path to say where it is");
        }
    }
    Ok(places)
}

/// Returns where a path of the other machine is here, if it is one of these places.
pub(super) fn here(places: &[Place], path: &str) -> Option<String> {
    places.iter().find_map(|place| place.of(path))
}

/// Returns whether the jobs name a path, or something below it.
fn is_named(path: &str, jobs: &Value) -> bool {
    // A place that changes nothing finds what one that does would replace.
    Place::new(path, path).replace(&mut jobs.clone()) > 0
}

impl Place {
    fn new(there: &str, here: &str) -> Self {
        Self {
            there: there.to_owned(),
            here: here.to_owned(),
        }
    }

    /// Reads a value of the option. Both paths may contain `=`, so the jobs decide where the first
    /// one ends.
    fn read(text: &str, jobs: &Value, policies: &[CertifiedFiles]) -> anyhow::Result<Self> {
        let pairs = text
            .match_indices('=')
            .map(|(at, _)| (&text[..at], &text[at + 1..]));
        let mut pairs = pairs.filter(|(there, here)| !there.is_empty() && !here.is_empty());
        if let Some((there, here)) = pairs.clone().find(|(there, _)| is_named(there, jobs)) {
            return Ok(Self::new(there, here));
        }
        if let Some((there, _)) = pairs.next().filter(|_| !Path::new(text).exists()) {
            bail!("--path: `{there}` is in no job");
        }
        let paths = policies.iter().map(|files| files.path.as_str());
        let named: BTreeSet<_> = paths.filter(|path| is_named(path, jobs)).collect();
        match named.first() {
            Some(there) if named.len() == 1 => Ok(Self::new(there, text)),
            _ => bail!(
                "--path: expected THERE={text}, because the jobs name {} of policies",
                counted(named.len(), "path")
            ),
        }
    }

    /// Returns where a path of the other machine is here, if it is the mapped one, below it, or an
    /// entry point in it (`policy.py:make`).
    fn of(&self, path: &str) -> Option<String> {
        let rest = path
            .strip_prefix(&self.there)
            .filter(|rest| rest.is_empty() || rest.starts_with(['/', ':']))?;
        Some(format!("{}{rest}", self.here))
    }

    /// Replaces the path in all texts but the names of jobs. Returns how often it occurred.
    fn replace(&self, value: &mut Value) -> usize {
        match value {
            Value::String(text) => {
                let Some(here) = self.of(text) else { return 0 };
                *text = here;
                1
            }
            Value::Array(items) => items.iter_mut().map(|item| self.replace(item)).sum(),
            Value::Object(fields) => fields
                .iter_mut()
                .filter(|(name, _)| *name != "name")
                .map(|(_, field)| self.replace(field))
                .sum(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn jobs() -> Value {
        json!({"jobs": [{"name": "a/b", "policy_config_dict": {"model_path": "a/b"},
            "arena_env_args": {"environment": "a/b/envs.py:make", "texture": "a/bc"}}]})
    }

    #[test]
    fn a_path_is_replaced_with_what_is_below_it_and_nothing_else() {
        let mut jobs = jobs();
        assert_eq!(Place::new("a/b", "/here").replace(&mut jobs), 2);
        let job = &jobs["jobs"][0];
        assert_eq!(job["name"], "a/b");
        assert_eq!(job["policy_config_dict"]["model_path"], "/here");
        assert_eq!(job["arena_env_args"]["environment"], "/here/envs.py:make");
        assert_eq!(job["arena_env_args"]["texture"], "a/bc");
    }

    #[test]
    fn another_policy_is_refused_where_it_was_named_or_all_have_to_be_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy");
        std::fs::write(&path, "others").unwrap();
        let path = path.to_str().unwrap();
        let policies = [CertifiedFiles {
            policy_type: "torchscript".to_owned(),
            path: path.to_owned(),
            sha256: "0".to_owned(),
            bytes: 1,
        }];
        let named = [format!("{path}={path}")];
        for (given, all_alike, is_refused) in [
            (&[][..], true, true),
            (&[][..], false, false),
            (&named[..], false, true),
        ] {
            let mut jobs = json!({"jobs": [{"policy_config_dict": {"model_path": path}}]});
            let found = apply(given, &mut jobs, &policies, all_alike);
            assert_eq!(found.is_err(), is_refused, "{given:?} {all_alike}");
        }
    }

    #[test]
    fn a_place_has_two_sides_or_is_that_of_the_only_policy() {
        let policy = |path: &str| CertifiedFiles {
            policy_type: "gr00t".to_owned(),
            path: path.to_owned(),
            sha256: String::new(),
            bytes: 0,
        };
        let read = |text: &str, policies: &[CertifiedFiles]| {
            Place::read(text, &jobs(), policies).map_err(|err| err.to_string())
        };
        // Of the Hugging Face Hub, which no job names.
        let one = [policy("a/b"), policy("/cache/models--x")];
        let same = Place::new("a/b", "x=1");
        assert_eq!(read("a/b=x=1", &one), Ok(same));
        assert_eq!(read("here", &one), Ok(Place::new("a/b", "here")));
        for (text, policies, told) in [
            ("b=c", &one[..], "--path: `b` is in no job"),
            (
                "a/b=",
                &[],
                "--path: expected THERE=a/b=, because the jobs name 0 paths of policies",
            ),
            (
                "here",
                &[policy("a/b"), policy("a/bc")],
                "--path: expected THERE=here, because the jobs name 2 paths of policies",
            ),
        ] {
            assert_eq!(read(text, policies).unwrap_err(), told);
        }
    }
}
