//! Copies of a VectorEnv beside a loop that runs one episode after the other.

use super::*;

/// What became of an episode: its length and its return.
type Outcome = (usize, f64);

/// A job whose environments are VectorEnvs.
#[derive(Clone, Debug)]
struct VectorRun {
    /// Length of each episode.
    lengths: Vec<usize>,
    num_envs: usize,
    per_process: usize,
    stages: usize,
    /// Number of actions that are taken from a chunk.
    chunk: usize,
    /// Whether the copies of a process step together.
    is_together: bool,
}

/// An episode under way in a copy.
#[derive(Clone, Copy)]
struct Running {
    episode: u64,
    steps: usize,
    total: f64,
}

impl VectorRun {
    fn process(&self, env: EnvIndex) -> Range<usize> {
        let first = env.0 / self.per_process * self.per_process;
        first..(first + self.per_process).min(self.num_envs)
    }

    /// The policy sees the number of the episode and the step.
    fn infer(&self, episode: u64, steps: usize) -> Chunk {
        let action = |index: usize| (episode as usize * 31 + steps * 7 + index * 3) % 11;
        let horizon = self.chunk + 1;
        Chunk::new(1, (0..horizon).map(|index| action(index) as f32).collect())
    }

    fn length(&self, episode: u64) -> usize {
        self.lengths[episode as usize % self.lengths.len()]
    }

    /// Takes a step; returns the outcome of the episode if it was the last one.
    fn step(&self, running: &mut Running, action: f32) -> Option<Outcome> {
        running.steps += 1;
        running.total += f64::from(action) * running.steps as f64;
        let is_over = running.steps == self.length(running.episode);
        is_over.then_some((running.steps, running.total))
    }

    fn plain_loop(&self, episode: u64) -> Outcome {
        let mut running = begun(episode);
        loop {
            let chunk = self.infer(episode, running.steps);
            for index in 0..self.chunk {
                let action = chunk.action(index).unwrap()[0];
                if let Some(outcome) = self.step(&mut running, action) {
                    return outcome;
                }
            }
        }
    }

    /// Runs the episodes of the job, of which there are as many as fit into `steps` steps if that is
    /// given.
    fn run(&self, steps: Option<u64>) -> World {
        let mut world = World {
            copies: vec![None; self.num_envs],
            ended: BTreeMap::new(),
            taken: vec![0; self.num_envs],
        };
        let count = steps.map_or(self.lengths.len() as u64, |_| u64::MAX);
        for envs in groups(self.num_envs, self.stages, |env| self.process(env)) {
            let feed = anyone(deal(0..count, self.num_envs, envs.clone()));
            let mut group = Group::new(feed, envs.clone(), self.chunk, steps);
            group.steps_together = self.is_together;
            loop {
                let starts = group.start(&mut None);
                match group.turn(starts) {
                    Turn::Infer(needs_chunk) => {
                        for env in needs_chunk {
                            let Running { episode, steps, .. } = world.copies[env.0].unwrap();
                            group.add_chunk(env, self.infer(episode, steps), 0);
                        }
                    }
                    Turn::Act { starts, due } if starts.is_empty() && due.is_empty() => break,
                    Turn::Act { starts, due } => {
                        self.check(&world, &envs, &due, steps);
                        for (env, episode) in starts {
                            world.copies[env.0] = Some(begun(episode));
                        }
                        for due in due {
                            if self.act(&mut world, &due) {
                                group.end(due.env);
                            }
                        }
                    }
                }
            }
        }
        world
    }

    /// All copies of a process step at once, and one without an action takes any: so none may run an
    /// episode then, unless its steps are used up.
    fn check(&self, world: &World, envs: &Range<usize>, due: &[DueStep], steps: Option<u64>) {
        let has_action = |env: usize| due.iter().any(|due| due.env.0 == env);
        for env in envs.clone().filter(|env| !has_action(*env)) {
            let moves = self.is_together && self.process(EnvIndex(env)).any(has_action);
            let has_steps = steps.is_none_or(|steps| world.taken[env] < steps);
            let runs = world.copies[env].is_some() && has_steps;
            assert!(!moves || !runs, "environment {env} has no action: {self:?}");
        }
    }

    /// Takes a step; returns whether it ends the episode.
    fn act(&self, world: &mut World, due: &DueStep) -> bool {
        let env = due.env.0;
        world.taken[env] += 1;
        let running = world.copies[env].as_mut().unwrap();
        let Some(outcome) = self.step(running, due.action[0]) else {
            return false;
        };
        assert!(world.ended.insert(running.episode, outcome).is_none());
        world.copies[env] = None;
        true
    }
}

/// The copies of all processes.
struct World {
    copies: Vec<Option<Running>>,
    ended: BTreeMap<u64, Outcome>,
    /// Number of steps that each has taken.
    taken: Vec<u64>,
}

fn begun(episode: u64) -> Running {
    Running {
        episode,
        steps: 0,
        total: 0.0,
    }
}

prop_compose! {
    fn any_run()(
        lengths in proptest::collection::vec(1usize..12, 1..20), num_envs in 1usize..=12,
        per_process in 1usize..=6, stages in 1usize..=3,
        chunk in proptest::sample::select(vec![1usize, 2, 4, 7]), is_together: bool
    ) -> VectorRun {
        VectorRun { lengths, num_envs, per_process, stages, chunk, is_together }
    }
}

proptest! {
    #[test]
    fn copies_run_the_episodes_of_a_plain_loop_each_once(run in any_run()) {
        let ended = run.run(None).ended;
        let expected: BTreeMap<_, _> =
            (0..run.lengths.len() as u64).map(|episode| (episode, run.plain_loop(episode))).collect();
        prop_assert_eq!(ended, expected);
    }

    #[test]
    fn copies_do_not_wait_for_one_whose_steps_are_used_up(
        run in any_run(), steps in 0u64..40
    ) {
        let World { ended, taken, .. } = run.run(Some(steps));
        prop_assert_eq!(taken, vec![steps; run.num_envs]);
        for (episode, outcome) in ended {
            prop_assert_eq!(outcome, run.plain_loop(episode));
        }
    }

    #[test]
    fn a_process_whose_copies_step_together_is_in_one_group(
        num_envs in 0usize..30, per_process in 1usize..9, stages in 1usize..6
    ) {
        let run = VectorRun { lengths: vec![1], num_envs, per_process, stages, chunk: 1, is_together: true };
        let groups = groups(num_envs, stages, |env| run.process(env));
        prop_assert!(groups.len() <= stages);
        prop_assert!(groups.iter().all(|group| run.process(EnvIndex(group.start)).start == group.start));
        let all: Vec<_> = groups.into_iter().flatten().collect();
        prop_assert_eq!(all, (0..num_envs).collect::<Vec<_>>());
    }
}
