//! Compact records of episode lines: 80 bytes for each, however long the line. The rest is read
//! again at its [`LinePosition`] when it is needed.

use std::collections::HashMap;
use std::num::NonZeroU32;

use jobs::episode::Episode;
use jobs::time::Moment;

use crate::journals::LinePosition;

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
    /// `None` if an error ended the episode.
    pub(crate) outcome: Option<Scored>,
    pub(crate) again: Repetition,
}

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
    /// Returns the record of a line; adds file names and instructions to `names`.
    pub(crate) fn of(episode: &Episode, place: LinePosition, names: &mut InternedNames) -> Self {
        let scored = Scored {
            solved: episode.success == Some(true),
            solved_at_end: episode.success_at_end,
        };
        let (dataset, video) = (episode.dataset.as_ref(), episode.video.as_ref());
        Self {
            episode: episode.episode,
            ended: Moment::parse(&episode.ended),
            return_: episode.return_,
            max_reward: episode.max_reward.map(|reward| reward as f32),
            place,
            length: u32::try_from(episode.length).unwrap_or(u32::MAX),
            rank: u32::try_from(episode.rank).unwrap_or(u32::MAX),
            out_of_bounds: u32::try_from(episode.actions_out_of_bounds).unwrap_or(u32::MAX),
            dataset: dataset.map(|demo| names.number(&demo.file)),
            video: video.map(|video| names.number(&video.file)),
            instruction: names.number(&episode.language_instruction),
            outcome: episode.error.is_none().then_some(scored),
            again: Repetition::Once,
        }
    }

    /// Returns whether the episode was scored.
    pub(crate) fn is_scored(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns whether the episode was solved.
    pub(crate) fn is_solved(&self) -> bool {
        self.outcome.is_some_and(|scored| scored.solved)
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
