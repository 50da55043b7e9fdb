//! Tests of how much a file may have as text: bombs, nesting, repetition.

use super::*;

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
    let text = run_with(&format!("variations: {{{deep}}}"));
    assert!(read(&text, &[]).is_ok(), "such a name is one name");
}

#[test]
fn bombs_nesting_and_two_runs_of_one_name_are_refused_by_the_parser() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (above, name) in ('a'..='y').zip('b'..='z') {
        let repeated = vec![format!("*{above}"); 9].join(", ");
        bomb.push_str(&format!("{name}: &{name} [{repeated}]\n"));
    }
    bomb.push_str("runs: {a: {environment: {type: push, l: *z}, policy: {type: p}}}");
    let nested = format!("runs: {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    for text in [&bomb, &nested, "runs: {a: {}, a: {}}"] {
        let refused = refusal(text, &[]);
        let is_the_parsers = refused.starts_with("`a.yaml`: ");
        assert!(is_the_parsers, "not its reader's: {refused}");
    }
}
