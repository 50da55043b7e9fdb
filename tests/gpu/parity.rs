//! The golden cases on a GPU: every tensor of the original network, and the results of the fused
//! one.

use tch::{Kind, Tensor};

use crate::gpu::card::{device, root};
use crate::parity::case::{Case, Tensors, cases_in};
use crate::parity::compare::{Recorder, Tolerance, compare};
use gr00t::model::{Gr00t, NoTap};

/// Prefixes of the tensors that belong to the processor, to the policy, or to a run in float32.
const ELSEWHERE: [&str; 3] = ["pre.", "action.", "float32."];

/// A GPU sums in another order than the CPU on which the bounds of the float32 cases were measured.
const CARD: Tolerance = Tolerance {
    relative: 5e-5,
    of_largest: 1e-4,
    absolute: f64::INFINITY,
};

#[test]
fn gpu_every_tensor_of_the_goldens_is_the_references() {
    let Some(device) = device() else { return };
    let _no_grad = tch::no_grad_guard();
    for case in cases_in(&root().join("tests/fixtures/gr00t")) {
        let found = trace(&case, &case.network_on(device, case.kind()));
        let covered = |name: &str| !ELSEWHERE.iter().any(|prefix| name.starts_with(prefix));
        judge(&case, "reference", &found, covered);
    }
}

#[test]
fn gpu_the_lean_network_gives_the_goldens_results() {
    let Some(device) = device() else { return };
    let _no_grad = tch::no_grad_guard();
    for case in cases_in(&root().join("tests/fixtures/gr00t")) {
        let found = trace(&case, &case.network_on(device, case.kind()).fused());
        judge(&case, "lean", &found, |name| found.contains_key(name));
        assert!(
            ["backbone_features", "action_pred"]
                .iter()
                .all(|name| found.contains_key(*name))
        );
    }
}

#[test]
fn gpu_a_second_inference_gives_the_same_actions() {
    let Some(device) = device() else { return };
    let _no_grad = tch::no_grad_guard();
    for case in cases_in(&root().join("tests/fixtures/gr00t")) {
        let network = case.network_on(device, case.kind()).fused();
        let run = || case.quiet_actions(&network, &case.features(&network, &mut NoTap).unwrap());
        assert_eq!(run(), run(), "{}", case.name());
    }
}

fn trace(case: &Case, network: &Gr00t) -> Tensors {
    let mut tap = Recorder::default();
    let features = case.features(network, &mut tap).unwrap();
    let actions = case.actions(network, &features, None, &mut tap);
    tap.seen.insert("action_pred".to_owned(), actions);
    if let Some(previous) = case.previous() {
        tap.prefix = "rtc.";
        let _ = case.actions(network, &features, Some(case.rtc(previous)), &mut tap);
    }
    tap.seen
}

/// Compares the tensors for which `covered` holds; prints the largest error and fails with all that
/// are too large.
fn judge(case: &Case, what: &str, found: &Tensors, covered: impl Fn(&str) -> bool) {
    let (mut worst, mut count, mut problems) = ((0.0, "none"), 0, Vec::new());
    for (name, expected) in case.expected.iter().filter(|(name, _)| covered(name)) {
        let outcome = match found.get(name) {
            Some(tensor) => compare(&on_cpu(tensor), expected, tolerance(case.kind(), name)),
            None => Err("the network has no such tensor".to_owned()),
        };
        match outcome {
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

fn on_cpu(tensor: &Tensor) -> Tensor {
    tensor.to_device(tch::Device::Cpu)
}

fn tolerance(kind: Kind, name: &str) -> Tolerance {
    if kind == Kind::Float {
        CARD
    } else {
        Tolerance::of(kind, name)
    }
}
