//! What the user is told about episodes that start again. Pure: no I/O.

use std::collections::BTreeMap;

use jobs::journal::{Blame, EnvLost};

/// Returns the messages: one for each episode that is to blame itself, and one for all that another
/// episode has stopped, or may have.
pub fn messages(job: &str, restarts: &[EnvLost]) -> Vec<String> {
    let mut own = Vec::new();
    let mut shared: BTreeMap<(bool, &str), Vec<String>> = BTreeMap::new();
    for restart in restarts {
        let (env, episode, reason) = (restart.env, restart.episode, &restart.reason);
        match restart.blame {
            Blame::Own | Blame::Start => own.push(format!(
                "{job} episode {episode} starts again: environment {env}: {reason}"
            )),
            Blame::Neighbour | Blame::Unknown => shared
                .entry((restart.blame == Blame::Unknown, reason.as_str()))
                .or_default()
                .push(episode.to_string()),
        }
    }
    let shared = shared.into_iter().map(|((is_suspect, reason), episodes)| {
        let who = match episodes.as_slice() {
            [one] => format!("episode {one} starts"),
            several => format!("episodes {} start", several.join(", ")),
        };
        let why = match is_suspect {
            true => {
                "with fewer neighbours, because it is not known which episode of the process is to \
                 blame"
            }
            false => "uncounted, because another episode of the process is to blame",
        };
        format!("{job} {who} again, {why}: {reason}")
    });
    own.extend(shared);
    own
}

#[cfg(test)]
mod tests {
    use jobs::job::JobIndex;

    use super::*;

    fn restart(episode: u64, blame: Blame, reason: &str) -> EnvLost {
        EnvLost {
            job: "reach".to_owned(),
            job_index: JobIndex(0),
            rank: 0,
            env: 0,
            episode,
            step: 1,
            attempt: 1,
            blame,
            reason: reason.to_owned(),
            stderr: Vec::new(),
            at: String::new(),
        }
    }

    #[test]
    fn neighbours_are_told_together_and_culprits_one_by_one() {
        let restarts = [
            restart(4, Blame::Neighbour, "it died"),
            restart(5, Blame::Own, "it died"),
            restart(6, Blame::Neighbour, "it died"),
            restart(8, Blame::Unknown, "it ended"),
        ];
        let expected = [
            "reach episode 5 starts again: environment 0: it died",
            "reach episodes 4, 6 start again, uncounted, because another episode of the process is to blame: it died",
            "reach episode 8 starts again, with fewer neighbours, because it is not known which episode of the process is to blame: it ended",
        ];
        assert_eq!(messages("reach", &restarts), expected);
    }
}
