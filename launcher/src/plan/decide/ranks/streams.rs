//! Parses `-r` and `-t`: which output streams of which rank.

use anyhow::Context as _;

use crate::plan::Streams;

/// The selected streams of each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamMap {
    /// The same for all ranks.
    All(Streams),
    /// By local rank. If a rank is repeated, the last entry counts; a rank that is not listed has
    /// none.
    ByRank(Vec<(usize, Streams)>),
}

impl StreamMap {
    /// Parses a digit from `0` to `3`, or a map such as `0:3,1:2`. As in torchrun, a rank in a map
    /// has a single digit.
    ///
    /// # Errors
    /// Returns an error for anything else.
    pub fn parse(text: &str) -> anyhow::Result<StreamMap> {
        let given = text;
        // Torchrun's pattern ends in `$`, which accepts a trailing line break.
        let text = text.strip_suffix('\n').unwrap_or(text);
        if let Some(streams) = streams(text) {
            return Ok(StreamMap::All(streams));
        }
        let entry = |part: &str| {
            let (rank, digit) = part.split_once(':')?;
            let is_digit = rank.len() == 1 && rank.bytes().all(|byte| byte.is_ascii_digit());
            Some((
                is_digit.then(|| rank.parse().ok()).flatten()?,
                streams(digit)?,
            ))
        };
        text.split(',')
            .map(entry)
            .collect::<Option<Vec<_>>>()
            .map(StreamMap::ByRank)
            .with_context(|| {
                format!(r"{given} does not match: <^[0123]$> or <^(\d:[0123],)*(\d:[0123])$>")
            })
    }

    /// Returns the streams of one rank.
    pub fn of(&self, local_rank: usize) -> Streams {
        match self {
            StreamMap::All(streams) => *streams,
            StreamMap::ByRank(entries) => entries
                .iter()
                .rfind(|(rank, _)| *rank == local_rank)
                .map(|(_, streams)| *streams)
                .unwrap_or_default(),
        }
    }

    /// Returns whether no stream of any rank is selected.
    pub fn is_none(&self) -> bool {
        let none = Streams::default();
        match self {
            StreamMap::All(streams) => *streams == none,
            StreamMap::ByRank(entries) => entries.iter().all(|(_, streams)| *streams == none),
        }
    }
}

impl Streams {
    /// Returns the union of two selections.
    pub fn or(self, other: Streams) -> Streams {
        Streams {
            stdout: self.stdout || other.stdout,
            stderr: self.stderr || other.stderr,
        }
    }
}

fn streams(digit: &str) -> Option<Streams> {
    match digit {
        "0" => Some(Streams {
            stdout: false,
            stderr: false,
        }),
        "1" => Some(Streams {
            stdout: true,
            stderr: false,
        }),
        "2" => Some(Streams {
            stdout: false,
            stderr: true,
        }),
        "3" => Some(Streams {
            stdout: true,
            stderr: true,
        }),
        _ => None,
    }
}
