use super::*;

fn parse(words: &[&str]) -> Result<EvalArgs, clap::Error> {
    EvalArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>())
}

#[test]
fn both_spellings_are_read_and_values_are_left_alone() {
    let args = parse(&[
        "--eval_jobs_config=my_jobs.json",
        "--policy_device_id",
        "1",
        "--continue_on_error",
    ])
    .unwrap();
    assert_eq!(
        (
            args.jobs.as_deref().and_then(std::path::Path::to_str),
            args.policy_device_id
        ),
        (Some("my_jobs.json"), Some(1))
    );
    assert!(args.continue_on_error);
}

#[test]
fn jobs_come_from_a_jobs_file_or_from_a_config() {
    let args = parse(&[
        "--config",
        "a.yaml",
        "--config",
        "b.yaml",
        "--placement",
        "env,rollout: all",
    ])
    .unwrap();
    assert_eq!((args.jobs, args.config.len()), (None, 2));
    assert_eq!(parse(&["--resume", "out"]).unwrap().jobs, None);
    assert!(parse(&["--resume", "out", "--output", "out"]).is_err());
    assert!(
        parse(&[])
            .unwrap_err()
            .to_string()
            .contains("--jobs <FILE>")
    );
}

#[test]
fn memory_of_a_gpu_has_a_unit_and_is_of_one_start() {
    let args = parse(&["--jobs", "a", "--gpu_memory", "12GiB", "--no-memory-check"]).unwrap();
    assert_eq!(
        (args.gpu_memory, args.no_memory_check),
        (Some(ByteSize(12 << 30)), true)
    );
    assert!(
        args.given.is_empty(),
        "another machine has other GPUs: {:?}",
        args.given
    );
    let err = parse(&["--jobs", "a", "--gpu-memory", "much"])
        .unwrap_err()
        .to_string();
    assert!(
        err.contains("or a number of bytes, for example 12GiB"),
        "{err}"
    );
}

#[test]
fn metrics_are_answered_at_an_address_or_at_that_of_a_name() {
    let host = |host: &str| parse(&["--jobs", "a", "--metrics-port", "9", "--metrics-host", host]);
    assert!(host("localhost").unwrap().metrics_host.is_loopback());
    assert_eq!(host("::1").unwrap().metrics_host.to_string(), "::1");
    let err = host("no such host").unwrap_err().to_string();
    assert!(
        err.contains("'--metrics-host <ADDRESS>': it is not an address and cannot be resolved: "),
        "{err}"
    );
}

#[test]
fn what_was_meant_is_said() {
    let refusal = |words: &[&str]| parse(words).unwrap_err().to_string();
    for (words, text) in [
        (
            &["--jobs", "a", "--seed", "-1"][..],
            "--seed is -1, expected a whole number from 0",
        ),
        (
            &["--jobs", "a", "--num-envs=-2"],
            "--num-envs is -2, expected a whole number",
        ),
        (
            &["jobs.json"],
            "`jobs.json` has no option; write `--jobs jobs.json`",
        ),
        (
            &["two_gpus.yaml"],
            "`two_gpus.yaml` has no option; write `--config two_gpus.yaml`",
        ),
        (
            &["--nproc_per_node", "2"],
            "--nproc-per-node is an option of the launcher and goes before `eval`",
        ),
        (
            &["--jobs", "a", "b"],
            "`b` is neither an option nor KEY=VALUE",
        ),
    ] {
        assert!(refusal(words).contains(text), "{}", refusal(words));
    }
    assert_eq!(
        parse(&["--jobs", "a", "--policy-device-id", "-1"])
            .unwrap()
            .policy_device_id,
        Some(-1)
    );
}

#[test]
fn an_experiment_has_changes_and_results_in_the_layout_of_arena() {
    for option in ["--experiment", "--experiment_config", "--jobs"] {
        let args = parse(&[
            option,
            "a.yaml",
            "shared.a=1",
            "--num-envs",
            "2",
            "~runs.b.c",
        ]);
        let args = args.unwrap();
        let changes: Vec<_> = args.changes.iter().map(ToString::to_string).collect();
        assert_eq!(changes, ["shared.a=1", "~runs.b.c"]);
        assert!(args.arena_output && args.given.contains_key("arena-output"));
    }
    let json = parse(&["--jobs", "a.json"]).unwrap();
    assert!(!json.arena_output && json.given.is_empty());
}

