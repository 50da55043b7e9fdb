use rig::cases;
use serde_json::{Value, json};

use super::*;
use crate::file::parse;
use crate::{samples, seed};

fn entry(light: Value, variations: Value) -> Value {
    let args = json!({"environment": "reach", "num_envs": 4, "light_intensity": light});
    samples::entry(json!({"arena_env_args": args, "variations": variations}))
}

fn jobs(variations: Value) -> Vec<Job> {
    samples::jobs([entry(json!(500), variations)])
}

fn refusal(entries: Value) -> String {
    parse(&json!({ "jobs": entries })).unwrap_err().to_string()
}

/// Returns the jobs of a job with these variations and a light of 500, one a line with its
/// arguments and groups, or why they are refused.
fn meaning(given: &str) -> String {
    let variations = serde_json::from_str(given).unwrap();
    let jobs = match parse(&json!({"jobs": [entry(json!(500), variations)]})) {
        Ok(jobs) => jobs,
        Err(refusal) => return refusal.to_string(),
    };
    let line = |job: &Job| {
        let groups = job
            .variant
            .as_ref()
            .map(|variant| format!(" in {:?}", variant.groups));
        let (groups, variations) = (groups.unwrap_or_default(), json!(job.variations));
        format!("{}{groups}: {variations}", job.name)
    };
    jobs.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn variations_make_a_control_and_its_variants_or_are_refused_by_place() {
    cases::check("src/file/variations/cases.txt", meaning);
}

#[test]
fn a_variant_has_the_seeds_and_all_but_the_overrides_of_its_control() {
    let jobs = jobs(json!([{"light_intensity": 100}, {"light_intensity": 900}]));
    let seeds = |job: &Job| [0, 1, 2].map(|episode| seed::episode(42, job, episode));
    for (index, job) in jobs.iter().enumerate() {
        assert_eq!((job.index.0, job.num_envs), (index, 4));
        assert_eq!((job.length, seeds(job)), (jobs[0].length, seeds(&jobs[0])));
    }
}

#[test]
fn a_long_name_is_shortened_to_a_hash() {
    let name = |variant: Value| jobs(json!([variant]))[1].name.clone();
    assert_eq!(name(json!({"x": "x".repeat(99)})).len(), "a_x_".len() + 8);
    let many = (0..99).map(|nth| (format!("argument{nth}"), nth.into()));
    let many: Map<_, _> = many.collect();
    assert_eq!(name(json!(many)).len(), "a_".len() + 8);
}

#[test]
fn a_variant_may_not_have_the_name_of_another_job() {
    let other = samples::entry(json!({"name": "a_dark"}));
    let varied = entry(json!(500), json!([{"name": "dark", "x": 1}]));
    assert_eq!(
        refusal(json!([other, varied])),
        "job 2 field name: `a_dark` of variant `dark` of `a` is also the name of job 0; names are \
         file names and must differ"
    );
}

#[test]
fn the_number_of_variants_and_their_size_are_bounded() {
    let refusal = |light: Value, variations: Value| refusal(json!([entry(light, variations)]));
    let values = |count: usize| (0..count).collect::<Vec<_>>();
    let grid = json!({"grid": {"x": values(40), "y": values(25)}});
    assert_eq!(jobs(grid).len(), 1001);
    let grid = json!({"grid": {"x": values(50), "y": values(50), "z": values(2)}});
    assert!(refusal(json!(1), grid).ends_with("it has 5000 combinations, expected at most 1000"));
    let list: Vec<_> = values(1001)
        .into_iter()
        .map(|x| json!({ "x": x }))
        .collect();
    assert!(
        refusal(json!(1), json!(list)).ends_with("more than 1000 variants, which is the limit")
    );
    let large = json!("x".repeat(100_000));
    for (light, grid) in [
        (large.clone(), json!({"x": values(1000)})),
        (json!(1), json!({"x": values(1000), "large": [large]})),
    ] {
        let text = refusal(light, json!({ "grid": grid }));
        assert!(text.contains("the variants of the file have 100"), "{text}");
        assert!(text.len() < 250, "{text}");
    }
}
