//! Compact records of episode lines: 80 bytes for each, however long the line. The rest is read
//! again at its [`LinePosition`] when it is needed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;

use jobs::episode::{End, Episode, FeltLatency};
use jobs::job::JobIndex;
use jobs::time::Moment;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::journals::reader::LinePosition;

/// The part of an episode line that is kept in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EpisodeRecord {
    pub(crate) episode: u64,
    pub(crate) ended: Moment,
    pub(crate) return_: f64,
    /// Largest reward of a step. Rewards are `f32` in their source, too.
    pub(crate) max_reward: Option<f32>,
    pub(crate) place: LinePosition,
    /// Number of steps; it always fits.
    pub(crate) length: u32,
    pub(crate) rank: u32,
    /// Number of steps whose action was out of range.
    pub(crate) out_of_bounds: u32,
    pub(crate) dataset: Option<Name>,
    pub(crate) video: Option<Name>,
    pub(crate) instruction: Name,
    pub(crate) outcome: Result<Scored, Errored>,
    pub(crate) again: Repetition,
    /// Whether the line begins as [`jobs::journal`] writes it, so that it can be copied.
    pub(crate) is_ours: bool,
}

/// An error ended the episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errored;

/// The result of a scored episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scored {
    pub(crate) solved: bool,
    pub(crate) solved_at_end: Option<bool>,
}

/// Whether several lines score the episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Repetition {
    #[default]
    Once,
    /// Several lines score it and agree.
    Agreeing,
    /// Several lines score it and disagree.
    Differing,
}

impl EpisodeRecord {
    /// Returns whether the episode was scored.
    pub(crate) fn is_scored(&self) -> bool {
        self.outcome.is_ok()
    }

    /// Returns whether the episode was solved.
    pub(crate) fn is_solved(&self) -> bool {
        self.outcome.is_ok_and(|scored| scored.solved)
    }
}

/// The fields of an episode line that a report needs. All fields are parsed with their types in
/// [`Episode`], so an invalid line is counted as damaged here, instead of failing when it is read
/// again.
#[derive(Deserialize)]
pub(crate) struct EpisodeLine<'a> {
    #[serde(borrow, rename = "job")]
    _job: Cow<'a, str>,
    pub(crate) job_index: JobIndex,
    pub(crate) episode: u64,
    #[serde(rename = "seed")]
    _seed: u64,
    rank: usize,
    #[serde(rename = "env")]
    _env: usize,
    #[serde(rename = "rebuild")]
    _rebuild: u64,
    success: Option<bool>,
    #[serde(default)]
    success_at_end: Option<bool>,
    #[serde(rename = "end")]
    _end: End,
    length: u64,
    #[serde(rename = "return")]
    return_: f64,
    #[serde(default)]
    max_reward: Option<f32>,
    #[serde(borrow)]
    language_instruction: Cow<'a, str>,
    #[serde(rename = "wall_s")]
    _wall_s: f64,
    #[serde(rename = "infer_calls")]
    _infer_calls: u64,
    #[serde(default)]
    actions_out_of_bounds: u64,
    #[serde(default, rename = "latency")]
    _latency: Option<FeltLatency>,
    #[serde(borrow)]
    ended: Cow<'a, str>,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    dataset: Option<Dataset<'a>>,
    #[serde(borrow, default)]
    video: Option<Video<'a>>,
    #[serde(borrow, default, rename = "episode_video")]
    _episode_video: Option<Cow<'a, str>>,
    #[serde(default, rename = "metrics")]
    _metrics: NumberMap,
    #[serde(borrow, default)]
    pub(crate) run: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) fingerprint: Option<Cow<'a, str>>,
}

/// Has the fields of [`jobs::episode::DemoRef`].
#[derive(Deserialize)]
struct Dataset<'a> {
    #[serde(borrow)]
    file: Cow<'a, str>,
    #[serde(borrow, rename = "demo")]
    _demo: Cow<'a, str>,
}

