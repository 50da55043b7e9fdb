use std::ffi::{OsStr, OsString};

use super::*;
use serde_json::{Value, json};

fn parse(words: &[&str]) -> Result<ServeArgs, clap::Error> {
    ServeArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>())
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
fn an_empty_token_is_refused_and_does_not_let_everybody_in() {
    let told = parse(&["--policy", "gr00t", "--api-token", ""])
        .unwrap_err()
        .to_string();
    let wanted = "it is empty; omit it to allow everyone";
    assert!(told.contains(wanted), "{told}");
}

#[test]
fn what_is_no_policy_is_refused_by_name() {
    let refusal = |words: &[&str]| {
        let args = parse(words).unwrap();
        let policy = PolicyChoice::read(&args.policy.unwrap());
        let policy = policy.and_then(|policy| policy.with(args.policy_config.as_deref()));
        policy.unwrap_err().to_string()
    };
    assert!(refusal(&["--policy", "{"]).starts_with("--policy: not a JSON object"));
    assert!(
        refusal(&["--policy", r#"{"policy": 1}"#]).contains("--policy: unknown field `policy`")
    );
    assert!(
        refusal(&["--policy", "gr00t", "--policy-config", "/nowhere"])
            .contains("`/nowhere`: No such file")
    );
    let told = "--policy <POLICY>";
    assert!(parse(&[]).unwrap_err().to_string().contains(told));
    assert!(
        parse(&["/tmp"])
            .unwrap_err()
            .to_string()
            .contains("`/tmp` has no option; write `--policy /tmp`")
    );
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
