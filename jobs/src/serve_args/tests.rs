use std::ffi::{OsStr, OsString};

use super::*;
use serde_json::{Value, json};

fn parse(words: &[&str]) -> Result<ServeArgs, clap::Error> {
    ServeArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>())
}

fn setup(words: &[&str]) -> Result<ServeSetup, Refusal> {
    ServeSetup::read(&parse(words).expect("valid options"))
}

fn refusal(words: &[&str]) -> String {
    setup(words).unwrap_err().to_string()
}

#[test]
fn a_wrong_word_is_refused_with_the_option() {
    rig::cases::check("src/serve_args/refusals.txt", |given| {
        let words: Vec<_> = given.split(' ').filter(|word| *word != "-").collect();
        let refusal = match parse(&words) {
            Ok(args) => ServeSetup::read(&args).unwrap_err().to_string(),
            Err(err) => err.to_string(),
        };
        let said = refusal.lines().take_while(|line| !line.is_empty());
        said.collect::<Vec<_>>().join("\n")
    });
}

#[test]
fn a_folder_is_a_checkpoint_and_a_word_a_type() {
    let choice = |words: &[&str]| {
        let args = parse(words).unwrap();
        let policy = PolicyChoice::read(&args.policy.unwrap()).unwrap();
        policy.with(args.policy_config.as_deref()).unwrap()
    };
    let folder = choice(&[
        "--policy",
        "/tmp",
        "--policy_config",
        r#"{"dtype": "float32"}"#,
    ]);
    assert_eq!(folder.policy_type, "gr00t");
    let found = Value::Object(folder.config);
    assert_eq!(found, json!({"model_path": "/tmp", "dtype": "float32"}));
    let job = r#"{"policy_type": "gr00t_closedloop", "policy_config_dict": {"model_path": "/m"}}"#;
    let job = choice(&["--policy", job]);
    assert_eq!(job.policy_type.as_str(), "gr00t_closedloop");
    assert_eq!(Value::Object(job.config), json!({"model_path": "/m"}));
    assert_eq!(choice(&["--policy", "scripted"]).policy_type, "scripted");
}

#[test]
fn a_token_is_taken_out_of_the_words() {
    let taken = |words: &[&str]| {
        let (left, token) = take_token(&words.iter().map(OsString::from).collect::<Vec<_>>())?;
        Some((
            left.join(OsStr::new(" ")).into_string().unwrap(),
            token.into_string().unwrap(),
        ))
    };
    let wanted = Some(("--policy gr00t --port 1".to_owned(), "s3cret".to_owned()));
    let found = taken(&["--policy", "gr00t", "--api-token", "s3cret", "--port", "1"]);
    assert_eq!(found, wanted);
    let shown = taken(&["--policy", "gr00t", "--port", "1", "--api_token=s3cret"]);
    assert_eq!(shown, wanted);
    assert_eq!(taken(&["--policy", "gr00t"]), None);
    assert_eq!(taken(&["--policy", "gr00t", "--api-token"]), None);
}

#[test]
fn every_local_rank_has_its_port() {
    let args = parse(&["--policy", "gr00t", "--port", "65534"]).unwrap();
    assert_eq!(args.port_of(1), Ok(65535));
    assert!(args.port_of(2).is_err());
    let found = parse(&["--policy", "gr00t", "--port", "0"])
        .unwrap()
        .port_of(7);
    assert_eq!(found, Ok(0));
}

#[test]
fn ranks_have_the_ports_after_that_of_the_front() {
    let front = |words: &[&str]| parse(&[&["--policy", "gr00t"], words].concat()).unwrap();
    let args = front(&["--front-port", "5555"]);
    assert_eq!((args.port_of(0), args.port_of(3)), (Ok(5556), Ok(5559)));
    assert!(!args.is_front_port_taken(64));
    let args = front(&["--front-port", "5557", "--port", "5555"]);
    assert!(!args.is_front_port_taken(2));
    assert!(args.is_front_port_taken(3));
    assert_eq!(front(&["--front-port", "0"]).port_of(1), Ok(0));
}

#[test]
fn an_environment_is_made_once_with_its_arguments() {
    let words = ["--policy", "scripted", "--environment", "push"];
    let setup = setup(&[&words[..], &["--env-args", r#"{"camera_height": 64}"#]].concat());
    let Some(InterfaceSource::Environment(job)) = setup.unwrap().interface else {
        panic!("an environment is given");
    };
    assert_eq!((job.environment.as_str(), job.num_envs), ("push", 1));
    assert_eq!(job.env_args["camera_height"], 64);
}

#[test]
fn a_literal_token_is_refused_with_the_name_of_the_variable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.json");
    let config = json!({"remote_api_token": "s3cret"});
    let job = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                     "policy_type": "gr00t_remote_closedloop", "policy_config_dict": config,
                     "num_episodes": 1});
    std::fs::write(&path, json!({"jobs": [job]}).to_string()).unwrap();
    let config = config.to_string();
    let choice =
        format!(r#"{{"policy_type": "gr00t_remote_closedloop", "policy_config_dict": {config}}}"#);
    let given = |policy: &str, more: &[&str]| {
        let words = ["--policy", policy, "--environment", "reach"];
        refusal(&[&words[..], more].concat())
    };
    let refusals = [
        given("gr00t_remote_closedloop", &["--policy-config", &config]),
        given(&choice, &[]),
        refusal(&["--jobs", path.to_str().unwrap()]),
    ];
    for text in refusals {
        let told = "remote_api_token contains a secret";
        assert!(text.contains(told), "{text}");
        assert!(text.contains("`remote_api_token_env`"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    let named = ["--policy-config", r#"{"remote_api_token_env": "TOKEN"}"#];
    let words = [
        "--policy",
        "gr00t_remote_closedloop",
        "--environment",
        "reach",
    ];
    setup(&[&words[..], &named].concat()).unwrap();
}

#[test]
fn one_of_several_jobs_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.json");
    let job = |name: &str| {
        json!({"name": name, "arena_env_args": {"environment": "reach", "num_envs": 8},
               "policy_type": "scripted", "num_episodes": 1})
    };
    std::fs::write(&path, json!({"jobs": [job("a"), job("b")]}).to_string()).unwrap();
    let path = path.to_str().unwrap();
    assert!(refusal(&["--jobs", path]).ends_with("has 2 jobs; name one with --only: a, b"));
    assert!(
        refusal(&["--jobs", path, "--only", "c"])
            .ends_with("--only: unknown job `c`; expected one of a, b")
    );
    let chosen = setup(&["--jobs", path, "--only", "b"]).unwrap();
    assert_eq!(chosen.policy.unwrap().policy_type, "scripted");
    assert!(matches!(chosen.interface, Some(InterfaceSource::Environment(job)) if job.name == "b"));
}

#[test]
fn a_type_comes_before_a_folder_of_its_name() {
    // Tests run in the folder of the crate, which has a folder `src`.
    assert_eq!(PolicyChoice::read("src").unwrap().policy_type, "gr00t");
    assert_eq!(PolicyChoice::read("python").unwrap().policy_type, "python");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("python");
    std::fs::create_dir(&path).unwrap();
    let policy = PolicyChoice::read(&path.display().to_string()).unwrap();
    assert_eq!(policy.policy_type, "gr00t");
}
