//! Embodiment tags: the names of robots, and the ids by which the network knows them.

use std::path::Path;

use jobs::refusal::Refusal;

use crate::error::input;
use crate::processor::field::Json;

/// An embodiment tag that ships with GR00T.
struct Known {
    /// Name of the entry in the reference's enum, accepted on its command line.
    name: &'static str,
    /// The tag itself, which is the key in every file.
    tag: &'static str,
    /// Index of the category weights, unless `embodiment_id.json` says otherwise.
    id: i64,
}

/// The tags of gr00t/data/embodiment_tags.py with the ids of the processor's table, N1.7.
const KNOWN: [Known; 16] = [
    Known {
        name: "OXE_DROID_RELATIVE_EEF_RELATIVE_JOINT",
        tag: "oxe_droid_relative_eef_relative_joint",
        id: 24,
    },
    Known {
        name: "XDOF",
        tag: "xdof_relative_eef_relative_joint",
        id: 27,
    },
    Known {
        name: "XDOF_SUBTASK",
        tag: "xdof_relative_eef_relative_joint_subtask",
        id: 27,
    },
    Known {
        name: "REAL_G1",
        tag: "real_g1_relative_eef_relative_joints",
        id: 25,
    },
    Known {
        name: "REAL_R1_PRO_SHARPA",
        tag: "real_r1_pro_sharpa_relative_eef",
        id: 26,
    },
    Known {
        name: "REAL_R1_PRO_SHARPA_HUMAN",
        tag: "real_r1_pro_sharpa_relative_eef_human",
        id: 26,
    },
    Known {
        name: "REAL_R1_PRO_SHARPA_MAXINSIGHTS",
        tag: "real_r1_pro_sharpa_relative_eef_maxinsights",
        id: 26,
    },
    Known {
        name: "REAL_R1_PRO_SHARPA_MECKA",
        tag: "real_r1_pro_sharpa_relative_eef_mecka",
        id: 26,
    },
    Known {
        name: "UNITREE_G1",
        tag: "unitree_g1_full_body_with_waist_height_nav_cmd",
        id: 25,
    },
    Known {
        name: "UNITREE_G1_SONIC",
        tag: "unitree_g1_sonic",
        id: 11,
    },
    Known {
        name: "SIMPLER_ENV_GOOGLE",
        tag: "simpler_env_google",
        id: 0,
    },
    Known {
        name: "SIMPLER_ENV_WIDOWX",
        tag: "simpler_env_widowx",
        id: 1,
    },
    Known {
        name: "LIBERO_PANDA",
        tag: "libero_sim",
        id: 2,
    },
    Known {
        name: "NEW_EMBODIMENT",
        tag: "new_embodiment",
        id: 10,
    },
    Known {
        name: "ROBOCASA_PANDA_OMRON",
        tag: "robocasa_panda_omron",
        id: 10,
    },
    Known {
        name: "ROBOCASA_GR1_TABLETOP",
        tag: "robocasa_gr1_tabletop",
        id: 10,
    },
];

/// Returns the checkpoint's tag that `asked` names: a tag or the reference's enum name, in any
/// case.
///
/// # Errors
/// Returns [`Refusal`] with a list of the checkpoint's tags if it has no such tag.
pub fn resolve<'a>(asked: &str, checkpoint: &[&'a str]) -> Result<&'a str, Refusal> {
    let known = KNOWN
        .iter()
        .find(|known| known.name.eq_ignore_ascii_case(asked.trim()));
    let wanted = known.map_or(asked.trim(), |known| known.tag);
    let found = checkpoint
        .iter()
        .find(|tag| tag.eq_ignore_ascii_case(wanted));
    found.copied().ok_or_else(|| unknown(asked, checkpoint))
}

/// Refuses a tag that is none of the checkpoint's.
pub(super) fn unknown(tag: &str, known: &[&str]) -> Refusal {
    Refusal::new(format_args!(
        "unknown embodiment tag `{tag}`: this checkpoint has {}",
        known.join(", ")
    ))
}

/// Returns the id of a tag: from `embodiment_id.json`, which takes precedence, or from the built-in
/// table.
///
/// # Errors
/// Returns a [`Refusal`] if the file is not a map of numbers, or if neither source knows the
/// tag.
pub fn id(path: &Path, tag: &str) -> Result<i64, Refusal> {
    let built_in = KNOWN
        .iter()
        .find(|known| known.tag == tag)
        .map(|known| known.id);
    if !path.is_file() {
        return built_in.ok_or_else(|| {
            input(
                "embodiment id",
                "unknown",
                format!("expected `{}` with `{tag}`", path.display()),
            )
        });
    }
    let file = Json::read(path)?;
    let field = file.root().get(tag)?;
    match (field.is_missing(), built_in) {
        (true, Some(id)) => Ok(id),
        _ => Ok(i64::try_from(field.size(0, 1 << 16)?).expect("a number up to 65536 fits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_by_value_or_enum_name_in_any_case() {
        let checkpoint = ["libero_sim", "my_robot"];
        for asked in ["libero_sim", "LIBERO_SIM", "LIBERO_PANDA", "libero_panda"] {
            assert_eq!(resolve(asked, &checkpoint).unwrap(), "libero_sim");
        }
        assert_eq!(resolve("My_Robot", &checkpoint).unwrap(), "my_robot");
    }

    #[test]
    fn a_tag_that_the_checkpoint_lacks_is_refused_with_those_it_has() {
        let text = resolve("xdof", &["libero_sim", "my_robot"])
            .unwrap_err()
            .to_string();
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
