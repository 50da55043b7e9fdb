//! Proposes dedicated GPUs for environments and for policies if they do not fit on the same GPUs.
//!
//! ```text
//! env,rollout: 0-1  ─ GPU 0 holds too much ─►  env: 0-1, rollout: 2-3  (as many ranks)
//!                                         └─►  env: 0-2, rollout: 3    (fewer), the first to fit
//! ```

use std::fmt::{Display, Formatter};

use fit::memory::{Fit, MemoryPlanner};
use jobs::placement::{Components, Placement, Resources};
use jobs::setup::Setup;

use crate::plan::decide::eval::room::GpuBudgets;

/// A placement in which no GPU has both: environments on the first `env` GPUs, one rank on each of
/// the next `ranks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dedicated {
    env: usize,
    ranks: usize,
}

impl Dedicated {
    /// Returns the dedicated placement that fits on `gpus` GPUs of one node with the environments
    /// of the jobs: with as many ranks as now if possible, otherwise with as many as possible.
    /// Returns `None` if everything fits already, or if sharing a GPU is not the reason.
    pub fn find(
        room: &GpuBudgets,
        setup: &Setup,
        placement: &Placement,
        gpus: usize,
    ) -> Option<Self> {
        if !is_too_much_for_a_shared_gpu(&room.planner(setup, placement)) {
            return None;
        }
        let most = placement.world_size().min(gpus.saturating_sub(1));
        let of_ranks = |ranks: usize| (1..=gpus - ranks).rev().map(move |env| Self { env, ranks });
        (1..=most)
            .rev()
            .flat_map(of_ranks)
            .find(|dedicated| dedicated.fits(room, setup, gpus))
    }

    fn fits(self, room: &GpuBudgets, setup: &Setup, gpus: usize) -> bool {
        let resources = Resources::new(gpus, 1);
        let placed = Components::parse(&self.line())
            .and_then(|components| Placement::new(&components, resources));
        let Some(placement) = placed
            .ok()
            .filter(|placement| setup.check(placement).is_ok())
        else {
            return false;
        };
        let planner = room.planner(setup, &placement);
        let fits = |fit: Fit| matches!(fit, Fit::Yes | Fit::Tight);
        planner
            .needs()
            .iter()
            .all(|need| fits(need.fit(planner.budget(need.gpu))))
    }

    fn line(self) -> String {
        let range = |first: usize, count: usize| match count {
            1 => first.to_string(),
            _ => format!("{first}-{}", first + count - 1),
        };
        format!(
            "env: {}, rollout: {}",
            range(0, self.env),
            range(self.env, self.ranks)
        )
    }
}

impl Display for Dedicated {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let ranks = if self.ranks == 1 {
            "1 rank".to_owned()
        } else {
            format!("{} ranks", self.ranks)
        };
        write!(
            f,
            "--placement '{}' ({ranks}) would fit: policies and environments on GPUs of their own",
            self.line()
        )
    }
}

/// Returns whether a GPU that holds policies as well as environments has too little memory for
/// both.
fn is_too_much_for_a_shared_gpu(planner: &MemoryPlanner<'_>) -> bool {
    planner.needs().iter().any(|need| {
        let is_shared =
            need.environments.bytes.0 > 0 && need.weights.bytes.0 + need.context.bytes.0 > 0;
        is_shared && need.fit(planner.budget(need.gpu)).is_too_much()
    })
}
