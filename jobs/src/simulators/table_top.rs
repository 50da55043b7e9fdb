//! The row of the table-top tasks (`runtime/src/env/mujoco`).

use crate::policies::{Setting, ValueKind};
use crate::simulators::{EnvironmentRow, SimulatorMemory, SimulatorRow};

pub(super) static ROW: SimulatorRow = SimulatorRow {
    environments: &[
        EnvironmentRow {
            name: "reach",
            about: "move the gripper to the green ball",
            arguments: &[steps("100"), threshold("0.02")],
        },
        EnvironmentRow {
            name: "push",
            about: "push the yellow puck onto the green target",
            arguments: &[steps("200"), threshold("0.025"), object(&["puck"], "puck")],
        },
        EnvironmentRow {
            name: "pick_and_place",
            about: "pick up the block and place it on the green plate",
            arguments: &[
                steps("240"),
                threshold("0.04"),
                object(&["cube", "cylinder"], "cube"),
            ],
        },
    ],
    arguments: &[
        Setting::new(
            "episode_length_s",
            ValueKind::Number(0.05, 50_000.0),
            "max_episode_steps / 20",
            "the same limit in seconds; only one of the two",
        ),
        Setting::new(
            "success_hold_steps",
            ValueKind::Whole(1, 1000),
            "5",
            "steps for which the task must be solved",
        ),
        Setting::new(
            "task_description",
            ValueKind::Text,
            "that of the task",
            "the instruction that the policy gets",
        ),
        Setting::new(
            "camera_height",
            CAMERA_EDGE,
            "224",
            "height of an image in pixels",
        ),
        Setting::new(
            "camera_width",
            CAMERA_EDGE,
            "224",
            "width of an image in pixels",
        ),
        Setting::new(
            "light_intensity",
            ValueKind::Number(0.0, 10_000.0),
            "500",
            "brightness of the lights",
        ),
        Setting::new(
            "render_quality",
            ValueKind::OneOf(&["fast", "high"]),
            "fast",
            "high: with shadows and antialiasing, seven times slower on a CPU",
        ),
    ],
    cameras: &["front", "wrist"],
    memory: SimulatorMemory::Unknown,
};

/// MuJoCo has one off-screen buffer of this size in each thread.
const CAMERA_EDGE: ValueKind = ValueKind::Whole(16, 2048);

const fn steps(default: &'static str) -> Setting {
    Setting::new(
        "max_episode_steps",
        ValueKind::Whole(1, 1_000_000),
        default,
        "steps after which an episode ends, 20 per second",
    )
}

const fn threshold(default: &'static str) -> Setting {
    Setting::new(
        "success_threshold",
        ValueKind::Number(0.001, 1.0),
        default,
        "largest distance that counts as success, in metres",
    )
}

const fn object(objects: &'static [&'static str], default: &'static str) -> Setting {
    Setting::new(
        "object",
        ValueKind::OneOf(objects),
        default,
        "the object to manipulate",
    )
}
