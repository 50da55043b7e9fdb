//! Compares every tensor of the network with the reference, and the fused network with its results.

use gr00t::model::{Gr00t, NoTap, PassInputs, SamplerStart};
use tch::{Device, Kind};

use crate::parity::case::{Case, Tensors, cases};
use crate::parity::compare::{Recorder, Tolerance, compare};

/// Prefixes of tensors that the tests of processor and policy compare.
const ELSEWHERE: [&str; 3] = ["pre.", "action.", "float32.action."];

/// Prefix of the results of the same rounded weights in float32.
pub const FLOAT32: &str = "float32.";

#[test]
fn every_tensor_is_the_references() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let mut found = trace(&case, &case.network(case.kind()), "");
        if case.expected.keys().any(|name| name.starts_with(FLOAT32)) {
            found.extend(trace(&case, &case.network(Kind::Float), FLOAT32));
        }
        let is_here = |name: &str| !ELSEWHERE.iter().any(|prefix| name.starts_with(prefix));
        judge(&case, "reference", &found, is_here, Tolerance::FLOAT32);
    }
}

#[test]
fn the_lean_network_gives_the_references_results() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        is_lean(
            &case,
            &case.network(case.kind()).fused(),
            Tolerance::FLOAT32,
        );
    }
}

#[test]
fn a_second_inference_gives_the_same_actions() {
    let _no_grad = tch::no_grad_guard();
    cases()
        .iter()
        .for_each(|case| is_repeated(case, Device::Cpu));
}

#[test]
fn a_pass_over_a_prepared_shape_gives_the_same_actions_to_the_last_bit() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let network = case.network(case.kind()).fused();
        let features = case.features(&network, &mut NoTap).unwrap();
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
        let features = case.features(&network, &mut NoTap).unwrap();
        let rtc = case.rtc(previous);
        let wanted = case.actions(&network, &features, Some(rtc), &mut NoTap);
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

/// Returns the tensors that a network shows, all of the original one and some of the fused one,
/// and its actions.
pub fn trace(case: &Case, network: &Gr00t, prefix: &'static str) -> Tensors {
    let mut tap = Recorder {
        prefix,
        ..Recorder::default()
    };
    let features = case.features(network, &mut tap).unwrap();
    let actions = case.actions(network, &features, None, &mut tap);
    tap.seen.insert(format!("{prefix}action_pred"), actions);
    if let Some(previous) = case.previous().filter(|_| prefix.is_empty()) {
        tap.prefix = "rtc.";
        let actions = case.actions(network, &features, Some(case.rtc(previous)), &mut tap);
        tap.seen.insert("rtc.action_pred".to_owned(), actions);
    }
    tap.seen
}

/// Checks what a fused network shows: features and actions at least.
pub fn is_lean(case: &Case, network: &Gr00t, float32: Tolerance) {
    let found = trace(case, network, "");
    judge(
        case,
        "lean",
        &found,
        |name| found.contains_key(name),
        float32,
    );
    let results = ["backbone_features", "action_pred"];
    let is_compared = |name: &&str| found.contains_key(*name) && case.expected.contains_key(*name);
    assert!(results.iter().all(is_compared), "{}", case.name());
}

/// Checks that two inferences give the same actions.
pub fn is_repeated(case: &Case, device: Device) {
    let network = case.network_on(device, case.kind()).fused();
    let run = || case.quiet_actions(&network, &case.features(&network, &mut NoTap).unwrap());
    assert_eq!(run(), run(), "{}", case.name());
}

/// Compares the tensors for which `covered` holds; prints the largest error and fails with all that
/// are too large.
pub fn judge(
    case: &Case,
    what: &str,
    found: &Tensors,
    covered: impl Fn(&str) -> bool,
    float32: Tolerance,
) {
    let (mut worst, mut count, mut problems) = ((0.0, "none"), 0, Vec::new());
    for (name, expected) in case.expected.iter().filter(|(name, _)| covered(name)) {
        let is_float32 = case.kind() == Kind::Float || name.starts_with(FLOAT32);
        let tolerance = match is_float32 {
            true => float32,
            false => Tolerance::bfloat16(name),
        };
        let outcome = match found.get(name) {
            Some(tensor) => compare(&tensor.to_device(Device::Cpu), expected, tolerance),
            None => Err("the network has no such tensor".to_owned()),
        };
        match outcome {
            Ok(error) if error > worst.0 => worst = (error, name),
            Ok(_) => {}
            Err(problem) => problems.push(format!("`{name}`: {problem}")),
        }
        count += 1;
    }
    let name = case.name();
    let (error, at) = worst;
    println!("{name} {what}: {count} tensors, worst relative error {error:.1e} ({at})");
    assert!(
        problems.is_empty(),
        "{name} {what}:\n{}",
        problems.join("\n")
    );
}
