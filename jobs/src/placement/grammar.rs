//! Parses the text of one component: `segment ("," segment)*`, `segment := GPUs [":" processes]`.
//!
//! As in RLinf, whitespace is ignored and empty segments are skipped.

use std::ops::RangeInclusive;

use crate::placement::error::ComponentError;

/// The largest valid number of a GPU or a process; a larger one is taken for a typo.
pub(super) const LARGEST: usize = 4095;

/// The GPUs of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GpuSelection {
    /// `all`, in upper or lower case.
    All,
    /// A number or a range, as in `3` or `0-3`.
    Range(RangeInclusive<usize>),
}

/// One segment, as in `0-3` or `0-3:0-7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ComponentSegment {
    pub(super) gpus: GpuSelection,
    /// The process numbers; if not given, each GPU has one process.
    pub(super) processes: Option<RangeInclusive<usize>>,
}

/// Parses the segments of a text; returns at least one, in order.
pub(super) fn segments(text: &str) -> Result<Vec<ComponentSegment>, ComponentError> {
    let dense: String = text
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .collect();
    let parts = dense.split(',').filter(|part| !part.is_empty());
    let segments: Vec<_> = parts.map(segment).collect::<Result<_, _>>()?;
    if segments.is_empty() {
        Err(ComponentError::Empty)
    } else {
        Ok(segments)
    }
}

fn segment(part: &str) -> Result<ComponentSegment, ComponentError> {
    let (gpus, processes) = match part.split_once(':') {
        Some((_, processes)) if processes.contains(':') => {
            return Err(ComponentError::Colons(part.to_owned()));
        }
        Some((gpus, processes)) if is_all(processes) => {
            return Err(ComponentError::AllProcesses(gpus.to_owned()));
        }
        Some((gpus, processes)) => (gpus, Some(range(processes)?)),
        None => (part, None),
    };
    let gpus = if is_all(gpus) {
        GpuSelection::All
    } else {
        GpuSelection::Range(range(gpus)?)
    };
    Ok(ComponentSegment { gpus, processes })
}

pub(super) fn is_all(text: &str) -> bool {
    text.eq_ignore_ascii_case("all")
}

fn range(text: &str) -> Result<RangeInclusive<usize>, ComponentError> {
    let no_range = || ComponentError::NotRange(text.to_owned());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first, no_range)?, number(last, no_range)?);
    if first > last {
        Err(ComponentError::Backwards { first, last })
    } else {
        Ok(first..=last)
    }
}

fn number(text: &str, otherwise: impl Fn() -> ComponentError) -> Result<usize, ComponentError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(otherwise());
    }
    let too_large = || ComponentError::TooLarge {
        found: text.chars().take(40).collect(),
        most: LARGEST,
    };
    text.parse()
        .ok()
        .filter(|number| *number <= LARGEST)
        .ok_or_else(too_large)
}
