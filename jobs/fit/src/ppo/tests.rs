use proptest::prelude::*;

use super::*;

fn sizes(num_envs: u64, batch_size: u64, num_minibatches: u64) -> PpoSizes {
    PpoSizes {
        num_envs,
        batch_size,
        num_minibatches,
        devices: 1,
    }
}

fn training(text: &str, preset: Option<Preset>, sets: &[&str]) -> Result<PpoTraining, String> {
    let own = tree::parse(Path::new("gpu.yaml"), text).map_err(|err| err.to_string())?;
    let sets: Vec<Override> = sets.iter().map(|set| set.parse().unwrap()).collect();
    PpoTraining::new(Some(Path::new("gpu.yaml")), own, preset, &sets).map_err(|err| err.to_string())
}

#[test]
fn the_rows_of_the_guide_are_valid_but_for_two_that_it_recommends_and_one_that_it_calls_invalid() {
    let wrong = rows().into_iter().filter(|row| !row.is_valid());
    let wrong: Vec<_> = wrong.map(|row| (row.sizes, row.is_said_valid)).collect();
    let recommended = [sizes(512, 128, 2), sizes(1536, 384, 6)].map(|sizes| (sizes, true));
    assert_eq!(wrong[..2], recommended);
    assert_eq!(wrong[2..], [(sizes(1024, 256, 2), false)]);
}

