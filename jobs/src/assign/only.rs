//! `--only`: selects jobs of a file, and episodes of these jobs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::job::{Job, JobIndex, Length, Status};
use crate::numbers::Numbers;
use crate::refusal::Refusal;

/// The selected jobs with their selected episodes; written as `push;reach:0,3-5`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Only(BTreeMap<String, Option<Numbers>>);

impl Only {
    /// Returns the selected jobs with their selected episodes, in the order of the file. They are
    /// the jobs of the run, so they are numbered anew.
    ///
    /// # Errors
    /// Refuses the first name or number that does not fit.
    pub fn choose(&self, jobs: Vec<Job>) -> Result<Vec<Job>, Refusal> {
        for (name, numbers) in &self.0 {
            let Some(job) = jobs.iter().find(|job| job.name == *name) else {
                let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
                return Err(Refusal::unknown("--only", "job", name, &names));
            };
            check(job, numbers.as_ref())?;
        }
        let mut chosen = Vec::new();
        for job in jobs {
            if let Some(only) = self.0.get(&job.name) {
                let index = JobIndex(chosen.len());
                let only = only.clone();
                chosen.push(Job { index, only, ..job });
            }
        }
        Ok(chosen)
    }
}

fn refused(reason: impl fmt::Display) -> Refusal {
    Refusal::at("--only", reason)
}

fn check(job: &Job, numbers: Option<&Numbers>) -> Result<(), Refusal> {
    let name = &job.name;
    if job.status != Status::Pending {
        let status = job.status.as_str();
        return Err(refused(format_args!(
            "job `{name}` is {status}, only pending jobs run"
        )));
    }
    match (numbers.map(Numbers::last), job.length) {
        (Some(found), Length::Episodes(count)) if found >= count => Err(refused(format_args!(
            "job `{name}` has no episode {found}: it has {count}, numbered from 0"
        ))),
        (Some(_), Length::Steps(_) | Length::Policy) => Err(refused(format_args!(
            "job `{name}` has no num_episodes, so its episodes cannot be chosen; use `{name}` \
             alone"
        ))),
        _ => Ok(()),
    }
}

impl FromStr for Only {
    type Err = Refusal;

    /// A job that is named twice runs the episodes of both entries; an entry without numbers
    /// selects the whole job.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let mut jobs: BTreeMap<String, Option<Numbers>> = BTreeMap::new();
        for piece in text
            .split(';')
            .map(str::trim)
            .filter(|piece| !piece.is_empty())
        {
            let (name, numbers) = entry(piece)?;
            let joined = match (jobs.remove(&name), numbers) {
                (None, numbers) => numbers,
                (Some(Some(before)), Some(numbers)) => Some(before.union(&numbers)),
                (Some(_), _) => None,
            };
            jobs.insert(name, joined);
        }
        if jobs.is_empty() {
            return Err(Refusal::new(
                "no job is named, expected `JOB` or `JOB:0,3-5`",
            ));
        }
        Ok(Self(jobs))
    }
}

/// Parses one entry. A job name may contain colons; text after the last one that looks like numbers
/// is taken as numbers.
fn entry(piece: &str) -> Result<(String, Option<Numbers>), Refusal> {
    let looks_like_numbers = |text: &str| {
        text.chars()
            .all(|letter| letter.is_ascii_digit() || ",- ".contains(letter))
    };
    match piece.rsplit_once(':') {
        Some((name, numbers)) if looks_like_numbers(numbers) => {
            Ok((name.trim().to_owned(), Some(numbers.parse()?)))
        }
        _ => Ok((piece.to_owned(), None)),
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (name, numbers)) in self.0.iter().enumerate() {
            f.write_str(if nth > 0 { ";" } else { "" })?;
            f.write_str(name)?;
            if let Some(numbers) = numbers {
                write!(f, ":{numbers}")?;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Only {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<Only> for String {
    fn from(only: Only) -> Self {
        only.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use serde_json::json;

    fn jobs() -> Vec<Job> {
        samples::jobs([
            json!({"name": "reach", "num_episodes": 6}),
            json!({"name": "push", "num_episodes": 6, "status": "completed"}),
            json!({"name": "walk", "num_episodes": null, "num_steps": 6}),
        ])
    }

    fn choose(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
        let only = text.parse::<Only>().map_err(|err| err.to_string())?;
        let chosen = only.choose(jobs()).map_err(|err| err.to_string())?;
        Ok(chosen
            .into_iter()
            .map(|job| (job.name, job.only.map(String::from)))
            .collect())
    }

    #[test]
    fn jobs_stay_in_the_order_of_the_file_and_numbers_are_joined() {
        let chosen = choose("walk; reach:5,0,3-4, 1").unwrap();
        let wanted = [
            ("reach".to_owned(), Some("0-1,3-5".to_owned())),
            ("walk".to_owned(), None),
        ];
        assert_eq!(chosen, wanted);
        let expected = Some("0,2");
        assert_eq!(choose("reach:0;reach:2").unwrap()[0].1.as_deref(), expected);
        assert_eq!(choose("reach:0;reach").unwrap()[0].1, None);
        let walk = "walk".parse::<Only>().unwrap().choose(jobs()).unwrap();
        assert_eq!(walk[0].index, JobIndex(0), "the first of the run");
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let refusal = |text: &str| choose(text).unwrap_err();
        let found = refusal("raech");
        assert_eq!(found, "--only: unknown job `raech`; did you mean `reach`?");
        let all = "--only: unknown job `x:y`; expected one of reach, push, walk";
        assert_eq!(refusal("x:y"), all);
        let wanted = "--only: job `push` is completed, only pending jobs run";
        assert_eq!(refusal("push"), wanted);
        assert_eq!(
            refusal("reach:2-6"),
            "--only: job `reach` has no episode 6: it has 6, numbered from 0"
        );
        assert!(refusal("walk:1").starts_with("--only: job `walk` has no num_episodes, so its"));
        assert_eq!(
            refusal("reach:5-2"),
            "`5-2` is not a list of episodes: expected numbers and ranges, for example `0,3-5`"
        );
        assert_eq!(
            refusal("reach:"),
            "`` is not a list of episodes: expected numbers and ranges, for example `0,3-5`"
        );
        assert!(refusal(" ; ").starts_with("no job is named"));
    }

    #[test]
    fn a_choice_is_a_text_in_the_plan() {
        let only: Only = "b;a:3,1".parse().unwrap();
        assert_eq!(serde_json::to_value(&only).unwrap(), json!("a:1,3;b"));
        let found = serde_json::from_value::<Only>(json!("a:1,3;b")).unwrap();
        assert_eq!(found, only);
    }
}
