//! Excludes launches that found everything done: their ranks start, find nothing to do, and end.
//! They are not part of the run, which would otherwise seem to have lasted until then.

use jobs::time::Moment;

use crate::merged::lives::{Events, LifeLines};
use crate::schema::HowEnded;

/// Moves the lives of launches in which no rank had a job to `repeats`. A rank that waited while
/// another one worked keeps its life, and so does one that died, because the user needs to see it.
/// Returns whether any life was moved.
pub(crate) fn set_aside(all: &mut [Events]) -> bool {
    let lives = all.iter().flat_map(|events| &events.lives);
    let work = union(
        lives
            .filter(|life| !life.spans.is_empty())
            .map(LifeLines::extent)
            .collect(),
    );
    if work.is_empty() {
        return false;
    }
    let is_repeat = |life: &mut LifeLines| {
        let ended_well = matches!(life.how, HowEnded::Done | HowEnded::Stopped);
        life.spans.is_empty() && ended_well && !meets(&work, life.extent())
    };
    for events in &mut *all {
        events.repeats = events.lives.extract_if(.., is_repeat).collect();
    }
    all.iter().any(|events| !events.repeats.is_empty())
}

/// Returns the first and the last moment of the remaining lives, and of episodes in journals
/// without lives.
pub(crate) fn span(all: &[Events], episodes: impl Iterator<Item = Moment>) -> Option<[Moment; 2]> {
    let lives = all
        .iter()
        .flat_map(|events| &events.lives)
        .flat_map(LifeLines::extent);
    let known = lives.chain(episodes).filter(|moment| moment.is_known());
    known.fold(None, |span, at| {
        let [first, last] = span.unwrap_or([at; 2]);
        Some([first.min(at), last.max(at)])
    })
}

/// Sorts time spans and merges those that overlap or touch.
fn union(mut spans: Vec<[Moment; 2]>) -> Vec<[Moment; 2]> {
    spans.sort();
    let mut union: Vec<[Moment; 2]> = Vec::new();
    for [from, to] in spans {
        match union.last_mut().filter(|last| from <= last[1]) {
            Some(last) => last[1] = last[1].max(to),
            None => union.push([from, to]),
        }
    }
    union
}

/// Returns whether a span overlaps or touches one of a union.
fn meets(union: &[[Moment; 2]], [from, to]: [Moment; 2]) -> bool {
    let next = union.partition_point(|span| span[1] < from);
    union.get(next).is_some_and(|span| span[0] <= to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_meet_are_one_and_what_is_between_two_meets_none() {
        let at = |second: u64| Moment::parse(&format!("2026-11-21T10:00:{second:02}.000Z"));
        let span = |from, to| [at(from), at(to)];
        let union = union(vec![span(20, 30), span(0, 5), span(3, 9), span(9, 10)]);
        assert_eq!(union, [span(0, 10), span(20, 30)]);
        let spans = [(10, 12), (11, 19), (11, 20), (31, 40)];
        let found = spans.map(|(from, to)| meets(&union, span(from, to)));
        assert_eq!(found, [true, false, true, false]);
    }
}
