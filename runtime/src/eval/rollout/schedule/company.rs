//! Episodes that have lost their environment: how often they start again, and in whose company.
//! Pure: no I/O.
//!
//! Environments may share a process, and whatever ends it ends the episodes of all. A loss counts
//! against the episode that is to blame, which then runs alone in its process. If nobody knows who
//! is to blame, at most half as many episodes run together the next time, until each runs alone:
//!
//! ```text
//! to blame          counted ─► alone, up to `--env-restarts` times ─► an error
//! nobody knows      at most 4 together ─► 2 ─► alone
//! a neighbour is    as before, and alone after several of them
//! no start at all   counted ─► as before
//! ```
//! An episode in small company has precedence: as long as one waits in a process, others wait there.

use std::collections::BTreeMap;
use std::ops::Range;

use jobs::journal::Blame;

use crate::env::EnvIndex;

/// Number of losses by the fault of neighbours after which an episode runs alone.
const DISTURBED: u32 = 3;

/// What follows from the loss of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// How often the episode has lost its environment.
    pub attempt: u32,
    /// Who is to blame: an episode that is alone has no neighbours.
    pub blame: Blame,
    /// True if the episode starts again.
    pub again: bool,
}

/// The losses of one episode.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    all: u32,
    counted: u32,
    disturbed: u32,
}

/// The losses of all episodes.
#[derive(Debug, Default)]
pub struct Retries {
    /// How often an episode may start again by its own fault.
    limit: u32,
    losses: BTreeMap<u64, Losses>,
    /// How many episodes may run in the process of these episodes, themselves included.
    rooms: BTreeMap<u64, usize>,
}

impl Retries {
    /// Creates the state without losses.
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Takes note of a loss; `company` is the number of environments in the process.
    pub fn on_loss(&mut self, episode: u64, blame: Blame, company: usize) -> Ruling {
        let losses = self.losses.entry(episode).or_default();
        let room = self.rooms.get(&episode).copied().unwrap_or(company);
        let blame = match blame {
            Blame::Neighbour | Blame::Unknown if room <= 1 => Blame::Own,
            blame => blame,
        };
        losses.all += 1;
        losses.counted += u32::from(blame.is_counted());
        losses.disturbed += u32::from(blame == Blame::Neighbour);
        let room = match blame {
            Blame::Own => 1,
            Blame::Unknown => (room / 2).max(1),
            Blame::Neighbour if losses.disturbed >= DISTURBED => 1,
            Blame::Neighbour | Blame::Start => room,
        };
        let again = !blame.is_counted() || losses.counted <= self.limit;
        if again && room < company {
            self.rooms.insert(episode, room);
        }
        Ruling {
            attempt: losses.all,
            blame,
            again,
        }
    }

    /// Returns how many episodes may run in the process of this one; `None` if it does not matter.
    pub fn room(&self, episode: u64) -> Option<usize> {
        self.rooms.get(&episode).copied()
    }

    /// Returns whether the company of any episode matters.
    pub fn is_restricting(&self) -> bool {
        !self.rooms.is_empty()
    }

    /// Returns who may start, with these episodes in the environments. Of episodes that are in no
    /// environment any more, the company no longer matters.
    pub fn company(
        &mut self,
        occupants: &[Occupant],
        process: impl Fn(EnvIndex) -> Range<usize>,
    ) -> Company {
        let is_there = |episode: &u64| occupants.iter().any(|found| found.episode == *episode);
        self.rooms.retain(|episode, _| is_there(episode));
        let mut company = Company::default();
        for occupant in occupants {
            let room = self.room(occupant.episode);
            let load = company.load(process(occupant.env).start);
            if occupant.is_running {
                load.start(room);
            } else {
                load.waiting += usize::from(room.is_some());
            }
        }
        company
    }
}

/// An episode that belongs to an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The environment.
    pub env: EnvIndex,
    /// The episode.
    pub episode: u64,
    /// False if it waits to be started again.
    pub is_running: bool,
}

/// The episodes of each process, by the index of its first environment.
#[derive(Debug, Default)]
pub struct Company {
    loads: BTreeMap<usize, Load>,
}

/// The episodes of one process.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Number of episodes that run.
    running: usize,
    /// How many may run for those that run.
    room: usize,
    /// Number of episodes in small company that wait.
    waiting: usize,
}

impl Load {
    fn start(&mut self, room: Option<usize>) {
        self.running += 1;
        self.room = self.room.min(room.unwrap_or(usize::MAX));
    }
}

