//! Tests of many copies in a process, and of copies with much to tell.

use super::*;

#[test]
fn as_many_copies_as_there_may_be_get_their_arguments_and_tell_their_texts() {
    let count = 4096;
    let args = json!({
        "environment": fixture("Crowd"), "envs_per_process": count, "mapping": {"language": {"attr": "words"}},
        "env_kwargs": {"letters": 60, "note": "n".repeat(75)},
    });
    let mut env = start(args, count);
    let all = (0..count).map(EnvIndex);
    let resets: Vec<_> = all.clone().map(|env| (env, env.0 as u64)).collect();
    for (index, seen) in env.reset(&resets, Render::No).into_iter().enumerate() {
        assert_eq!(&*seen.unwrap().language, format!("{index:060}"));
    }
    let actions: Vec<_> = all.map(|env| (env, vec![0.5])).collect();
    for (index, step) in env.step(&actions, Render::No).into_iter().enumerate() {
        let step = step.unwrap();
        assert_eq!(step.reward, index as f32 + 0.5);
        let feedback = step.observation.feedback.unwrap();
        assert_eq!(feedback.env_feedback, Some(format!("{index:060}")));
    }
}

#[test]
fn copies_with_long_arguments_and_names_of_actions_share_a_process() {
    let args = json!({
        "environment": fixture("Wordy"), "envs_per_process": 8, "success": "terminated",
        "env_kwargs": {"note": "n".repeat(40_000)},
    });
    let mut env = start(args, 8);
    let resets: Vec<_> = (0..8).map(|index| (EnvIndex(index), 1)).collect();
    for seen in env.reset(&resets, Render::No) {
        let names = seen
            .unwrap()
            .feedback
            .unwrap()
            .action_names
            .clone()
            .unwrap();
        assert_eq!((names.len(), names[7].len()), (8, 3_900));
    }
}
