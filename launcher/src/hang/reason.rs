//! Why a hang report is made, in words. Pure.

use jobs::pulse::Pulse;

use crate::hang::groups::shown;

/// Ranks whose places are named; the report has the stacks of all.
const MAX_NAMED: usize = 3;

/// Returns why ranks count as hung after `seconds`: some were silent, and some stand still at a
/// place. Ranks are global.
pub fn reason(hung: &[(usize, Option<Pulse>)], seconds: u64) -> String {
    let silent: Vec<usize> = hung
        .iter()
        .filter(|(_, stands)| stands.is_none())
        .map(|(rank, _)| *rank)
        .collect();
    let still: Vec<(usize, &Pulse)> = hung
        .iter()
        .filter_map(|(rank, stands)| Some((*rank, stands.as_ref()?)))
        .collect();
    let silence = (!silent.is_empty()).then(|| {
        let ranks = ranks(&silent);
        format!("no output and no CPU time of {ranks} for {seconds} s")
    });
    let parts: Vec<String> = silence
        .into_iter()
        .chain(standstill(&still, seconds))
        .collect();
    parts.join("; ")
}

fn standstill(still: &[(usize, &Pulse)], seconds: u64) -> Option<String> {
    let numbers: Vec<usize> = still.iter().map(|(rank, _)| *rank).collect();
    let place = |pulse: &Pulse| format!("job `{}`, {} steps", pulse.job, pulse.steps);
    let places = match still {
        [] => return None,
        [(_, pulse)] => place(pulse),
        many => {
            let named: Vec<String> = many
                .iter()
                .take(MAX_NAMED)
                .map(|(rank, pulse)| format!("rank {rank} at {}", place(pulse)))
                .collect();
            let more = if many.len() > MAX_NAMED { "; …" } else { "" };
            format!("{}{more}", named.join("; "))
        }
    };
    let has = if still.len() == 1 { "has" } else { "have" };
    let ranks = ranks(&numbers);
    Some(format!(
        "{ranks} {has} made no progress for {seconds} s: {places}"
    ))
}

fn ranks(numbers: &[usize]) -> String {
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}", shown(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(job: &str, steps: u64) -> Option<Pulse> {
        Some(Pulse {
            job: job.to_owned(),
            steps,
            ..Pulse::default()
        })
    }

    #[test]
    fn the_reason_names_ranks_and_where_they_stand() {
        for (hung, expected) in [
            (
                vec![(1, at("pick", 1203))],
                "rank 1 has made no progress for 60 s: job `pick`, 1203 steps",
            ),
            (
                vec![(0, at("pick", 3)), (1, at("push", 4))],
                "ranks 0-1 have made no progress for 60 s: rank 0 at job `pick`, 3 steps; \
                 rank 1 at job `push`, 4 steps",
            ),
            (
                vec![(2, None), (3, None)],
                "no output and no CPU time of ranks 2-3 for 60 s",
            ),
            (
                vec![(0, at("pick", 3)), (2, None)],
                "no output and no CPU time of rank 2 for 60 s; \
                 rank 0 has made no progress for 60 s: job `pick`, 3 steps",
            ),
        ] {
            assert_eq!(reason(&hung, 60), expected);
        }
    }

    #[test]
    fn of_many_ranks_only_some_places_are_named() {
        let many: Vec<_> = (0..100).map(|rank| (rank, at("pick", 3))).collect();
        let reason = reason(&many, 60);
        assert!(reason.starts_with("ranks 0-99 have made"), "{reason}");
        assert!(
            reason.ends_with("rank 2 at job `pick`, 3 steps; …"),
            "{reason}"
        );
    }
}
