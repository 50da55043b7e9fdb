use super::*;

fn job(id: u64) -> SlurmJob {
    SlurmJob {
        id,
        element: None,
        restarts: 0,
    }
}

/// Task 3 of 4 on the second of two nodes.
fn step() -> SlurmStep {
    SlurmStep {
        job: job(14),
        id: 0,
        nodes: vec!["node1".to_owned(), "node2".to_owned()],
        node_id: 1,
        proc_id: 3,
        local_id: 1,
        num_tasks: 4,
        tasks_per_node: vec![2, 2],
        reserved_port: None,
        is_arbitrary: false,
    }
}

/// The only task of the second of two nodes.
fn alone() -> SlurmStep {
    SlurmStep {
        num_tasks: 2,
        tasks_per_node: vec![1, 1],
        proc_id: 1,
        local_id: 0,
        ..step()
    }
}

fn gpus(count: usize) -> Option<SlurmGpus> {
    Some(SlurmGpus {
        count,
        source: "CUDA_VISIBLE_DEVICES",
    })
}

fn inferred(step: SlurmStep, gpus: Option<SlurmGpus>, nproc: Option<&str>) -> SlurmInference {
    SlurmInference::new(&SlurmPlace::Step(step), gpus, nproc).expect("an inference")
}

#[test]
fn one_task_a_node_launches_a_rank_a_gpu_and_meets_at_the_first_host() {
    let inference = inferred(alone(), gpus(4), None);
    let meeting = InferredMeeting {
        nnodes: 2,
        node_rank: 1,
        master_addr: "node1".to_owned(),
        master_port: 10_112,
    };
    assert_eq!(
        (inference.meeting, inference.nproc),
        (Some(meeting), Some(4))
    );
    assert_eq!(
        (inference.run_id.as_deref(), inference.task),
        (Some("14.0"), None)
    );
    let line = "SLURM job 14 step 0: node 1 of 2, 4 ranks here (CUDA_VISIBLE_DEVICES), meeting at node1:10112";
    assert_eq!(inference.notes, [line]);
}

#[test]
fn a_given_number_of_ranks_is_kept() {
    let inference = inferred(alone(), gpus(4), Some("2"));
    assert_eq!(
        (inference.nproc, inference.meeting.map(|it| it.nnodes)),
        (None, Some(2))
    );
}

#[test]
fn a_single_node_meets_on_any_free_port() {
    let alone = SlurmStep {
        nodes: vec!["node1".to_owned()],
        num_tasks: 1,
        node_id: 0,
        ..alone()
    };
    let inference = inferred(alone, None, None);
    assert_eq!(
        (
            inference.meeting,
            inference.nproc,
            inference.run_id.as_deref()
        ),
        (None, None, Some("14.0"))
    );
    assert_eq!(
        inference.notes,
        ["SLURM job 14 step 0: 1 node, 1 rank here (no GPU)"]
    );
}

#[test]
fn each_of_several_tasks_a_node_is_a_rank() {
    let inference = inferred(step(), gpus(2), None);
    assert_eq!(
        inference.meeting.map(|it| (it.nnodes, it.node_rank)),
        Some((4, 3))
    );
    let task = SlurmTask {
        local_rank: 1,
        group_rank: 1,
        tasks_per_node: vec![2, 2],
        has_own_devices: false,
    };
    assert_eq!(
        (inference.task, inference.nproc, inference.notes),
        (Some(task), Some(1), Vec::new())
    );
}

#[test]
fn a_task_with_a_gpu_of_its_own_has_it_as_device_0() {
    assert!(
        inferred(step(), gpus(1), None)
            .task
            .is_some_and(|task| task.has_own_devices)
    );
    assert!(
        inferred(step(), None, None)
            .task
            .is_some_and(|task| !task.has_own_devices)
    );
}

#[test]
fn the_first_task_speaks_for_all() {
    let first = SlurmStep {
        proc_id: 0,
        local_id: 0,
        node_id: 0,
        ..step()
    };
    let line = "SLURM job 14 step 0: 4 tasks on 2 nodes, one rank each, meeting at node1:10112";
    assert_eq!(inferred(first, gpus(2), Some("1")).notes, [line]);
}

#[test]
fn tasks_that_would_each_launch_several_ranks_are_refused() {
    let err = SlurmInference::new(&SlurmPlace::Step(step()), gpus(2), Some("2"))
        .expect_err("refused")
        .to_string();
    assert!(
        err.starts_with(
            "SLURM runs 2 tasks on this node and each would launch --nproc-per-node 2: "
        ),
        "{err}"
    );
}

#[test]
fn an_arbitrary_distribution_hides_task_0() {
    let arbitrary = |step| {
        SlurmInference::new(
            &SlurmPlace::Step(SlurmStep {
                is_arbitrary: true,
                ..step
            }),
            None,
            None,
        )
    };
    assert_eq!(arbitrary(step()), Err(SlurmError::Arbitrary));
    assert!(
        arbitrary(alone()).is_ok(),
        "a node's rank is its index in the list, wherever task 0 is"
    );
}

#[test]
fn the_batch_script_launches_on_its_own_node() {
    let batch = |nnodes, tasks, gpus| {
        let inference = SlurmInference::new(
            &SlurmPlace::Batch {
                job: job(7),
                nnodes,
                tasks,
            },
            gpus,
            None,
        );
        inference
            .map(|it| {
                (
                    it.nproc,
                    it.notes
                        .iter()
                        .map(|note| note.to_string())
                        .collect::<String>(),
                    it.meeting,
                )
            })
            .expect("an inference")
    };
    assert_eq!(batch(1, Some(2), gpus(4)).0, Some(4));
    assert_eq!(
        batch(1, Some(2), None).1,
        "SLURM job 7: 2 ranks here (tasks per node)"
    );
    assert_eq!(batch(1, None, None), (None, String::new(), None));
    assert!(
        batch(2, None, None)
            .1
            .starts_with("SLURM job 7 has 2 nodes, this launch is on the first alone")
    );
}

#[test]
fn requeued_jobs_have_an_id_of_their_own() {
    let again = SlurmJob {
        restarts: 1,
        element: Some("12_3".to_owned()),
        ..job(14)
    };
    let inference = inferred(
        SlurmStep {
            job: again,
            ..alone()
        },
        None,
        None,
    );
    assert_eq!(inference.run_id.as_deref(), Some("14.0.r1"));
    assert!(
        inference.notes[0].starts_with("SLURM job 14 (array element 12_3, requeue 1) step 0: ")
    );
}

#[test]
fn ports_of_steps_and_neighbouring_jobs_differ() {
    let ports: std::collections::BTreeSet<u16> = (1000..1100)
        .flat_map(|job| (0..8).map(move |step| port(job, step)))
        .collect();
    assert_eq!(ports.len(), 800);
    assert!(port(u64::MAX, u64::MAX) < 32_768 && port(0, 0) == 10_000);
}

#[test]
fn a_reserved_port_is_taken() {
    let reserved = SlurmStep {
        reserved_port: Some(12_001),
        ..alone()
    };
    assert_eq!(
        inferred(reserved, None, None)
            .meeting
            .map(|it| it.master_port),
        Some(12_001)
    );
}
