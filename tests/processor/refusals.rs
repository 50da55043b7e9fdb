//! Tests of invalid files: a named error, never a panic.

use std::fs;
use std::path::Path;

use jobs::refusal::Refusal;
use models::gr00t::processor::{Processor, RgbPicture, RowInputs, StateSteps};
use proptest::prelude::*;
use tempfile::TempDir;

const FILES: [&str; 8] = [
    "processor_config.json",
    "statistics.json",
    "embodiment_id.json",
    "vlm/preprocessor_config.json",
    "vlm/chat_template.json",
    "vlm/tokenizer_config.json",
    "vlm/config.json",
    "vlm/tokenizer.json",
];
const TAG: &str = "oxe_droid_relative_eef_relative_joint";

/// Returns the files of case d, whose actions are relative, without weights.
fn model() -> TempDir {
    let source = rig::fixture("gr00t/case_d_bf16_sharded_policy");
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("vlm")).unwrap();
    for name in FILES {
        fs::copy(source.join(name), dir.path().join(name)).unwrap();
    }
    dir
}

fn open(dir: &Path) -> Result<Processor, Refusal> {
    Processor::open(dir, None, TAG)
}

/// `FILE` removes it; `FILE`, `BEFORE` and `AFTER` replace a text in it.
#[test]
fn files_that_are_missing_or_contradict_each_other_are_named() {
    let cases = rig::fixture("../processor/refusals.txt");
    rig::cases::check(cases, |given| {
        let dir = model();
        let lines: Vec<&str> = given.lines().collect();
        let path = dir.path().join(lines[0]);
        match lines[1..] {
            [before, after] => {
                let text = fs::read_to_string(&path).unwrap();
                assert!(text.contains(before), "`{before}` is not in {}", lines[0]);
                fs::write(&path, text.replacen(before, after, 1)).unwrap();
            }
            _ => fs::remove_file(&path).unwrap(),
        }
        let refusal = open(dir.path()).unwrap_err().to_string();
        refusal.replace(dir.path().to_str().unwrap(), "MODEL")
    });
}

#[test]
fn a_folder_that_training_leaves_is_opened() {
    let dir = model();
    fs::create_dir(dir.path().join("processor")).unwrap();
    for name in &FILES[..3] {
        let inside = dir.path().join("processor").join(name);
        fs::rename(dir.path().join(name), inside).unwrap();
    }
    assert_eq!(open(dir.path()).unwrap().embodiment_id, 24);
}

#[test]
fn what_an_observation_lacks_is_named() {
    let dir = model();
    let processor = open(dir.path()).unwrap();
    let (frame, pose) = ([0; 12], [0.5; 9]);
    let picture = RgbPicture::new(2, 2, &frame).unwrap();
    let mut raw = RowInputs {
        instruction: "go",
        ..RowInputs::default()
    };
    let refusal = |raw: &RowInputs| {
        processor
            .prepare(std::slice::from_ref(raw))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal(&raw),
        "state `eef_9d` is missing, expected every state of the checkpoint"
    );
    raw.state
        .insert("eef_9d", StateSteps::new(4, &pose[..4]).unwrap());
    assert_eq!(refusal(&raw), "state `eef_9d` is 4 values wide, expected 9");
    raw.state
        .insert("eef_9d", StateSteps::new(9, &pose).unwrap());
    raw.state
        .insert("gripper_position", StateSteps::new(1, &pose[..1]).unwrap());
    raw.state
        .insert("joint_position", StateSteps::new(7, &pose[..7]).unwrap());
    assert_eq!(
        refusal(&raw),
        "video `exterior_image_1_left` is missing, expected every view of the checkpoint"
    );
    raw.video.insert("exterior_image_1_left", vec![picture]);
    assert_eq!(
        refusal(&raw),
        "video `exterior_image_1_left` is 1 steps long, expected 2"
    );
    raw.video.insert("exterior_image_1_left", vec![picture; 2]);
    raw.video.insert("wrist_image_left", vec![picture; 2]);
    assert_eq!(processor.prepare(&[raw]).unwrap()[0].grids.len(), 4);
}

#[test]
fn a_prediction_of_another_size_is_refused() {
    let dir = model();
    let numbers = open(dir.path()).unwrap();
    let text = numbers
        .numbers
        .decode(&[0.0; 132], &Default::default())
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "the network's action is 132 values, expected 40 steps of 132"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn damaged_files_are_refused_without_a_panic(
        file in prop::sample::select(&FILES[..]),
        at: prop::sample::Index,
        with in "(null|true|[0-9]{1,3}|-1|1e999|\\[\\]|\\{\\}|\"[a-z]{0,3}\"|[\\[\\]{}\",:])",
        cut in 0usize..30,
    ) {
        let dir = model();
        let path = dir.path().join(file);
        let mut text = fs::read_to_string(&path).unwrap();
        let boundary = |mut at: usize| { while !text.is_char_boundary(at) { at -= 1 } at };
        let start = boundary(at.index(text.len()));
        let end = boundary((start + cut).min(text.len())).max(start);
        text.replace_range(start..end, &with);
        fs::write(&path, text).unwrap();
        if let Err(refusal) = open(dir.path()) {
            prop_assert!(!refusal.to_string().is_empty());
        }
    }
}
