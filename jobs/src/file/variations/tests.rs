use serde_json::{Value, json};

use super::*;
use crate::file::parse;
use crate::seed;

fn file(env_args: Value, variations: Value) -> Value {
    let mut args = json!({"environment": "reach", "num_envs": 4});
    args.as_object_mut()
        .unwrap()
        .extend(env_args.as_object().unwrap().clone());
    json!({"jobs": [{"name": "a", "arena_env_args": args, "policy_type": "scripted",
                     "num_episodes": 3, "variations": variations}]})
}

fn jobs(variations: Value) -> Vec<Job> {
    parse(&file(json!({}), variations)).unwrap()
}

fn refusal(variations: Value) -> String {
    refusal_of(json!({}), variations)
}

fn refusal_of(env_args: Value, variations: Value) -> String {
    parse(&file(env_args, variations)).unwrap_err().to_string()
}

fn names(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| job.name.as_str()).collect()
}

fn groups(job: &Job) -> Vec<&str> {
    let groups = &job.variant.as_ref().unwrap().groups;
    groups.iter().map(String::as_str).collect()
}

#[test]
fn a_flat_map_overrides_the_arguments_of_the_job_itself() {
    let jobs = jobs(json!({"light_intensity": 900, "grid": 3}));
    assert_eq!((names(&jobs), jobs[0].variant.is_none()), (vec!["a"], true));
    let values = Value::Object(jobs[0].variations.clone());
    assert_eq!(values, json!({"light_intensity": 900, "grid": 3}));
}

#[test]
fn a_list_makes_a_control_and_a_job_for_each_variant() {
    let jobs = jobs(json!([
        {"name": "dark", "group": "light", "light_intensity": 100},
        {"name": "small", "camera_width": 64, "camera_height": 64},
        {"light_intensity": 900},
    ]));
    assert_eq!(
        names(&jobs),
        ["a", "a_dark", "a_small", "a_light_intensity_900"]
    );
    assert!(jobs[0].variant.is_none() && jobs[0].variations.is_empty());
    let found = jobs[1..].iter().map(groups).collect::<Vec<_>>();
    assert_eq!(found, [vec!["light"], vec![], vec!["light_intensity"]]);
    for (index, job) in jobs.iter().enumerate() {
        assert_eq!(
            (job.index.0, job.num_envs, job.length),
            (index, 4, jobs[0].length)
        );
    }
    let values = Value::Object(jobs[2].variations.clone());
    assert_eq!(values, json!({"camera_width": 64, "camera_height": 64}));
}

#[test]
fn a_grid_has_every_combination_with_a_group_for_each_value() {
    let jobs =
        jobs(json!({"grid": {"light_intensity": [100, 900], "object": ["cube", "cylinder"]}}));
    assert_eq!(
        names(&jobs),
        [
            "a",
            "a_light_intensity_100_object_cube",
            "a_light_intensity_100_object_cylinder",
            "a_light_intensity_900_object_cube",
            "a_light_intensity_900_object_cylinder",
        ]
    );
    assert_eq!(groups(&jobs[2]), ["light_intensity=100", "object=cylinder"]);
}

#[test]
fn grids_may_stand_in_a_list_and_have_one_group() {
    let jobs = jobs(json!([
        {"grid": {"light_intensity": [100, 900]}},
        {"group": "camera", "grid": {"camera_width": [64], "camera_height": [32, 64]}},
    ]));
    let found = jobs[1..].iter().map(groups).collect::<Vec<_>>();
    assert_eq!(
        found,
        [
            ["light_intensity"],
            ["light_intensity"],
            ["camera"],
            ["camera"]
        ]
    );
}

#[test]
fn the_combination_that_is_the_control_is_no_variant() {
    let file = file(
        json!({"light_intensity": 500}),
        json!({"grid": {"light_intensity": [100, 500, 900]}}),
    );
    let jobs = parse(&file).unwrap();
    assert_eq!(
        names(&jobs),
        ["a", "a_light_intensity_100", "a_light_intensity_900"]
    );
}

#[test]
fn episodes_of_a_variant_have_the_seeds_of_its_control() {
    let jobs = jobs(json!([{"light_intensity": 100}, {"light_intensity": 900}]));
    let seeds = |job: &Job| [0, 1, 2].map(|episode| seed::episode(42, job, episode));
    assert_eq!(seeds(&jobs[0]), seeds(&jobs[1]));
    assert_eq!(seeds(&jobs[0]), seeds(&jobs[2]));
}