#[test]
fn leases_are_there_with_dynamic_only_and_are_of_episodes() {
    let args = parse(&[
        "--jobs",
        "a",
        "--assign",
        "dynamic",
        "--lease",
        "2",
        "--stall-timeout",
        "7",
    ])
    .unwrap();
    assert_eq!(
        (args.assignment().shard, args.lease_timeout()),
        (Shard::Episodes, Duration::from_secs(7))
    );
    let err = parse(&["--jobs", "a", "--lease", "2"]).unwrap_err();
    assert!(
        err.to_string()
            .contains("no effect without --assign dynamic"),
        "{err}"
    );
}

#[test]
fn a_size_that_is_none_is_refused_with_an_example() {
    assert!(
        parse(&["--jobs", "a", "--video-size", "224"])
            .unwrap_err()
            .to_string()
            .contains("for example 224x224")
    );
    let screen = |words: &[&str]| {
        parse(&[&["--jobs", "a"], words].concat()).map(|args| args.xvfb.map(|s| s.to_string()))
    };
    assert_eq!(screen(&["--xvfb"]).unwrap().as_deref(), Some("1024x768x24"));
    assert_eq!(
        screen(&["--xvfb", "640x480x16", "--no-video"])
            .unwrap()
            .as_deref(),
        Some("640x480x16")
    );
    assert!(
        screen(&["--xvfb=640x480"])
            .unwrap_err()
            .to_string()
            .contains("for example 1024x768x24")
    );
    let size = parse(&["--jobs", "a", "--video-size", "64x96"])
        .unwrap()
        .video_size;
    assert_eq!(
        size,
        Some(VideoSize {
            height: 64,
            width: 96
        })
    );
}

#[test]
fn an_early_stop_needs_a_reference_and_numbers_in_their_range() {
    let with = |words: &[&str]| parse(&[&["--jobs", "a", "--stop-when"], words].concat());
    let args = with(&["decided", "--against", "base", "--margin", "2.5"]).unwrap();
    assert_eq!(args.question(), Some(Question::Regression));
    assert_eq!((args.margin, args.level), (0.025, 0.05));
    assert_eq!(
        args.given.keys().collect::<Vec<_>>(),
        ["against", "margin", "stop-when"],
        "--resume takes them over"
    );
    let reproduced = with(&["reproduced", "--against", "base"]).unwrap();
    assert_eq!(reproduced.question(), Some(Question::Reproduction));
    assert_eq!(with(&["end"]).unwrap().question(), None);

    let refusal = |words: &[&str]| with(words).unwrap_err().to_string();
    assert!(refusal(&["decided"]).contains("--stop-when needs --against RUN"));
    let claimed = with(&["reproduced", "--claim", "462/500"]).unwrap();
    assert_eq!(claimed.claim.map(|claim| claim.solved), Some(462));
    assert!(refusal(&["decided", "--claim", "92.4"]).contains("expected SOLVED/EPISODES"));
    assert!(
        refusal(&["decided", "--claim", "1/2", "--against", "b"]).contains("cannot be used with")
    );
    for (option, value, text) in [
        ("--margin", "0", "expected a number above 0 and below 100"),
        ("--margin", "NaN", "expected a number above 0 and below 100"),
        ("--level", "0.6", "expected a number above 0 and up to 0.5"),
    ] {
        let told = refusal(&["decided", "--against", "base", option, value]);
        assert!(told.contains(text), "{told}");
    }
    assert!(refusal(&["decided", "--against", "b", "--only", "x"]).contains("cannot be used with"));
    assert!(parse(&["--jobs", "a", "--against", "b"]).is_err());
    assert!(parse(&["--jobs", "a", "--margin", "3"]).is_err());
}
