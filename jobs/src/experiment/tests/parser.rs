//! Tests of what a file may have as text: scalars, bombs, nesting, any tree.

use proptest::prelude::*;

use super::*;

#[test]
fn scalars_of_a_file_are_those_of_omegaconf() {
    let text = with(
        "environment",
        "octal: 010, on: yes, off: 'no', small: 1e-3, time: 08",
    );
    let args = jobs(&text, &[]).remove(0).env_args;
    assert_eq!((&args["octal"], &args["small"]), (&json!(8), &json!(1e-3)));
    assert_eq!((&args["on"], &args["off"]), (&json!(true), &json!("no")));
}

#[test]
fn quoted_numbers_are_numbers_in_the_fields_of_a_run() {
    let text = "
runs:
  a:
    environment: {type: push, note: '7'}
    environment_builder: {num_envs: '3', seed: '5'}
    policy: {type: zero_action}
    rollout_limit: {num_episodes: '4'}
    num_rebuilds: '2'
";
    let job = jobs(text, &[]).remove(0);
    assert_eq!((job.num_envs, job.seed, job.num_rebuilds), (3, Some(5), 2));
    assert_eq!(
        (job.length, &job.env_args["note"]),
        (Length::Episodes(4), &json!("7"))
    );
    let none = refusal(&text.replace("'4'", "'four'"), &[]);
    assert!(
        none.contains("found \"four\", expected a whole number"),
        "{none}"
    );
}

#[test]
fn what_a_small_file_repeats_has_a_limit() {
    let long = "x".repeat(1 << 20);
    let runs: String = (0..100).map(|run| format!("  r{run}: {{}}\n")).collect();
    let text = format!("shared:\n  environment: {{type: {long}}}\nruns:\n{runs}");
    assert!(refusal(&text, &[]).contains("bytes in 100 runs are more than"));

    let names = "'${shared.s}',".repeat(100);
    let text = format!(
        "shared: {{s: {long}}}\nruns: {{a: {{environment: {{type: a, l: [{names}]}}, \
                        policy: {{type: p}}}}}}"
    );
    assert!(refusal(&text, &[]).contains("`${shared.s}` cannot be resolved"));
    let itself = "shared: {s: {a: '${shared.s}', b: '${shared.s}'}}\n\
                  runs: {a: {environment: '${shared.s}', policy: {type: p}}}";
    assert!(refusal(itself, &[]).contains("cannot be resolved"));

    let deep = format!("{}: 1", vec!["a"; 500].join("."));
    let text = with("run", &format!("variations: {{{deep}}}"));
    assert!(read(&text, &[]).is_ok(), "such a name is one name");
}

#[test]
fn bombs_and_nesting_are_refused_by_the_parser() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (above, name) in ('a'..='y').zip('b'..='z') {
        let repeated = vec![format!("*{above}"); 9].join(", ");
        bomb.push_str(&format!("{name}: &{name} [{repeated}]\n"));
    }
    bomb.push_str("runs: {a: {environment: {type: push, l: *z}, policy: {type: p}}}");
    let nested = format!("runs: {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    for text in [bomb, nested] {
        let refused = refusal(&text, &[]);
        assert!(
            refused.starts_with("`a.yaml`: "),
            "the parser, not its reader: {refused}"
        );
    }
}

fn any_tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        Just(Value::from("${shared.policy}")),
        Just(Value::from("push")),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let known = [
            "runs",
            "shared",
            "type",
            "name",
            "factory",
            "num_episodes",
            "num_envs",
        ];
        let names = [run::FIELDS, &known[..]].concat();
        let key = prop_oneof![
            proptest::sample::select(names).prop_map(str::to_owned),
            "[a-z_.]{0,9}"
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_tree_and_no_change_make_the_reader_panic(
        runs in any_tree(), shared in any_tree(), change in "[+~]?(runs|shared)[.][a-z.]{0,9}=\\PC{0,9}",
    ) {
        let changes: Vec<Change> = change.parse().into_iter().collect();
        for tree in [json!({"runs": runs, "shared": shared}), json!({"runs": {"a": runs}}), runs] {
            let _ = Experiment::of_tree(tree, &changes, &|_| None);
        }
    }
}