#[test]
fn a_name_follows_from_the_values_and_is_a_file_name() {
    let name = |value: Value| names(&jobs(json!([{"x": value}])))[1].to_owned();
    assert_eq!(name(json!(-0.5)), "a_x_-0.5");
    assert_eq!(name(json!([0.1, -2])), "a_x_0.1--2");
    assert_eq!(
        name(json!("../assets/red cube.xml")),
        "a_x_..-assets-red-cube.xml"
    );
    assert_eq!(name(json!({"y": true})), "a_x_y-true");
    assert_eq!(name(json!("x".repeat(99))).len(), "a_x_".len() + 8);
    let many = (0..99).map(|nth| (format!("argument{nth}"), nth.into()));
    let many = jobs(json!([many.collect::<Map<_, _>>()]));
    assert_eq!(many[1].name.len(), "a_".len() + 8);
}

#[test]
fn what_makes_no_variant_is_refused_by_place() {
    for (variations, text) in [
        (
            json!(3),
            "job 0 (a) field variations: found 3, expected an object or a list",
        ),
        (
            json!([]),
            "job 0 (a) field variations: the list is empty, expected at least one variant",
        ),
        (
            json!([{"x": 1}, "dark"]),
            "job 0 (a) field variations[1]: found \"dark\", expected an object",
        ),
        (
            json!([{"name": "dark", "group": "light"}]),
            "job 0 (a) field variations[0]: it overrides nothing, expected at least one argument \
             of the environment",
        ),
        (
            json!([{"name": "Dark", "x": 1}, {"name": "dark", "x": 2}]),
            "job 0 (a) field variations: two variants have the name `dark`; names are file names \
             and must differ",
        ),
        (
            json!({"grid": {}}),
            "job 0 (a) field variations field grid: it is empty, expected an argument with its \
             values",
        ),
        (
            json!({"grid": {"x": []}}),
            "job 0 (a) field variations field grid.x: the list is empty, expected at least one \
             value",
        ),
        (
            json!({"grid": {"x": 5}}),
            "job 0 (a) field variations field grid.x: found 5, expected a list of values",
        ),
        (
            json!([{"grid": 5}]),
            "job 0 (a) field variations[0] field grid: expected an object of lists",
        ),
        (
            json!({"grid": {"x": [1]}, "gruop": "light"}),
            "job 0 (a) field variations: unknown field `gruop`; did you mean `group`?",
        ),
        (
            json!([{"name": "a/b", "x": 1}]),
            "job 0 (a) field variations[0] field name: `a/b` cannot be a file name: it has a path \
             separator or a control character",
        ),
        (
            json!([{"group": "", "x": 1}]),
            "job 0 (a) field variations[0] field group: expected a name of 1 to 200 bytes",
        ),
    ] {
        assert_eq!(refusal(variations), text);
    }
}

#[test]
fn variants_that_are_the_control_are_refused() {
    let normal = json!({"light_intensity": 500});
    assert_eq!(
        refusal_of(
            normal.clone(),
            json!([{"name": "normal", "light_intensity": 500}])
        ),
        "job 0 (a) field variations: variant `normal` has the values of the control"
    );
    assert_eq!(
        refusal_of(normal, json!({"grid": {"light_intensity": [500]}})),
        "job 0 (a) field variations: every variant has the values of the control"
    );
}

#[test]
fn a_variant_may_not_have_the_name_of_another_job() {
    let mut file = file(json!({}), json!([{"name": "dark", "x": 1}]));
    let mut other = file["jobs"][0].clone();
    (other["name"], other["variations"]) = (json!("a_dark"), json!(null));
    file["jobs"].as_array_mut().unwrap().insert(0, other);
    assert_eq!(
        parse(&file).unwrap_err().to_string(),
        "job 2 field name: `a_dark` of variant `dark` of `a` is also the name of job 0; names are \
         file names and must differ"
    );
}

#[test]
fn the_number_of_variants_and_their_size_are_bounded() {
    let values = |count: usize| (0..count).collect::<Vec<_>>();
    assert_eq!(
        jobs(json!({"grid": {"x": values(40), "y": values(25)}})).len(),
        1001
    );
    let grid = json!({"grid": {"x": values(50), "y": values(50), "z": values(2)}});
    assert_eq!(
        refusal(grid),
        "job 0 (a) field variations field grid: it has 5000 combinations, expected at most 1000"
    );
    let list: Vec<_> = values(1001).into_iter().map(|x| json!({"x": x})).collect();
    assert_eq!(
        refusal(json!(list)),
        "job 0 (a) field variations: found more than 1000 variants, which is the limit"
    );
    let large = "x".repeat(100_000);
    for (env_args, variations) in [
        (
            json!({"large": large}),
            json!({"grid": {"x": values(1000)}}),
        ),
        (
            json!({}),
            json!({"grid": {"x": values(1000), "large": [large]}}),
        ),
    ] {
        let text = refusal_of(env_args, variations);
        assert!(
            text.contains("the variants of the file have 100") && text.len() < 250,
            "{text}"
        );
    }
}