impl Company {
    /// Returns whether an episode with this room may start in the process whose first environment is
    /// `process`; `None` for an episode that any company suits.
    pub fn may_start(&mut self, process: usize, room: Option<usize>) -> bool {
        let load = self.load(process);
        let has_turn = room.is_some() || load.waiting == 0;
        has_turn && load.running < load.room.min(room.unwrap_or(usize::MAX))
    }

    /// Takes note of a start.
    pub fn start(&mut self, process: usize, room: Option<usize>) {
        let load = self.load(process);
        load.start(room);
        load.waiting -= usize::from(room.is_some()).min(load.waiting);
    }

    fn load(&mut self, process: usize) -> &mut Load {
        self.loads.entry(process).or_insert(Load {
            running: 0,
            room: usize::MAX,
            waiting: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupant(env: usize, episode: u64, is_running: bool) -> Occupant {
        Occupant {
            env: EnvIndex(env),
            episode,
            is_running,
        }
    }

    /// Returns the losses that an episode survives if it is always lost so.
    fn survives(blame: Blame, company: usize) -> u32 {
        let mut retries = Retries::new(1);
        (0..)
            .take_while(|_| retries.on_loss(7, blame, company).again)
            .count() as u32
    }

    #[test]
    fn an_episode_is_given_up_after_a_bounded_number_of_losses() {
        assert_eq!(survives(Blame::Own, 8), 1, "as often as is allowed");
        assert_eq!(survives(Blame::Start, 8), 1);
        assert_eq!(survives(Blame::Unknown, 8), 3 + 1, "with 4, with 2, alone");
        assert_eq!(survives(Blame::Neighbour, 8), DISTURBED + 1);
        for blame in [Blame::Own, Blame::Start, Blame::Unknown, Blame::Neighbour] {
            assert_eq!(survives(blame, 1), 1, "{blame:?} of a process of its own");
        }
    }

    #[test]
    fn who_is_to_blame_runs_alone_and_its_neighbours_as_before() {
        let mut retries = Retries::new(1);
        retries.on_loss(1, Blame::Neighbour, 4);
        assert!(!retries.is_restricting());
        assert!(retries.on_loss(0, Blame::Own, 4).again);
        assert_eq!((retries.room(0), retries.room(1)), (Some(1), None));
        retries.on_loss(2, Blame::Start, 4);
        assert_eq!(retries.room(2), None, "it would fail alone, too");
        let mut of_one = Retries::new(1);
        of_one.on_loss(0, Blame::Own, 1);
        assert!(!of_one.is_restricting(), "it is alone in any case");
    }

    #[test]
    fn whoever_is_alone_is_to_blame_whatever_the_process_says() {
        let mut retries = Retries::new(1);
        retries.on_loss(0, Blame::Own, 4);
        let ruling = retries.on_loss(0, Blame::Neighbour, 4);
        let (attempt, blame, again) = (2, Blame::Own, false);
        assert_eq!(
            ruling,
            Ruling {
                attempt,
                blame,
                again
            }
        );
    }

    #[test]
    fn small_company_goes_first_and_is_kept() {
        let mut retries = Retries::new(1);
        retries.on_loss(0, Blame::Own, 4);
        let process = |env: EnvIndex| env.0 / 4 * 4..env.0 / 4 * 4 + 4;
        let (suspect, running) = (occupant(0, 0, false), occupant(1, 1, true));
        let mut company = retries.company(&[suspect, running, occupant(2, 2, false)], process);
        assert!(!company.may_start(0, Some(1)), "another episode runs");
        assert!(!company.may_start(0, None), "the suspect has precedence");
        assert!(company.may_start(4, None), "another process");
        let mut company = retries.company(&[suspect, occupant(2, 2, false)], process);
        assert!(company.may_start(0, Some(1)));
        company.start(0, Some(1));
        assert!(!company.may_start(0, None));
        let mut company = retries.company(&[occupant(0, 9, true)], process);
        assert!(company.may_start(0, None), "it has ended");
        assert!(!retries.is_restricting());
    }

    #[test]
    fn suspects_run_in_halves_until_each_is_alone() {
        let mut retries = Retries::new(1);
        let process = |_: EnvIndex| 0..4;
        let all: Vec<_> = (0..4).map(|n| occupant(n, n as u64, false)).collect();
        let together = |retries: &mut Retries| {
            let mut company = retries.company(&all, process);
            let starts = all.iter().filter(|waiting| {
                let room = retries.room(waiting.episode);
                let may = company.may_start(0, room);
                if may {
                    company.start(0, room);
                }
                may
            });
            starts.count()
        };
        assert_eq!(together(&mut retries), 4);
        for expected in [2, 1, 1] {
            for episode in 0..4 {
                retries.on_loss(episode, Blame::Unknown, 4);
            }
            assert_eq!(together(&mut retries), expected);
        }
    }
}
