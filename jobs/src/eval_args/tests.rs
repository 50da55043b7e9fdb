use super::*;

fn parse(words: &[&str]) -> Result<EvalArgs, clap::Error> {
    EvalArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>())
}

fn with(words: &[&str]) -> EvalArgs {
    crate::samples::eval_args(words)
}

#[test]
fn both_spellings_are_read_and_values_are_left_alone() {
    let file = "--eval_jobs_config=my_jobs.json";
    let args = parse(&[file, "--policy_device_id", "-1", "--continue_on_error"]).unwrap();
    assert_eq!(args.jobs, Some("my_jobs.json".into()));
    assert_eq!(args.policy_device_id, Some(-1));
    assert!(args.continue_on_error);
}

#[test]
fn jobs_come_from_a_jobs_file_or_from_a_config() {
    let placement = ["--placement", "env,rollout: all"];
    let files = ["--config", "a.yaml", "--config", "b.yaml"];
    let args = parse(&[&files[..], &placement].concat()).unwrap();
    assert_eq!((args.jobs, args.config.len()), (None, 2));
    assert_eq!(parse(&["--resume", "out"]).unwrap().jobs, None);
}

#[test]
fn memory_of_a_gpu_has_a_unit_and_is_of_one_start() {
    let args = with(&["--gpu_memory", "12GiB", "--no-memory-check"]);
    assert_eq!(args.gpu_memory, Some(ByteSize(12 << 30)));
    assert!(args.no_memory_check);
    assert!(args.given.is_empty(), "another machine has other GPUs");
}

#[test]
fn metrics_are_answered_at_an_address_or_at_that_of_a_name() {
    let host = |host: &str| {
        let args = parse(&["--jobs", "a", "--metrics-port", "9", "--metrics-host", host]);
        args.map(|args| args.metrics_host)
    };
    assert!(host("localhost").unwrap().is_loopback());
    assert_eq!(host("::1").unwrap().to_string(), "::1");
    let err = host("no such host").unwrap_err().to_string();
    let told = "'--metrics-host <ADDRESS>': it is not an address and cannot be resolved: ";
    assert!(err.contains(told), "{err}");
}

#[test]
fn what_was_meant_is_said() {
    rig::cases::check("src/eval_args/refusals.txt", |given| {
        let words: Vec<_> = given.split(' ').filter(|word| *word != "-").collect();
        let refusal = parse(&words).unwrap_err().to_string();
        let said = refusal.lines().take_while(|line| !line.is_empty());
        said.collect::<Vec<_>>().join("\n")
    });
}

#[test]
fn an_experiment_has_changes_and_results_in_the_layout_of_arena() {
    for option in ["--experiment", "--experiment_config", "--jobs"] {
        let words = ["a.yaml", "shared.a=1", "--num-envs", "2", "~runs.b.c"];
        let args = parse(&[&[option], &words[..]].concat()).unwrap();
        let changes: Vec<_> = args.changes.iter().map(ToString::to_string).collect();
        assert_eq!(changes, ["shared.a=1", "~runs.b.c"]);
        assert!(args.arena_output && args.given.contains_key("arena-output"));
    }
    let json = with(&[]);
    assert!(!json.arena_output && json.given.is_empty());
}

#[test]
fn leases_are_of_episodes() {
    let args = with(&[
        "--assign",
        "dynamic",
        "--lease",
        "2",
        "--stall-timeout",
        "7",
    ]);
    assert_eq!(args.assignment().shard, Shard::Episodes);
    assert_eq!(args.lease_timeout(), Duration::from_secs(7));
}

#[test]
fn pictures_and_screens_have_a_size() {
    let (height, width) = (64, 96);
    let size = with(&["--video-size", "64x96"]).video_size;
    assert_eq!(size, Some(VideoSize { height, width }));
    let screen = |words: &[&str]| with(words).xvfb.map(|screen| screen.to_string());
    assert_eq!(screen(&["--xvfb"]).as_deref(), Some("1024x768x24"));
    let given = screen(&["--xvfb", "640x480x16", "--no-video"]);
    assert_eq!(given.as_deref(), Some("640x480x16"));
}

#[test]
fn an_early_stop_asks_one_of_two_questions() {
    let with = |words: &[&str]| with(&[&["--stop-when"], words].concat());
    let args = with(&["decided", "--against", "base", "--margin", "2.5"]);
    assert_eq!(args.question(), Some(Question::Regression));
    assert_eq!((args.margin, args.level), (0.025, 0.05));
    let given: Vec<_> = args.given.keys().collect();
    assert_eq!(
        given,
        ["against", "margin", "stop-when"],
        "--resume takes them over"
    );
    let reproduced = with(&["reproduced", "--against", "base"]);
    assert_eq!(reproduced.question(), Some(Question::Reproduction));
    assert_eq!(with(&["end"]).question(), None);
    let claimed = with(&["reproduced", "--claim", "462/500"]);
    assert_eq!(claimed.claim.map(|claim| claim.solved), Some(462));
}
