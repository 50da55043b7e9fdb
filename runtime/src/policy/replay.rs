//! Replays the recorded actions of a dataset.
//!
//! Episode `n` replays the `n`th demonstration (ordered by number, so `demo_10` comes after
//! `demo_9`) with its recorded seed, from the initial state in which it was recorded.

use std::path::PathBuf;

use hdf5::{File, Group};
use jobs::policies::Replay;

use crate::env::EnvSpec;
use crate::policy::argument;
use crate::policy::{Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer};

/// A policy that replays recorded actions.
#[derive(Debug)]
pub struct ReplayAction {
    path: PathBuf,
    demos: Vec<ReplayDemo>,
    longest: usize,
    action_dim: usize,
}

#[derive(Debug)]
struct ReplayDemo {
    seed: Option<u64>,
    /// All actions, `[num_samples, action_dim]`, row-major.
    actions: Vec<f32>,
}

impl ReplayAction {
    /// Reads all actions of a dataset in robomimic layout, or those of one of its demonstrations.
    ///
    /// # Errors
    /// Returns an error with file and demonstration if it cannot be read, or if the actions do not
    /// fit this environment.
    pub fn open(given: &Replay, env: &EnvSpec) -> Result<Self, PolicyError> {
        let (path, only) = (&given.replay_file_path, given.episode_name.as_deref());
        let refuse = |found: &str, wanted: &str| {
            let found = format!("`{}`, {found}", path.display());
            argument("replay_file_path", &found, wanted)
        };
        let unreadable = |err: hdf5::Error| {
            let wanted = "expected an HDF5 file with data/demo_<n>/actions";
            refuse(&err.to_string(), wanted)
        };
        if !path.is_file() {
            return Err(refuse("which is not a file", "expected a recorded dataset"));
        }
        let file = File::open(path).map_err(unreadable)?;
        let data = file.group("data").map_err(unreadable)?;
        let mut names = data.member_names().map_err(unreadable)?;
        names.retain(|name| only.is_none_or(|only| only == name));
        names.sort_by_key(|name| (number(name), name.clone()));
        let action_dim = env.action.names.len();
        let wanted = format!("expected actions of shape (steps, {action_dim})");
        let demos = names.iter().map(|name| {
            let demo = read(&data, name, action_dim);
            demo.map_err(|found| refuse(&format!("whose {name} {found}"), &wanted))
        });
        let demos: Vec<_> = demos.collect::<Result<_, _>>()?;
        if demos.is_empty() {
            let wanted = format!("expected data/{}", only.unwrap_or("demo_<n>"));
            return Err(refuse("which has no such demonstration", &wanted));
        }
        let longest = demos
            .iter()
            .map(|demo| demo.actions.len() / action_dim)
            .max()
            .unwrap_or(1);
        Ok(Self {
            path: path.to_owned(),
            demos,
            longest,
            action_dim,
        })
    }
}

fn number(name: &str) -> u64 {
    name.rsplit('_')
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(u64::MAX)
}

/// Returns a demonstration, or what is wrong with it.
fn read(data: &Group, name: &str, action_dim: usize) -> Result<ReplayDemo, String> {
    let unreadable = |err: hdf5::Error| format!("cannot be read: {err}");
    let group = data.group(name).map_err(unreadable)?;
    let dataset = group.dataset("actions").map_err(unreadable)?;
    match dataset.shape()[..] {
        [steps, dim] if steps > 0 && dim == action_dim => {}
        ref shape => return Err(format!("has actions of shape {shape:?}")),
    }
    let seed = group
        .attr("seed")
        .and_then(|attr| attr.read_scalar::<i64>())
        .ok()
        .and_then(|seed| u64::try_from(seed).ok());
    Ok(ReplayDemo {
        seed,
        actions: dataset.read_raw::<f32>().map_err(unreadable)?,
    })
}

impl Policy for ReplayAction {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: self.longest,
            seeds: self.demos.iter().map(|demo| demo.seed).collect(),
            reported: vec![
                ("policy_path", self.path.display().to_string().into()),
                ("demonstrations", self.demos.len().into()),
            ],
            ..PolicyFacts::default()
        }
    }

    /// Returns the whole demonstration first, then one action of zeros at a time if the environment
    /// continues after it.
    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let answer = |row: &PolicyRow| {
            let demo = row.episode as usize % self.demos.len();
            let values = match row.inference {
                0 => self.demos[demo].actions.clone(),
                _ => vec![0.0; self.action_dim],
            };
            RowAnswer::Chunk(Chunk::new(self.action_dim, values))
        };
        Ok(rows.iter().map(answer).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::tests::{chunks, env_spec, observation, row};

    fn replay(path: &Path, only: Option<&str>) -> Replay {
        let config = serde_json::json!({"replay_file_path": path, "episode_name": only});
        jobs::policies::read(config.as_object().unwrap()).unwrap()
    }

    fn dataset(dir: &tempfile::TempDir, shape: (usize, usize)) -> std::path::PathBuf {
        let path = dir.path().join("dataset.hdf5");
        let data = File::create(&path).unwrap().create_group("data").unwrap();
        for number in [0u8, 2, 10] {
            let demo = data.create_group(&format!("demo_{number}")).unwrap();
            let actions = demo.new_dataset::<f32>().shape(shape).create("actions");
            let values = vec![number as f32; shape.0 * shape.1];
            actions.unwrap().write_raw(&values).unwrap();
            let seed = demo.new_attr::<i64>().create("seed").unwrap();
            seed.write_scalar(&(100 + i64::from(number))).unwrap();
        }
        path
    }

    #[test]
    fn demonstrations_are_replayed_in_the_order_of_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let given = replay(&dataset(&dir, (4, 7)), None);
        let mut policy = ReplayAction::open(&given, &env_spec()).unwrap();
        let facts = policy.facts();
        let seeds = [100, 102, 110].map(Some).to_vec();
        assert_eq!((facts.seeds, facts.horizon), (seeds, 4));
        let mut row = row(0, observation());
        row.episode = 2;
        let chunk = chunks(policy.act(std::slice::from_ref(&row))).remove(0);
        assert_eq!(
            (chunk.horizon(), chunk.action(3)),
            (4, Some(&[10.0; 7][..]))
        );
        row.inference = 1;
        let after = chunks(policy.act(&[row])).remove(0);
        assert_eq!((after.horizon(), after.action(0)), (1, Some(&[0.0; 7][..])));
    }

    #[test]
    fn what_cannot_be_replayed_is_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dataset(&dir, (4, 3));
        let refuses = |path: &Path, only, reason: &str| {
            let refused = ReplayAction::open(&replay(path, only), &env_spec()).unwrap_err();
            assert!(refused.to_string().contains(reason), "{refused}");
        };
        refuses(
            Path::new("/nowhere"),
            None,
            "`/nowhere`, which is not a file",
        );
        let shape = "demo_0 has actions of shape [4, 3], expected actions of shape (steps, 7)";
        refuses(&path, None, shape);
        refuses(&path, Some("demo_5"), "expected data/demo_5");
        std::fs::write(&path, b"not hdf5").unwrap();
        refuses(&path, None, "an HDF5 file with");
    }
}
