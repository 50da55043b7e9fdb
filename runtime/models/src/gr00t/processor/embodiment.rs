//! Embodiment tags: the names of robots, and the ids by which the network knows them.

use std::collections::BTreeMap;
use std::path::Path;

use jobs::refusal::Refusal;

use crate::error::input;
use crate::json::Document;

/// The tags of gr00t/data/embodiment_tags.py: the name of the entry in the reference's enum, which
/// its command line accepts, the tag, which is the key in every file, and the index of the category
/// weights in the processor's table, N1.7, unless `embodiment_id.json` says otherwise.
const KNOWN: [(&str, &str, i64); 16] = [
    (
        "OXE_DROID_RELATIVE_EEF_RELATIVE_JOINT",
        "oxe_droid_relative_eef_relative_joint",
        24,
    ),
    ("XDOF", "xdof_relative_eef_relative_joint", 27),
    (
        "XDOF_SUBTASK",
        "xdof_relative_eef_relative_joint_subtask",
        27,
    ),
    ("REAL_G1", "real_g1_relative_eef_relative_joints", 25),
    ("REAL_R1_PRO_SHARPA", "real_r1_pro_sharpa_relative_eef", 26),
    (
        "REAL_R1_PRO_SHARPA_HUMAN",
        "real_r1_pro_sharpa_relative_eef_human",
        26,
    ),
    (
        "REAL_R1_PRO_SHARPA_MAXINSIGHTS",
        "real_r1_pro_sharpa_relative_eef_maxinsights",
        26,
    ),
    (
        "REAL_R1_PRO_SHARPA_MECKA",
        "real_r1_pro_sharpa_relative_eef_mecka",
        26,
    ),
    (
        "UNITREE_G1",
        "unitree_g1_full_body_with_waist_height_nav_cmd",
        25,
    ),
    ("UNITREE_G1_SONIC", "unitree_g1_sonic", 11),
    ("SIMPLER_ENV_GOOGLE", "simpler_env_google", 0),
    ("SIMPLER_ENV_WIDOWX", "simpler_env_widowx", 1),
    ("LIBERO_PANDA", "libero_sim", 2),
    ("NEW_EMBODIMENT", "new_embodiment", 10),
    ("ROBOCASA_PANDA_OMRON", "robocasa_panda_omron", 10),
    ("ROBOCASA_GR1_TABLETOP", "robocasa_gr1_tabletop", 10),
];

/// Returns the checkpoint's tag that `asked` names, with what is said of it: a tag or the
/// reference's enum name, in any case.
///
/// # Errors
/// Returns [`Refusal`] with a list of the checkpoint's tags if it has no such tag.
pub(super) fn resolve<'a, V>(
    asked: &str,
    checkpoint: &'a BTreeMap<String, V>,
) -> Result<(&'a str, &'a V), Refusal> {
    let mut known = KNOWN.iter();
    let known = known.find(|(name, ..)| name.eq_ignore_ascii_case(asked.trim()));
    let wanted = known.map_or(asked.trim(), |(_, tag, _)| tag);
    let mut tags = checkpoint.iter();
    if let Some((tag, value)) = tags.find(|(tag, _)| tag.eq_ignore_ascii_case(wanted)) {
        return Ok((tag, value));
    }
    let tags: Vec<_> = checkpoint.keys().map(String::as_str).collect();
    let known = format_args!("this checkpoint has {}", tags.join(", "));
    Err(Refusal::new(format_args!(
        "unknown embodiment tag `{asked}`: {known}"
    )))
}

/// Returns the id of a tag: from `embodiment_id.json`, which takes precedence, or from the built-in
/// table.
///
/// # Errors
/// Returns a [`Refusal`] if the file is not a map of numbers, or if neither source knows the
/// tag.
pub(super) fn id(path: &Path, tag: &str) -> Result<i64, Refusal> {
    let mut known = KNOWN.iter();
    let built_in = known.find(|(_, known, _)| *known == tag);
    let built_in = built_in.map(|(.., id)| *id);
    if !path.is_file() {
        let wanted = format_args!("expected `{}` with `{tag}`", path.display());
        return built_in.ok_or_else(|| input("embodiment id", "unknown", wanted));
    }
    let file = Document::read(path)?;
    let found: Option<u16> = file.get(&[tag])?;
    let id = found.map(i64::from).or(built_in);
    id.ok_or_else(|| file.refuse(&[tag], "expected a whole number from 0 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> BTreeMap<String, ()> {
        let tags = ["my_robot", "libero_sim"];
        tags.map(|tag| (tag.to_owned(), ())).into()
    }

    #[test]
    fn a_tag_goes_by_value_or_enum_name_in_any_case() {
        let checkpoint = checkpoint();
        let resolve = |asked| resolve(asked, &checkpoint).map(|(tag, ())| tag);
        for asked in ["libero_sim", "LIBERO_SIM", "LIBERO_PANDA", "libero_panda"] {
            assert_eq!(resolve(asked).unwrap(), "libero_sim");
        }
        assert_eq!(resolve("My_Robot").unwrap(), "my_robot");
    }

    #[test]
    fn a_tag_that_the_checkpoint_lacks_is_refused_with_those_it_has() {
        let text = resolve("xdof", &checkpoint()).unwrap_err().to_string();
        assert_eq!(
            text,
            "unknown embodiment tag `xdof`: this checkpoint has libero_sim, my_robot"
        );
    }

    #[test]
    fn the_file_wins_over_the_table_which_fills_its_gaps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("embodiment_id.json");
        assert_eq!(id(&path, "robocasa_panda_omron").unwrap(), 10);
        std::fs::write(&path, r#"{"robocasa_panda_omron": 13, "odd": -1}"#).unwrap();
        assert_eq!(id(&path, "robocasa_panda_omron").unwrap(), 13);
        assert_eq!(id(&path, "libero_sim").unwrap(), 2);
        assert!(
            id(&path, "odd")
                .unwrap_err()
                .to_string()
                .contains("`odd` is -1")
        );
        assert!(
            id(&path, "mine")
                .unwrap_err()
                .to_string()
                .contains("`mine` is missing")
        );
    }
}
