//! Stamps: the run, launch and job that a line belongs to. A stamp is the end of its line:
//! `…,"run":"5f1c…","launch":"09ab…","fingerprint":"77de…"}`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::job::JobIndex;
use crate::journal::{Line, parsed};
use crate::numbers::Numbers;

/// The run, launch and job that a line belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Stamp<'a> {
    /// Id of the run, [`crate::plan::RunPlan::id`].
    #[serde(borrow)]
    pub run: Option<Cow<'a, str>>,
    /// Id of the launch, see [`crate::launch`].
    #[serde(borrow)]
    pub launch: Option<Cow<'a, str>>,
    /// Fingerprint of the job, see [`crate::plan::fingerprint`]; only on lines about a job.
    #[serde(borrow)]
    pub fingerprint: Option<Cow<'a, str>>,
}

impl<'a> Stamp<'a> {
    /// Returns the stamp of a line; an empty one if the line has none.
    pub fn of(line: &'a [u8]) -> Self {
        // The line of an episode is read a million times, and its stamp is its end.
        let stamp = Self::at_end(line).filter(|stamp| stamp.run.is_some());
        stamp.unwrap_or_else(|| serde_json::from_slice(line).unwrap_or_default())
    }

    fn at_end(line: &'a [u8]) -> Option<Self> {
        let mut stamp = Self::default();
        let mut rest = line.strip_suffix(b"}")?;
        loop {
            let Some((before, value)) = last_text(rest) else {
                return Some(stamp);
            };
            let (before, key) = last_text(before.strip_suffix(b":")?)?;
            let field = match key {
                "run" => &mut stamp.run,
                "launch" => &mut stamp.launch,
                "fingerprint" => &mut stamp.fingerprint,
                _ => return Some(stamp),
            };
            *field = Some(value.into());
            rest = before.strip_suffix(b",")?;
        }
    }

    /// Appends the stamp to the text of a line, which must be a JSON object with at least one
    /// field.
    pub fn seal(&self, text: &mut Vec<u8>) {
        let fields = [
            ("run", &self.run),
            ("launch", &self.launch),
            ("fingerprint", &self.fingerprint),
        ];
        let fields = fields
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let close = text.pop();
        for (name, value) in fields {
            let value = serde_json::Value::from(&**value);
            text.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
        }
        text.extend(close);
    }
}

/// Splits JSON that ends with a string, without escapes, in front of this string.
fn last_text(json: &[u8]) -> Option<(&[u8], &str)> {
    let json = json.strip_suffix(b"\"")?;
    let quote = json.iter().rposition(|byte| *byte == b'"')?;
    let (before, text) = (&json[..quote], &json[quote + 1..]);
    let is_plain = !before.ends_with(b"\\") && !text.contains(&b'\\');
    let text = std::str::from_utf8(text).ok()?;
    is_plain.then_some((before, text))
}

/// The stamps that the writer of a journal puts on its lines.
#[derive(Clone, Debug, Default)]
pub struct Stamps {
    /// Stamp of the lines that are not about a job.
    pub plain: Stamp<'static>,
    /// Fingerprints of the jobs by name, for lines about a job.
    pub jobs: BTreeMap<String, String>,
}

impl Stamps {
    pub(super) fn of(&self, line: &Line) -> Stamp<'_> {
        let fingerprint = line.job().and_then(|(name, _)| self.jobs.get(name));
        Stamp {
            fingerprint: fingerprint.map(|of_job| of_job.into()),
            ..self.plain.clone()
        }
    }
}

/// Whose a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrigin {
    /// The line belongs to the run of the plan, and to one of its jobs.
    Own,
    /// The line belongs to another run or says of none, or to a job that has changed since or is
    /// not in the plan.
    Foreign,
    /// Of an episode that the plan does not have.
    Unplanned,
}

/// The runs and jobs of a plan whose lines count as results. The default accepts every line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Ids of the accepted runs; if empty, every run is accepted.
    pub(crate) runs: HashSet<String>,
    /// The jobs by name; `None` accepts every job, and knows no position.
    pub(crate) jobs: Option<HashMap<String, AcceptedJob>>,
}

/// A job of a plan, as far as it decides which lines count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcceptedJob {
    /// Position of the job in the plan.
    pub(crate) index: JobIndex,
    /// Accepted fingerprints; if empty, every one is accepted.
    pub(crate) fingerprints: Vec<String>,
    /// Its episodes; `None` for a job that does not count them, and takes every one.
    pub(crate) planned: Option<Numbers>,
}

impl Accepted {
    /// Accepts the same jobs of any run: lines that a rank of this launch delivers may come from a
    /// folder of its own node, where the run has another id.
    pub fn of_any_run(&self) -> Self {
        Self {
            runs: HashSet::new(),
            ..self.clone()
        }
    }

    /// Parses a line, sets the position of the job that it names, and says whose it is.
    ///
    /// # Errors
    /// Returns an error for what is no line of a journal.
    pub fn judge(&self, text: &[u8]) -> serde_json::Result<(Line, LineOrigin)> {
        let mut line = parsed(text)?;
        let origin = self.origin(&mut line, &Stamp::of(text));
        Ok((line, origin))
    }

    fn origin(&self, line: &mut Line, stamp: &Stamp) -> LineOrigin {
        let is_of_run = (stamp.run.as_ref()).is_some_and(|run| self.runs.contains(&**run));
        if !self.runs.is_empty() && !is_of_run {
            return LineOrigin::Foreign;
        }
        let episode = line.episode();
        let (Some((name, _)), Some(jobs)) = (line.job(), &self.jobs) else {
            return LineOrigin::Own;
        };
        let Some(job) = jobs.get(name) else {
            return LineOrigin::Foreign;
        };
        line.set_job_index(job.index);
        match (&*job.fingerprints, &stamp.fingerprint) {
            (known @ [_, ..], Some(found)) if !known.iter().any(|known| known == found) => {
                LineOrigin::Foreign
            }
            _ => match (&job.planned, episode) {
                (Some(planned), Some(episode)) if !planned.has(episode) => LineOrigin::Unplanned,
                _ => LineOrigin::Own,
            },
        }
    }
}

/// The runs and jobs whose lines count as results, as written in `plan.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Ids of runs: this run, and for a merged folder the runs that it was merged from.
    pub runs: Vec<String>,
    /// Fingerprints of each job, by its name. They are stored because another version of `rrun` may
    /// compute them differently.
    pub jobs: BTreeMap<String, Vec<String>>,
}
