//! The rows of all policies.

use crate::policies::{
    Agent, Exported, Gr00t, Gr00tRemote, Lerobot, MemoryRule, OneAction, Pi0, PolicyDescription,
    Python, Replay, Scripted, Serving, Torchscript, VlaEval, Xpolicylab, check_as, given_as,
};
use crate::settings::{self, Settings};

/// Returns what the rows of policies have in common.
const fn row<T: Settings>(name: &'static str, about: &'static str) -> PolicyDescription {
    PolicyDescription {
        name,
        aliases: &[],
        about,
        page: "policy.md",
        example: "",
        settings: settings::rows::<T>,
        check: check_as::<T>,
        given: given_as::<T>,
        memory: MemoryRule::Nothing,
        has_checkpoint: false,
        has_length: false,
        serving: Serving::Interface,
        without_rest: None,
        is_remote: false,
    }
}

/// Returns the row of a policy on a server, which needs nothing on the GPU of its rank.
const fn on_server<T: Settings>(name: &'static str, about: &'static str) -> PolicyDescription {
    PolicyDescription {
        page: "remote-policies.md",
        is_remote: true,
        ..row::<T>(name, about)
    }
}

/// Makes the enum of all policies, each with its row.
macro_rules! policy_types {
    ($($(#[$about:meta])* $policy:ident => $row:expr,)+) => {
        /// A policy of `rrun-rank`. A `match` on it has an arm for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum PolicyType {
            $($(#[$about])* $policy,)+
        }

        impl PolicyType {
            /// All policies, in the order in which messages name them.
            pub const ALL: &[Self] = &[$(Self::$policy,)+];

            /// Returns what is known about this policy.
            pub fn row(self) -> &'static PolicyDescription {
                match self {
                    $(Self::$policy => {
                        static ROW: PolicyDescription = $row;
                        &ROW
                    })+
                }
            }
        }
    };
}

policy_types! {
    /// Takes the action closest to zero.
    ZeroAction => PolicyDescription {
        aliases: &["isaaclab_arena.policy.zero_action_policy.ZeroActionPolicy"],
        example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "zero_action", "num_episodes": 20}"#,
        without_rest: Some("has one action per chunk"),
        ..row::<OneAction>("zero_action", "a baseline: the action closest to zero")
    },
    /// Takes random actions.
    RandomAction => PolicyDescription {
        aliases: &["isaaclab_arena.policy.random_action_policy.RandomActionPolicy"],
        example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "random_action", "num_episodes": 20}"#,
        without_rest: Some("has one action per chunk"),
        ..row::<OneAction>(
            "random_action",
            "a baseline: random actions within the action space",
        )
    },
    /// Replays recorded actions.
    ReplayAction => PolicyDescription {
        aliases: &[
            "replay",
            "isaaclab_arena.policy.replay_action_policy.ReplayActionPolicy",
        ],
        example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "replay_action",
 "policy_config_dict": {"replay_file_path": "outputs/tonight/reach/dataset_reach.hdf5"}}"#,
        has_length: true,
        serving: Serving::Refused("it replays recorded episodes, whatever it is shown"),
        without_rest: Some("replays recorded actions and does not look at observations"),
        ..row::<Replay>("replay_action", "replays the actions of a recorded dataset")
    },
    /// The expert for the built-in tasks.
    Scripted => PolicyDescription {
        example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "scripted",
 "policy_config_dict": {"action_horizon": 8, "action_chunk_length": 4}, "num_episodes": 20}"#,
        ..row::<Scripted>("scripted", "the expert for the built-in tasks")
    },
    /// A GR00T checkpoint in the rank.
    Gr00t => PolicyDescription {
        aliases: &[
            "gr00t_closedloop",
            "isaaclab_arena_gr00t.policy.gr00t_closedloop_policy.Gr00tClosedloopPolicy",
        ],
        example: r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "gr00t",
 "policy_config_dict": {"model_path": "jobs/suites/demo_policy", "action_chunk_length": 8}}"#,
        memory: MemoryRule::Gr00t,
        has_checkpoint: true,
        serving: Serving::OwnKeys,
        ..row::<Gr00t>(
            "gr00t",
            "runs an unmodified GR00T N1.7 checkpoint on libtorch; Arena's name `gr00t_closedloop` and the dotted class \
                path are aliases",
        )
    },
    /// A TorchScript module in the rank.
    Torchscript => PolicyDescription {
        example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "torchscript",
 "policy_config_dict": {"model_path": "policy.pt", "state_keys": ["eef_position"]}, "num_episodes": 20}"#,
        memory: MemoryRule::Files,
        has_checkpoint: true,
        ..row::<Torchscript>("torchscript", "runs any TorchScript module")
    },
    /// A `.pt2` package in the rank.
    Exported => PolicyDescription {
        page: "exported_policy.md",
        example: r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "exported",
 "policy_config_dict": {"model_path": "reach.pt2"}}"#,
        memory: MemoryRule::Files,
        has_checkpoint: true,
        ..row::<Exported>(
            "exported",
            "runs a `.pt2` package of `torch.export` and AOTInductor, without Python",
        )
    },
    /// A Python object in a process of its own.
    Python => PolicyDescription {
        page: "python_policy.md",
        example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "python",
 "policy_config_dict": {"policy": "jobs/suites/policies/reach.py:Reach"},
 "num_episodes": 20}"#,
        memory: MemoryRule::Declared,
        // All rows that need a chunk go to the worker in one call, on a CPU, too.
        is_remote: true,
        ..row::<Python>(
            "python",
            "runs any Python class or function in an interpreter of its own",
        )
    },
    /// A LeRobot checkpoint in a Python process.
    Lerobot => PolicyDescription {
        page: "lerobot_policy.md",
        example: r#"{"name": "reach", "num_episodes": 20,
 "arena_env_args": {"environment": "reach", "num_envs": 4, "enable_cameras": true},
 "policy_type": "lerobot",
 "policy_config_dict": {"model_path": "checkpoints/act", "python": "venvs/lerobot",
                        "mapping": {"cameras": {"observation.images.top": "front"}}}}"#,
        memory: MemoryRule::Declared,
        has_checkpoint: true,
        // On a CPU, rows are inferred one by one, as in the rank.
        ..row::<Lerobot>(
            "lerobot",
            "runs a checkpoint of LeRobot by its own classes and processors",
        )
    },
    /// A GR00T server.
    Gr00tRemote => PolicyDescription {
        aliases: &[
            "isaaclab_arena_gr00t.policy.gr00t_remote_closedloop_policy.Gr00tRemoteClosedloopPolicy",
        ],
        example: r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "gr00t_remote_closedloop",
 "policy_config_dict": {"remote_host": "gpu7", "remote_port": 5555, "action_chunk_length": 8}}"#,
        ..on_server::<Gr00tRemote>("gr00t_remote_closedloop", "queries a GR00T server")
    },
    /// An openpi server.
    Pi0Remote => PolicyDescription {
        aliases: &["isaaclab_arena_openpi.policy.pi0_remote_policy.Pi0RemotePolicy"],
        example: r#"{"name": "pick", "num_episodes": 20, "arena_env_args": {"environment": "envs/droid.py:make", "num_envs": 4},
 "policy_type": "pi0_remote",
 "policy_config_dict": {"remote_host": "gpu7", "remote_port": 8000, "openpi_embodiment_adapter": "droid"}}"#,
        ..on_server::<Pi0>("pi0_remote", "queries an openpi server")
    },
    /// A policy server of XPolicyLab.
    XpolicylabRemote => PolicyDescription {
        example: r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "xpolicylab_remote",
 "policy_config_dict": {"remote_host": "gpu7", "remote_port": 6000}}"#,
        ..on_server::<Xpolicylab>("xpolicylab_remote", "queries a policy server of XPolicyLab")
    },
    /// A model server of vla-eval.
    VlaEvalRemote => PolicyDescription {
        example: r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "vla_eval_remote",
 "policy_config_dict": {"remote_host": "gpu7", "remote_port": 8000,
                        "observation_mapping": {"states": ["goal_position", "eef_position"]}}}"#,
        ..on_server::<VlaEval>("vla_eval_remote", "queries a model server of vla-eval")
    },
    /// A vision-language model behind a chat server.
    OpenaiAgent => PolicyDescription {
        page: "vision-language-agents.md",
        example: r#"{"name": "push", "num_episodes": 20, "arena_env_args": {"environment": "push", "num_envs": 8},
 "policy_type": "openai_agent",
 "policy_config_dict": {"model_url": "http://localhost:8000/v1", "model": "nvidia/Cosmos-Reason2-8B"}}"#,
        serving: Serving::Refused(
            "it plans with the rewards, ends and action names of an environment, which clients do not \
             send",
        ),
        without_rest: Some("plans between the steps, and its plans have no fixed length"),
        // It is asked for one environment at a time.
        ..row::<Agent>(
            "openai_agent",
            "a vision-language model behind a chat server plans skills or discrete actions",
        )
    },
}
