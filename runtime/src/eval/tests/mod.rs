//! Sample jobs and a monitor for the tests in this folder, and connections that break.

pub(in crate::eval) mod cable;
pub(in crate::eval) mod leases;

use jobs::job::Job;
use serde_json::{Value, json};

use crate::eval::monitor::Monitor;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::peers::Peers;
use crate::eval::monitor::screen::Screen;
use crate::eval::monitor::stop::{LiveOrders, StopRequest};

/// Returns four episodes of the scripted policy in the task `reach`, with these fields instead;
/// null removes one.
pub(in crate::eval) fn job(more: &Value) -> Value {
    let mut job = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                         "policy_type": "scripted", "num_episodes": 4});
    let fields = job.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    fields.retain(|_, value| !value.is_null());
    job
}

/// Returns jobs that are changed so.
pub(in crate::eval) fn jobs<const N: usize>(changes: [Value; N]) -> Vec<Job> {
    let jobs = changes.each_ref().map(job).to_vec();
    jobs::file::parse(&json!({"jobs": jobs})).unwrap()
}

/// Returns the monitor of a rank without others.
pub(in crate::eval) fn monitor() -> Monitor {
    let env = jobs::rank_env::RankEnv::read(|_| None).unwrap();
    let folder = jobs::layout::RunFolder::new("out".as_ref());
    Monitor::new(
        Peers::meet(&env).unwrap(),
        Screen::new(&env),
        StopRequest::default(),
        LiveOrders::new(&folder, None, false),
        Meter::start(tch::Device::Cpu).unwrap(),
        None,
    )
}
