"""LeRobot's own loop over recorded observations: `plain_lerobot.py SPEC.json SEEN.npz ACTIONS.npz`, under an interpreter with lerobot.

SPEC has `model_path`, `task`, and `overrides` of the configuration. SEEN has for each episode `i` what was seen before each step (`pixels_<i>`,
`agent_pos_<i>`) and its seed. Nothing of rrun is imported. The calls are those of `lerobot_eval.py: rollout` of lerobot 0.6.1, in a batch of one; only the
seed of each chunk's noise is set, to that of rrun (docs/lerobot_policy.md).
"""

import hashlib
import json
import sys

import numpy as np
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.envs.utils import preprocess_observation
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.utils.import_utils import register_third_party_plugins


def seed_of_chunk(episode_seed, step):
    text = f"0 {episode_seed} {step}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def load(spec):
    options = [f"--{name}={value}" for name, value in spec["overrides"].items()]
    config = PreTrainedConfig.from_pretrained(spec["model_path"], cli_overrides=[*options, "--device=cpu"])
    config.pretrained_path = spec["model_path"]
    policy = get_policy_class(config.type).from_pretrained(spec["model_path"], config=config)
    policy.eval()
    processors = make_pre_post_processors(
        policy_cfg=config,
        pretrained_path=config.pretrained_path,
        preprocessor_overrides={"device_processor": {"device": "cpu"}, "rename_observations_processor": {"rename_map": {}}},
    )
    return policy, *processors


def rollout(policy, preprocessor, postprocessor, pixels, agent_pos, seed, task):
    policy.reset()
    actions = []
    for step in range(len(pixels)):
        observation = preprocess_observation({"pixels": pixels[step][None], "agent_pos": agent_pos[step][None]})
        observation["task"] = [task]
        observation = preprocessor(observation)
        if step % policy.config.n_action_steps == 0:
            torch.manual_seed(seed_of_chunk(seed, step))
        with torch.inference_mode():
            action = policy.select_action(observation)
        actions.append(postprocessor(action).to("cpu").numpy()[0])
    return np.stack(actions)


def main(spec, seen, out):
    with open(spec) as file:
        spec = json.load(file)
    seen = np.load(seen)
    register_third_party_plugins()
    loaded = load(spec)
    numbers = [name.removeprefix("seed_") for name in seen if name.startswith("seed_")]
    rows = {}
    for number in numbers:
        episode = [seen[f"{name}_{number}"] for name in ("pixels", "agent_pos", "seed")]
        rows[f"actions_{number}"] = rollout(*loaded, *episode, spec["task"])
    np.savez(out, **rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
