//! Tests how the environments of a shared job are divided.

use super::*;
use crate::placement::check::check_steps;

fn division(
    total: usize,
    workers: usize,
    ranks: usize,
    stages: usize,
    group_size: usize,
) -> String {
    let division = Division {
        total,
        workers,
        ranks,
        stages,
        group_size,
    };
    division
        .check()
        .map_or_else(|err| err.to_string(), |()| "fits".to_owned())
}

#[test]
fn uneven_totals_are_refused_with_the_nearest_ones() {
    assert_eq!(division(4, 2, 2, 1, 1), "fits");
    assert_eq!(division(8, 2, 4, 2, 1), "fits");
    assert_eq!(
        division(5, 2, 2, 1, 1),
        "total_num_envs is 5, which cannot be divided evenly among 2 environment workers; 4 or 6 \
         can"
    );
    assert_eq!(
        division(1, 4, 4, 1, 1),
        "total_num_envs is 1, which cannot be divided evenly among 4 environment workers; 4 can"
    );
    assert_eq!(
        division(8, 2, 3, 1, 1),
        "total_num_envs is 8, which cannot be divided evenly among 3 rollout workers; 6 or 12 can"
    );
    assert_eq!(
        division(0, 2, 3, 1, 1),
        "total_num_envs is 0, expected at least 6"
    );
}

#[test]
fn stages_divide_the_environments_of_a_worker_not_their_remainder() {
    // RLinf accepts this, because 4 % 2 % 3 is 0.
    assert_eq!(
        division(4, 2, 2, 3, 1),
        "pipeline_stage_num is 3, but an environment worker has 2 of 4 environments; total_num_envs 6 or \
         pipeline_stage_num 2 fit"
    );
    assert_eq!(
        division(2, 2, 2, 2, 1),
        "pipeline_stage_num is 2, but an environment worker has 1 of 2 environments; total_num_envs 4 or \
         pipeline_stage_num 1 fit"
    );
}

#[test]
fn groups_and_chunks_are_whole() {
    assert_eq!(
        division(12, 2, 2, 1, 4),
        "group_size is 4, but a stage of an environment worker has 6 environments; total_num_envs 8 or 16 or group_size \
         3 or 6 fit"
    );
    assert_eq!(
        check_steps(4100, 32).unwrap_err().to_string(),
        "max_steps_per_rollout_epoch is 4100, which is not a multiple of num_action_chunks 32; 4096 or 4128 are"
    );
    assert_eq!(check_steps(4096, 32), Ok(()));
}
