//! Compares every tensor of the network with the reference, and the fused network with its results.

use gr00t::model::{PassInputs, SamplerStart};
use tch::Kind;

use crate::parity::case::{Case, Tensors, cases};
use crate::parity::compare::{Recorder, Tolerance, compare};

/// Prefixes of tensors that the tests of processor and policy compare.
const ELSEWHERE: [&str; 3] = ["pre.", "action.", "float32.action."];

/// Prefix of the results of the same rounded weights in float32.
const FLOAT32: &str = "float32.";

#[test]
fn every_tensor_is_the_references() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let mut found = trace(&case);
        if case.expected.keys().any(|name| name.starts_with(FLOAT32)) {
            found.extend(float32(&case));
        }
        judge(&case, "reference", &found, |name| {
            !ELSEWHERE.iter().any(|prefix| name.starts_with(prefix))
        });
    }
}

#[test]
fn the_lean_network_gives_the_references_results() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let found = trace_lean(&case);
        judge(&case, "lean", &found, |name| found.contains_key(name));
        let results = ["backbone_features", "action_pred"];
        assert!(
            results
                .iter()
                .all(|name| found.contains_key(*name) && case.expected.contains_key(*name))
        );
    }
}

#[test]
fn a_second_inference_gives_the_same_actions() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let network = case.network(case.kind()).fused();
        let run = || {
            let features = case.features(&network, &mut gr00t::model::NoTap).unwrap();
            case.quiet_actions(&network, &features)
        };
        assert_eq!(run(), run(), "{}", case.name());
    }
}

#[test]
fn a_pass_over_a_prepared_shape_gives_the_same_actions_to_the_last_bit() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let network = case.network(case.kind()).fused();
        let features = case.features(&network, &mut gr00t::model::NoTap).unwrap();
        let wanted = case.quiet_actions(&network, &features).to_kind(Kind::Float);
        let (_, frame, batch) = case.prepared(&network);
        assert_eq!(network.pass(&frame, &batch), wanted, "{}", case.name());
        assert_eq!(network.pass(&frame, &batch), wanted, "{}", case.name());
    }
}

#[test]
fn a_pass_that_continues_the_previous_chunk_gives_the_actions_of_the_sampler_with_its_options() {
    let _no_grad = tch::no_grad_guard();
    let mut compared = 0;
    for case in cases() {
        let Some(previous) = case.previous() else {
            continue;
        };
        let network = case.network(case.kind()).fused();
        let features = case.features(&network, &mut gr00t::model::NoTap).unwrap();
        let rtc = case.rtc(previous);
        let tap = &mut gr00t::model::NoTap;
        let wanted = case.actions(&network, &features, Some(rtc), tap);
        let (_, frame, batch) = case.prepared(&network);
        let start = SamplerStart::new(batch.noise.shallow_clone(), Some(&rtc)).unwrap();
        let noise = start.actions;
        let batch = PassInputs { noise, ..batch }.with_strength(start.strength);
        let found = network.pass(&frame, &batch);
        assert_eq!(found, wanted.to_kind(Kind::Float), "{}", case.name());
        compared += 1;
    }
    assert!(compared > 0, "no case has a previous chunk");
}

/// Returns all tensors of the original network.
fn trace(case: &Case) -> Tensors {
    let network = case.network(case.kind());
    let mut tap = Recorder::default();
    let features = case.features(&network, &mut tap).unwrap();
    let _ = case.actions(&network, &features, None, &mut tap);
    if let Some(previous) = case.previous() {
        tap.prefix = "rtc.";
        let _ = case.actions(&network, &features, Some(case.rtc(previous)), &mut tap);
    }
    tap.seen
}

/// Returns the visible tensors of the fused network: those of the backbone, and the actions.
fn trace_lean(case: &Case) -> Tensors {
    let network = case.network(case.kind()).fused();
    let mut tap = Recorder::default();
    let features = case.features(&network, &mut tap).unwrap();
    let _ = case.actions(&network, &features, None, &mut tap);
    if let Some(previous) = case.previous() {
        let rtc = case.actions(
            &network,
            &features,
            Some(case.rtc(previous)),
            &mut gr00t::model::NoTap,
        );
        tap.seen.insert("rtc.action_pred".to_owned(), rtc);
    }
    tap.seen
}

fn float32(case: &Case) -> Tensors {
    let network = case.network(Kind::Float);
    let mut tap = Recorder {
        prefix: FLOAT32,
        ..Recorder::default()
    };
    let features = case.features(&network, &mut tap).unwrap();
    let _ = case.actions(&network, &features, None, &mut tap);
    tap.seen
}

/// Compares the tensors for which `covered` holds; prints the largest error and fails with all that
/// are too large.
fn judge(case: &Case, what: &str, found: &Tensors, covered: impl Fn(&str) -> bool) {
    let mut worst = (0.0, "none");
    let mut problems = Vec::new();
    let mut count = 0;
    for (name, expected) in case.expected.iter().filter(|(name, _)| covered(name)) {
        let Some(tensor) = found.get(name) else {
            problems.push(format!("`{name}`: the network has no such tensor"));
            continue;
        };
        let kind = if name.starts_with(FLOAT32) {
            Kind::Float
        } else {
            case.kind()
        };
        match compare(tensor, expected, Tolerance::of(kind, name)) {
            Ok(error) if error > worst.0 => worst = (error, name),
            Ok(_) => {}
            Err(problem) => problems.push(format!("`{name}`: {problem}")),
        }
        count += 1;
    }
    println!(
        "{} {what}: {count} tensors, worst relative error {:.1e} ({})",
        case.name(),
        worst.0,
        worst.1
    );
    assert!(
        problems.is_empty(),
        "{} {what}:\n{}",
        case.name(),
        problems.join("\n")
    );
}