/// Has the fields of [`jobs::episode::VideoRef`].
#[derive(Deserialize)]
struct Video<'a> {
    #[serde(borrow)]
    file: Cow<'a, str>,
    #[serde(rename = "first_frame")]
    _first_frame: u64,
    #[serde(rename = "frames")]
    _frames: u64,
    #[serde(default, rename = "fps")]
    _fps: Option<u32>,
}

/// Checks a map from names to numbers without keeping it.
#[derive(Default)]
struct NumberMap;

impl<'de> Deserialize<'de> for NumberMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NumberMapVisitor;
        impl<'de> Visitor<'de> for NumberMapVisitor {
            type Value = NumberMap;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("numbers by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NumberMap, A::Error> {
                while map.next_entry::<Cow<str>, f64>()?.is_some() {}
                Ok(NumberMap)
            }
        }
        from.deserialize_map(NumberMapVisitor)
    }
}

impl EpisodeLine<'_> {
    /// Returns the record of the line; adds file names and instructions to `names`.
    pub(crate) fn record(&self, place: LinePosition, names: &mut InternedNames) -> EpisodeRecord {
        let dataset = self
            .dataset
            .as_ref()
            .map(|dataset| names.number(&dataset.file));
        let video = self.video.as_ref().map(|video| names.number(&video.file));
        let scored = Scored {
            solved: self.success == Some(true),
            solved_at_end: self.success_at_end,
        };
        EpisodeRecord {
            episode: self.episode,
            ended: Moment::parse(&self.ended),
            return_: self.return_,
            max_reward: self.max_reward,
            place,
            length: u32::try_from(self.length).unwrap_or(u32::MAX),
            rank: u32::try_from(self.rank).unwrap_or(u32::MAX),
            out_of_bounds: u32::try_from(self.actions_out_of_bounds).unwrap_or(u32::MAX),
            dataset,
            video,
            instruction: names.number(&self.language_instruction),
            outcome: if self.error.is_some() {
                Err(Errored)
            } else {
                Ok(scored)
            },
            again: Repetition::Once,
            is_ours: true,
        }
    }
}

/// Returns which of two different lines about one episode counts: the first one that was scored,
/// otherwise the last error. If the times are equal, the texts decide, so that the order in which
/// journals are read does not matter.
pub(crate) fn counted(
    mut a: (EpisodeRecord, Episode),
    b: (EpisodeRecord, Episode),
    lines: [&[u8]; 2],
) -> (EpisodeRecord, Episode) {
    let b_is_later = (a.0.ended, lines[0]) < (b.0.ended, lines[1]);
    match (a.0.is_scored(), b.0.is_scored()) {
        (true, false) => a,
        (false, true) => b,
        (false, false) => {
            if b_is_later {
                b
            } else {
                a
            }
        }
        (true, true) => {
            let agree = a.1.outcome() == b.1.outcome();
            let again = if agree {
                Repetition::Agreeing
            } else {
                Repetition::Differing
            };
            let again = again.max(a.0.again).max(b.0.again);
            if !b_is_later {
                a = b;
            }
            a.0.again = again;
            a
        }
    }
}

/// Number of an interned file name or instruction, because these texts repeat often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(NonZeroU32);

impl Name {
    /// Returns the index of the text in [`InternedNames::texts`].
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Interned texts, by number.
#[derive(Debug, Default)]
pub(crate) struct InternedNames {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, Name>,
}

impl InternedNames {
    /// Returns the number of a text, which is added if it is new.
    pub(crate) fn number(&mut self, text: &str) -> Name {
        if let Some(name) = self.numbers.get(text) {
            return *name;
        }
        self.texts.push(text.into());
        // Saturates at four billion names, which no memory holds.
        let name = Name(NonZeroU32::MIN.saturating_add(self.texts.len() as u32 - 1));
        self.numbers.insert(text.into(), name);
        name
    }

    /// Returns the text of a number.
    pub(crate) fn text(&self, name: Name) -> &str {
        &self.texts[name.index()]
    }

    /// Returns all texts, in order of their numbers.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }
}
