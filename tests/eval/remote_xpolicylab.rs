//! Tests of `xpolicylab_remote` against a server that follows XPolicyLab's protocol
//! (`tests/fixtures/remote/xpolicylab_server.py`).

use serde_json::{Value, json};

use crate::eval::remote::{Server, eval, local, outcomes};

fn start(settings: Value) -> Server {
    Server::start("xpolicylab_server.py", settings)
}

fn job(server: &Server, more: Value) -> Value {
    server.job("xpolicylab_remote", more)
}

/// Returns the trials of a kind of request, sorted.
fn trials(server: &Server, kind: &str) -> Vec<String> {
    let asked = server.asked();
    let of_kind = asked.iter().filter(|line| line.get(kind).is_some());
    let mut trials: Vec<String> = of_kind
        .filter_map(|line| Some(line["trial"].as_str()?.to_owned()))
        .collect();
    trials.sort();
    trials
}

#[test]
fn a_server_of_xpolicylab_is_told_of_every_episode_and_its_actions_are_executed() {
    let server = start(json!({"token": "s3cret"}));
    let evaluation = eval(job(
        &server,
        json!({"remote_api_token_env": "POLICY_TOKEN"}),
    ));
    evaluation.run().succeeds();
    assert_eq!(outcomes(&evaluation), local());

    assert_eq!(server.count("hello"), 1, "a connection a rank");
    let episodes: Vec<String> = (0..6).map(|episode| format!("episode-{episode}")).collect();
    assert_eq!(trials(&server, "reset"), episodes);
    assert_eq!(trials(&server, "trial_end"), episodes);

    let asked = server.asked();
    let inferences: Vec<&Value> = asked
        .iter()
        .filter(|line| line.get("infer").is_some())
        .collect();
    // Seven steps with chunks of three actions are three inferences.
    assert_eq!(inferences.len(), 18);
    let of_first = inferences
        .iter()
        .filter(|line| line["trial"] == "episode-0");
    let steps: Vec<_> = of_first.map(|line| line["step"].clone()).collect();
    assert_eq!(steps, [0, 1, 2]);
    assert!(inferences.iter().any(|line| line["env"] == 3));
}

#[test]
fn without_a_number_all_actions_of_an_answer_are_executed() {
    let server = start(json!({}));
    eval(job(&server, json!({"action_chunk_length": null})))
        .run()
        .succeeds();
    // Seven steps with chunks of four actions are two inferences.
    assert_eq!(server.count("infer"), 12);
}

#[test]
fn a_server_of_xpolicylab_that_is_late_or_dies_costs_nothing_but_time() {
    let late = start(json!({"late": 3}));
    eval(job(&late, json!({})))
        .run()
        .succeeds()
        .stderr_has(" answers again after ");
    let mortal = start(json!({"die_after": 3}));
    let evaluation = eval(job(&mortal, json!({})));
    evaluation.run().succeeds();
    assert_eq!((mortal.count("dies"), outcomes(&evaluation)), (1, local()));
}

#[test]
fn a_server_of_xpolicylab_that_is_silent_costs_no_more_than_its_time() {
    let server = start(json!({"fault": "silent"}));
    let brief = json!({"remote_timeout_s": 3, "remote_retry_s": 4});
    eval(job(&server, brief))
        .run()
        .fails_with(1)
        .stderr_has("it stays unavailable: ")
        .stderr_has("no answer within 3 s");
}

#[test]
fn what_a_server_of_xpolicylab_gets_wrong_is_told_in_its_words() {
    let failure = |settings: Value, more: Value, reason: &str| {
        let server = start(settings);
        eval(job(&server, more))
            .run()
            .fails_with(1)
            .stderr_has(reason);
    };
    failure(
        json!({"fault": "error"}),
        json!({}),
        "infer: it answers with the error `infer_failed`: the arm is on fire",
    );
    failure(
        json!({"fault": "garbage"}),
        json!({}),
        "reset: its answer cannot be read: not msgpack",
    );
    failure(
        json!({"fault": "stranger"}),
        json!({}),
        "connecting: hello: it answers message `of somebody else`, and was asked `",
    );
    failure(
        json!({"fault": "short"}),
        json!({}),
        "infer: its action 0 has arm_joint_state [1] + ee_joint_state [3], the environment takes 2",
    );
    failure(
        json!({"fault": "unnamed"}),
        json!({}),
        "infer: its action 0 has no `arm_joint_state`; it has left_arm_joint_state",
    );
    failure(
        json!({"token": "s3cret"}),
        json!({}),
        "it answers HTTP 401 Unauthorized; remote_api_token_env names the variable with its token",
    );
    failure(
        json!({"token": "s3cret"}),
        json!({"remote_api_token_env": "WRONG_TOKEN"}),
        "HTTP 401 Unauthorized; it does not accept the token of remote_api_token_env",
    );
}

#[test]
fn an_environment_without_anything_for_xpolicylab_is_refused_with_both_sides() {
    let server = Server::nowhere();
    eval(job(&server, json!({"observation_mapping": null})))
        .run()
        .fails_with(1)
        .stderr_has("policy `xpolicylab_remote` needs an observation_mapping, or names of")
        .stderr_has("has cameras top; states position [3]");
}
