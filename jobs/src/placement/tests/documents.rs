//! Tests the options of s000 and the examples of s001 as they are in these documents.

use super::*;

fn files(placement: &Placement, total: usize) -> Vec<String> {
    let seats = (0..placement.world_size()).flat_map(|rank| placement.seats(rank, total));
    let name =
        |Seat { worker, gpu, env }| format!("behavior_video_rank{worker}_gpu{gpu}_env{env}.mp4");
    seats.map(name).collect()
}

#[test]
fn s000_option_1_is_allocated_as_the_document_says() {
    let placement = on("env: 0-1, rollout: 2-3", FOUR).unwrap();
    assert_eq!(
        placement.allocation(Some(2)),
        [
            "GPU 0: EnvWorker 0 (1 environment)",
            "GPU 1: EnvWorker 1 (1 environment)",
            "GPU 2: RolloutWorker 0 (policy inference)",
            "GPU 3: RolloutWorker 1 (policy inference)",
        ]
    );
}

#[test]
fn s000_option_2_is_allocated_as_the_document_says() {
    let placement = on("env: 0-1, rollout: 0-1", Resources::new(2, 1)).unwrap();
    assert_eq!(
        placement.allocation(Some(2)),
        [
            "GPU 0: EnvWorker 0 + RolloutWorker 0 (shared)",
            "GPU 1: EnvWorker 1 + RolloutWorker 1 (shared)"
        ]
    );
}

#[test]
fn s000_option_3_is_one_gpu_with_everything_on_it() {
    let placement = on("env: 0, rollout: 0", Resources::new(1, 1)).unwrap();
    let found = placement.allocation(Some(1));
    assert_eq!(found, ["GPU 0: EnvWorker 0 + RolloutWorker 0 (shared)"]);
    assert_eq!(files(&placement, 1), ["behavior_video_rank0_gpu0_env0.mp4"]);
}

#[test]
fn s001_example_1_is_distributed_and_named_as_the_document_says() {
    let placement = on("env: 0-1, rollout: 2-3", FOUR).unwrap();
    assert_eq!(
        placement.distribution(4),
        [
            "Worker 0 (GPU 0): Manages 2 environments (env 0, env 1)",
            "Worker 1 (GPU 1): Manages 2 environments (env 0, env 1)",
        ]
    );
    assert_eq!(
        files(&placement, 4),
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank0_gpu0_env1.mp4",
            "behavior_video_rank1_gpu1_env0.mp4",
            "behavior_video_rank1_gpu1_env1.mp4",
        ]
    );
}

#[test]
fn s001_example_2_is_distributed_and_named_as_the_document_says() {
    let placement = on("env: 0-3, rollout: 0-3", FOUR).unwrap();
    assert_eq!(
        placement.distribution(4),
        [
            "Worker 0 (GPU 0): Manages 1 environment (env 0)",
            "Worker 1 (GPU 1): Manages 1 environment (env 0)",
            "Worker 2 (GPU 2): Manages 1 environment (env 0)",
            "Worker 3 (GPU 3): Manages 1 environment (env 0)",
        ]
    );
    assert_eq!(
        files(&placement, 4),
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank1_gpu1_env0.mp4",
            "behavior_video_rank2_gpu2_env0.mp4",
            "behavior_video_rank3_gpu3_env0.mp4",
        ]
    );
}

#[test]
fn s001_example_3_is_distributed_and_named_as_the_document_says() {
    let placement = on("env: 0, rollout: 0", FOUR).unwrap();
    let wanted = ["Worker 0 (GPU 0): Manages 4 environments (env 0, 1, 2, 3)"];
    assert_eq!(placement.distribution(4), wanted);
    assert_eq!(
        files(&placement, 4),
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank0_gpu0_env1.mp4",
            "behavior_video_rank0_gpu0_env2.mp4",
            "behavior_video_rank0_gpu0_env3.mp4",
        ]
    );
}
