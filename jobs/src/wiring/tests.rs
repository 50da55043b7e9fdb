//! Tests of environments with policies: what fills each input, or why the two do not fit.

use serde_json::{Map, Value, json};

use crate::interface::Interface;
use crate::policies::{self, Pi0, PolicyType, VlaEval, Xpolicylab};
use crate::wiring::{ActionPlaces, Given, Joints, Sides, Source, Wiring};

/// Returns the interface of a name in the file of cases.
fn environment(name: &str) -> Interface {
    let states = |names: &[&str]| -> Map<String, Value> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), json!(1)))
            .collect()
    };
    let (cameras, states, dim) = match name {
        "arena" => (
            &["wrist_camera_rgb", "external_camera_rgb"][..],
            json!({"joint_pos": 7, "gripper_pos": 1}),
            8,
        ),
        "libero" => {
            let mut all = states(&["x", "y", "z", "roll", "pitch", "yaw"]);
            all.insert("gripper".to_owned(), json!(2));
            (&["image", "wrist_image"][..], all.into(), 7)
        }
        "push" => (
            &["front", "wrist"][..],
            json!({"joint_position": 7, "eef_position": 3}),
            7,
        ),
        "xpolicylab" => (
            &["cam_head", "side"][..],
            json!({"arm_joint_state": 6, "ee_joint_state": 1, "left_ee_pose": 7, "base": 2, "pose": 3}),
            7,
        ),
        "blind" => (&[][..], json!({}), 7),
        other => panic!("there is no environment `{other}`"),
    };
    let cameras: Map<_, _> = cameras
        .iter()
        .map(|name| ((*name).to_owned(), json!([8, 6])))
        .collect();
    let names: Vec<String> = (0..dim).map(|index| format!("a{index}")).collect();
    let file =
        json!({"name": name, "cameras": cameras, "states": states, "actions": {"names": names}});
    Interface::parse(&file).unwrap()
}

/// Returns what fills the inputs of a policy in an environment. Of the line given, the first word
/// is the environment, the second the policy, and the rest its settings.
fn wired(given: &str) -> String {
    let mut words = given.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let (face, policy, config) = (environment(word()), word(), word());
    let config: Value = serde_json::from_str(config).unwrap();
    let config = config.as_object().unwrap();
    let sides = Sides::new(PolicyType::of(policy).unwrap(), &face);
    let wiring = match policy {
        "pi0_remote" => {
            let pi0: Pi0 = policies::read(config).unwrap();
            let cameras = pi0.pov_cam_name_sim.map(|names| names.0);
            let given = Given {
                mapping: pi0.observation_mapping.as_ref(),
                cameras: cameras.as_deref(),
                ..Given::default()
            };
            pi0.openpi_embodiment_adapter.connect(sides, &given)
        }
        "vla_eval_remote" => {
            let settings: VlaEval = policies::read(config).unwrap();
            crate::wiring::vla_eval(sides, settings.observation_mapping.as_ref())
        }
        "xpolicylab_remote" => {
            let settings: Xpolicylab = policies::read(config).unwrap();
            crate::wiring::xpolicylab(sides, settings.observation_mapping.as_ref())
        }
        "gr00t" => checkpoint(sides, config),
        other => panic!("`{other}` has no table"),
    };
    match wiring {
        Ok(wiring) => wiring.inputs().map(shown).collect::<Vec<_>>().join("\n"),
        Err(refusal) => refusal.to_string(),
    }
}

/// Connects a checkpoint that has these views, states and actions with their lengths, with joints
/// of these indices.
fn checkpoint(
    sides: Sides,
    config: &Map<String, Value>,
) -> Result<Wiring, crate::refusal::Refusal> {
    let names = |key: &str| -> Option<Vec<String>> {
        let names = config.get(key)?.as_array()?.iter();
        names.map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let lengths = |key: &str| -> Vec<(String, usize)> {
        let all = config
            .get(key)
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        all.map(|(key, length)| (key.clone(), length.as_u64().unwrap() as usize))
            .collect()
    };
    let indices = config
        .get("joints")
        .map(|joints| serde_json::from_value(joints.clone()).unwrap());
    let joints = indices.map(|state| Joints {
        state,
        action: std::collections::BTreeMap::new(),
        action_len: 0,
    });
    let cameras = names("cameras");
    let (views, states) = (names("views").unwrap_or_default(), lengths("states"));
    let states = states.iter().map(|(key, length)| (&**key, Some(*length)));
    let given = (cameras.as_deref(), joints.as_ref());
    let wiring = Wiring::checkpoint(sides, &views, states, given)?;
    ActionPlaces::new(sides, &lengths("actions"), joints.as_ref())?;
    Ok(wiring)
}

fn shown((key, source): (&str, &Source)) -> String {
    match source {
        Source::Camera(camera) => format!("{key} = camera {camera}"),
        Source::States(parts) => {
            let part = |part: &crate::wiring::StatePart| match &part.at {
                Some(at) => format!("{}{at:?}", part.of),
                None => part.of.clone(),
            };
            let parts: Vec<String> = parts.iter().map(part).collect();
            format!("{key} = {}", parts.join(" + "))
        }
    }
}

#[test]
fn each_input_of_a_policy_is_filled_or_the_environment_is_refused_with_both_sides() {
    rig::cases::check("src/wiring/environments_and_policies.txt", wired);
}

#[test]
fn a_camera_of_another_size_is_as_good_as_none() {
    let face = environment("push");
    let sides = Sides::new(PolicyType::Exported, &face);
    assert_eq!(
        sides
            .camera("front", &["front"], Some([8, 6]))
            .unwrap()
            .name,
        "front"
    );
    let refused = sides
        .camera("top", &["front"], Some([8, 8]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "policy `exported` needs camera front [8, 8] for top; environment `push` has cameras front \
         [8, 6], wrist [8, 6]; states joint_position [7], eef_position [3]"
    );
}

#[test]
fn actions_stand_in_the_order_of_the_keys_or_where_the_joints_are() {
    let face = environment("push");
    let sides = Sides::new(PolicyType::Gr00t, &face);
    let keys = |keys: &[(&str, usize)]| -> Vec<(String, usize)> {
        keys.iter()
            .map(|(key, width)| ((*key).to_owned(), *width))
            .collect()
    };
    let placed = |places: &ActionPlaces, steps: &[(&str, &[f32])]| {
        let mut action = vec![0.0; 7];
        for (key, step) in steps {
            places.place(key, step, &mut action);
        }
        action
    };
    let places = ActionPlaces::new(sides, &keys(&[("pose", 6), ("gripper", 1)]), None).unwrap();
    let action = placed(
        &places,
        &[("gripper", &[7.0]), ("pose", &[1.0; 6]), ("other", &[9.0])],
    );
    assert_eq!(action, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 7.0]);
    let mut joints = Joints {
        state: std::collections::BTreeMap::new(),
        action: std::collections::BTreeMap::from([("arm".to_owned(), vec![Some(2), None])]),
        action_len: 3,
    };
    let keys = keys(&[("arm", 2), ("base", 5)]);
    let places = ActionPlaces::new(sides, &keys, Some(&joints)).unwrap();
    let action = placed(
        &places,
        &[("arm", &[9.0, 8.0]), ("base", &[1.0, 2.0, 3.0, 4.0, 5.0])],
    );
    assert_eq!(action, [0.0, 0.0, 9.0, 1.0, 2.0, 3.0, 4.0]);
    joints.action_len = 8;
    let refused = ActionPlaces::new(sides, &keys, Some(&joints))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("an action of 8 or more numbers, according to action_joints"),
        "{refused}"
    );
}
