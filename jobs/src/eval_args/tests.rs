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
fn a_server_listens_on_a_port_of_this_machine_or_of_an_address_or_name() {
    let address = |text: &str| with(&["--metrics", text]).metrics.unwrap();
    assert_eq!(address("9").to_string(), "127.0.0.1:9");
    assert_eq!(address("0.0.0.0:9").to_string(), "0.0.0.0:9");
    assert_eq!(address("[::1]:9").to_string(), "[::1]:9");
    assert!(address("localhost:9").ip().is_loopback());
    let err = parse(&["--jobs", "a", "--page", "no such host:9"])
        .unwrap_err()
        .to_string();
    let told = "'--page <[HOST:]PORT>': `no such host` is not an address and cannot be resolved: ";
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
    let args = with(&["--assign", "dynamic", "--stall-timeout", "7"]);
    assert_eq!(args.assignment().shard, Shard::Episodes);
    assert_eq!(args.lease_timeout(), Duration::from_secs(7));
    assert_eq!(args.gather_timeout(), Duration::from_secs(60));
    assert_eq!(with(&[]).gather_timeout(), Duration::from_secs(600));
}

#[test]
fn a_screen_has_a_size() {
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
    let against = |text: &str| with(&["reproduced", "--against", text]).against;
    let claim = "462/500".parse().unwrap();
    assert_eq!(against("462/500"), Some(Against::Claim(claim)));
    for folder in ["./462/500", "462/500/a", "462"] {
        assert_eq!(against(folder), Some(Against::Run(folder.into())));
    }
}