#[test]
fn the_nearest_valid_sizes_are_proposed_first() {
    let nearest = |from: PpoSizes| {
        let nearest = from.nearest().into_iter();
        nearest
            .map(|change| change.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let wanted = "num_minibatches 4, batch_size 256, num_envs 256";
    assert_eq!(nearest(sizes(512, 128, 2)), wanted);
    let wanted = "num_minibatches 8, batch_size 512, num_envs 1152, num_minibatches 4, \
                  batch_size 256, num_envs 2304";
    assert_eq!(nearest(sizes(1536, 384, 6)), wanted);
}

#[test]
fn environments_are_dealt_evenly_to_devices() {
    let of = |num_envs: u64, devices: u64| PpoSizes {
        devices,
        ..sizes(num_envs, 256, 4)
    };
    let wanted = Err(BrokenRule::Devices {
        num_envs: 1024,
        devices: 3,
    });
    assert_eq!(of(1024, 3).check(), wanted);
    assert_eq!(of(1024, 4).check(), Ok(()));
    // No divisor of 1024 is a multiple of 3, so two sizes must change.
    let both = of(1024, 3).nearest();
    assert!(!both.is_empty() && both.iter().all(|change| change.to.check().is_ok()));
    let is_of_one =
        |change: &SizeChange| change.to.num_envs == 1024 || change.to.num_minibatches == 4;
    assert!(!both.iter().any(is_of_one), "{both:?}");
    assert_eq!(both[0].to_string(), "num_minibatches 3 and num_envs 768");
    assert_eq!(of(1000, 8).nearest()[0].to_string(), "batch_size 250");
}

#[test]
fn memory_is_that_of_the_guide() {
    let found = [512, 1024, 1536, 2048].map(|envs| bytes(envs, 1) / 1_000_000_000);
    assert_eq!(found, [6, 9, 12, 15]);
    let shown = [6, 9, 12, 15].map(|gb| most_envs(gb * 1_000_000_000, 1));
    assert_eq!(shown, [512, 1024, 1536, 2048]);
    assert_eq!(bytes(2048, 2), bytes(1024, 1));
    assert_eq!(most_envs(9_000_000_000, 2), 2048);
    assert_eq!(most_envs(1, 1), 0);
    let got = sizes(1024, 256, 4).largest_envs(most_envs(12 << 30, 1));
    assert_eq!(got, Some(1024));
    // 2048 of 4096 would take 15 GB.
    let got = sizes(2048, 512, 8).largest_envs(most_envs(12 << 30, 1));
    assert_eq!(got, Some(1024));
}

#[test]
fn presets_are_valid_and_stand_below_the_file_and_this_below_the_command_line() {
    for (preset, gb) in [
        (Preset::Quick, 8),
        (Preset::Default, 12),
        (Preset::Production, 24),
    ] {
        let sizes = training("", Some(preset), &[]).unwrap().sizes(1).unwrap();
        assert_eq!(sizes.check(), Ok(()));
        assert!(bytes(sizes.num_envs, 1) < gb * 1_000_000_000, "{preset:?}");
    }
    let text = "ppo: {num_envs: 512}\nenv: {terrain: rough}\n";
    let sets = ["ppo.batch_size=128", "env.terrain=flat"];
    let read = training(text, Some(Preset::Default), &sets).unwrap();
    assert_eq!(read.sizes(1).unwrap(), sizes(512, 128, 4));
    let effective = read.effective();
    assert_eq!(effective["config_file"], "gpu.yaml");
    let found = &effective["overrides"];
    let wanted = &json!({"ppo.batch_size": 128, "env.terrain": "flat"});
    assert_eq!(found, wanted);
    assert_eq!(effective["final_config"]["env"], json!({"terrain": "flat"}));
    let shown = &effective["final_config"]["network"]["policy_hidden_layers"];
    assert_eq!(shown, &json!([256, 256, 128]));
}

#[test]
fn without_a_word_brax_has_its_own_defaults() {
    let found = training("ppo:\n", None, &[]).unwrap().sizes(1).unwrap();
    assert_eq!(found, sizes(1, 32, 16));
}

#[test]
fn what_nobody_knows_is_refused_with_what_is_near() {
    let refusal = |set: &str| training("ppo: {num_envs: 512}", None, &[set]).unwrap_err();
    let text = refusal("ppo.num_env=256");
    let told = "--set ppo.num_env: unknown setting; the nearest are `ppo.num_envs`, `ppo.num_e";
    assert!(text.starts_with(told), "{text}");
    assert!(refusal("num_envs=256").contains("the nearest are `ppo.num_envs`"));
    assert!(refusal("ppo=3").contains("unknown setting"));
    let wanted = "ppo.num_envs is \"many\", expected a whole number from 1 to 16777216";
    assert_eq!(refusal("ppo.num_envs=many"), wanted);
    assert!(refusal("ppo.num_envs=0").contains("a whole number from 1"));
    let negative = training("ppo: {num_envs: -4}", None, &[]).unwrap_err();
    assert!(negative.contains("ppo.num_envs is -4"), "{negative}");
    let found = training("ppo: 3", None, &[]).unwrap_err();
    assert_eq!(found, "`ppo` is 3, expected a mapping");
    let text = "ppo: {num_env: 512, rollout_steps: 3}\nmy: {own: 1}";
    let notes = training(text, None, &[]).unwrap().notes;
    let note = "unknown setting `ppo.num_env` has no effect; did you mean `ppo.num_envs`?";
    assert_eq!(notes, [note]);
}

proptest! {
    #[test]
    fn what_is_proposed_is_accepted_and_something_always_is(
        num_envs in 1_u64..5000, batch_size in 1_u64..2000, num_minibatches in 1_u64..64, devices in 1_u64..9
    ) {
        let from = PpoSizes { num_envs, batch_size, num_minibatches, devices };
        let nearest = from.nearest();
        prop_assert!(!nearest.is_empty());
        for change in &nearest {
            prop_assert_eq!(change.to.check(), Ok(()));
        }
        if from.check().is_ok() {
            prop_assert_eq!(nearest[0].to, from);
        }
        if let Some(largest) = from.largest_envs(most_envs(12 << 30, devices)) {
            let to = PpoSizes { num_envs: largest, ..from };
            prop_assert_eq!(to.check(), Ok(()));
            prop_assert!(bytes(largest, devices) <= 12 << 30);
        }
    }

    #[test]
    fn no_file_makes_the_reader_panic(text in "\\PC{0,60}", envs in any::<i64>()) {
        let _ = training(&text, Some(Preset::Quick), &[]);
        let _ = training(&format!("ppo: {{num_envs: {envs}}}"), None, &[]);
    }
}
