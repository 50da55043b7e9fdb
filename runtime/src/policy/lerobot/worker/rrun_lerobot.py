"""A checkpoint of lerobot as a policy: lerobot's own classes and processors, as `lerobot-eval` (0.6.1) uses them.

`rrun_policy` calls it like any policy. Each chunk is computed from its rows alone: lerobot's queues, which hold one batch of environments that step
together, are filled with the past observations of these rows and emptied again. Noise is drawn for each row from the seeds of policy and episode and from the
step, so that it does not depend on the other rows.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from types import SimpleNamespace

OLDEST = (0, 6)
PREPROCESSOR = "policy_preprocessor.json"

# What `predict_action_chunk` takes as `noise`, for one row.
NOISE = {
    "diffusion": lambda config: (config.horizon, config.action_feature.shape[0]),
    "pi0": lambda config: (config.chunk_size, config.max_action_dim),
    "pi05": lambda config: (config.chunk_size, config.max_action_dim),
    "smolvla": lambda config: (config.chunk_size, config.max_action_dim),
}
WITHOUT_NOISE = {"act"}


def refuse(reason):
    from rrun_host import Refused

    raise Refused(reason)


class LerobotPolicy:
    """`cameras` is a list of [feature, camera or null], `states` a list of [feature, names of the states that are joined]."""

    def __init__(self, spec, device, seed, model_path, cameras, states, actions=None, task=None, config_overrides=None):
        global np, torch
        import lerobot

        version = tuple(int(part) for part in lerobot.__version__.split(".")[:2])
        if version < OLDEST:
            refuse(f"lerobot is {lerobot.__version__}, expected 0.6 or newer")
        import numpy as np
        import torch

        self.env, self.seed, self.task, self.device = spec, seed, task, device
        self.cameras, self.states = cameras, states
        self.config = self.read_config(model_path, actions, config_overrides or {})
        self.kind = self.config.type
        self.load(model_path)
        self.ensemblers = None
        if getattr(self.config, "temporal_ensemble_coeff", None) is not None:
            self.ensemblers, self.reset = {}, self.forget
        self.actions = actions or getattr(self.config, "n_action_steps", None)
        self.spec = {"needs_video": any(camera for _, camera in cameras), "looks_back": self.past()}
        self.try_it()
        self.spec["action_horizon"] = self.actions

    # --- start ----------------------------------------------------------------------------------------------------------

    def read_config(self, model_path, actions, overrides):
        """The configuration, with the fields that the job overrides, as `--policy.FIELD=VALUE` of lerobot does."""
        import lerobot.policies.factory  # makes the policies known by their types
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.utils.import_utils import register_third_party_plugins

        register_third_party_plugins()
        read = PreTrainedConfig.from_pretrained
        fields = {field.name for field in dataclasses.fields(read(model_path, cli_overrides=["--device=cpu"]))}
        for name in overrides:
            if name not in fields:
                refuse(f"`policy_config_dict.config_overrides.{name}` is no field of this policy, which has {', '.join(sorted(fields))}")
        values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in overrides.items()}
        if actions is not None and "n_action_steps" in fields:
            values["n_action_steps"] = str(actions)
        config = read(model_path, cli_overrides=[*(f"--{name}={value}" for name, value in values.items()), f"--device={self.device}"])
        config.pretrained_path = model_path
        return config

    def load(self, model_path):
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors

        self.policy = get_policy_class(self.kind).from_pretrained(model_path, config=self.config)
        self.policy.to(self.device)
        self.policy.eval()
        # The mapping already gives the checkpoint's names.
        overrides = {"device_processor": {"device": self.device}, "rename_observations_processor": {"rename_map": {}}}
        with open(os.path.join(model_path, PREPROCESSOR)) as file:
            steps = {step.get("registry_name") for step in json.load(file)["steps"]}
        self.preprocessor, self.postprocessor = make_pre_post_processors(
            policy_cfg=self.config,
            pretrained_path=model_path,
            preprocessor_overrides={name: value for name, value in overrides.items() if name in steps},
        )
        if self.kind == "diffusion":
            self.own_noise_of_each_row(self.policy.diffusion.noise_scheduler)

    def past(self):
        """How many past steps the policy looks at."""
        indices = self.config.observation_delta_indices or [0]
        return -min(min(indices), 0)

    def try_it(self):
        """Infers from one row of zeros, so that what does not fit is an error before the first episode."""
        times = (self.spec["looks_back"] + 1,) if self.spec["looks_back"] else ()
        pictures = {name: np.zeros((1, *times, size["height"], size["width"], 3), np.uint8) for name, size in self.env["cameras"].items()}
        state = {name: np.zeros((1, *times, length), np.float32) for name, length in self.env["states"].items()}
        texts = [self.env["language"]]
        actions = self.act({"pictures": pictures, "state": state, "instruction": texts}, [SimpleNamespace(env=0, episode=0, seed=0, step=0)])
        _, found, size = actions.shape
        wanted = len(self.env["actions"]["names"])
        if size != wanted:
            refuse(f"its actions have {size} numbers, those of environment `{self.env['environment']}` have {wanted}")
        if self.actions is not None and found < self.actions:
            refuse(f"`policy_config_dict.action_chunk_length` is {self.actions}, expected at most the {found} actions of its chunks")
        self.actions = found
        if self.ensemblers is not None:
            self.ensemblers.clear()

    # --- work -----------------------------------------------------------------------------------------------------------

    def forget(self, episodes):
        for episode in episodes:
            self.ensemblers.pop(episode.env, None)

    def act(self, observations, episodes):
        texts = [text if self.task is None else self.task for text in observations["instruction"]]
        together = {}
        for row, text in enumerate(texts):
            # Instructions are padded to the longest of a batch; and noise that cannot be passed belongs to the whole batch.
            alone = self.kind not in NOISE and self.kind not in WITHOUT_NOISE
            together.setdefault(row if alone else text, []).append(row)
        chunks = [None] * len(episodes)
        for rows in together.values():
            for row, chunk in zip(rows, self.infer(observations, episodes, texts, rows)):
                chunks[row] = chunk
        return np.stack(chunks)

    def infer(self, observations, episodes, texts, rows):
        """The actions of some rows, `[rows, actions, action]`."""
        batches = [self.preprocessor(self.observation(observations, rows, texts, time)) for time in range(self.spec["looks_back"] + 1)]
        seeds = [self.seed_of(episodes[row]) for row in rows]
        torch.manual_seed(seeds[0])
        amp = torch.autocast(device_type=torch.device(self.device).type) if self.config.use_amp else contextlib.nullcontext()
        with torch.inference_mode(), amp:
            self.policy.reset()
            actions = self.policy.predict_action_chunk(self.fill_queues(batches), **self.noise(seeds))
            if self.ensemblers is not None:
                actions = torch.stack([self.ensembled(episodes[row], actions[index]) for index, row in enumerate(rows)])
        actions = actions[:, : self.actions]
        return torch.stack([self.postprocessor(actions[:, step]) for step in range(actions.shape[1])], 1).to("cpu", torch.float32).numpy()

    def observation(self, observations, rows, texts, time):
        """What lerobot's `preprocess_observation` makes of an observation, with the names of the checkpoint."""
        when = (rows, time) if self.spec["looks_back"] else rows
        seen = {}
        for feature, camera in self.cameras:
            if camera is not None:
                picture = torch.from_numpy(observations["pictures"][camera][when])  # a copy of the rows
                seen[feature] = picture.permute(0, 3, 1, 2).contiguous().type(torch.float32).div_(255)
        for feature, names in self.states:
            seen[feature] = torch.from_numpy(np.concatenate([observations["state"][name][when] for name in names], axis=-1)).float()
        return {**seen, "task": [texts[row] for row in rows]}

    def fill_queues(self, batches):
        """Gives the past observations to policies that keep them in queues; returns what they infer from."""
        from lerobot.policies.utils import populate_queues

        queues = getattr(self.policy, "_queues", {})
        for batch in batches:
            batch.pop("action", None)  # processors of training leave it empty
            if "observation.images" in queues:
                batch["observation.images"] = torch.stack([batch[feature] for feature in self.config.image_features], dim=-4)
            populate_queues(queues, batch, exclude_keys=["action"])
        return batches[-1]

    def ensembled(self, episode, chunk):
        """The next action of ACT's temporal ensemble, `[1, action]`; each episode has an ensemble of its own."""
        ensembler = self.ensemblers.get(episode.env)
        if ensembler is None:
            known = self.policy.temporal_ensembler
            ensembler = self.ensemblers[episode.env] = type(known)(self.config.temporal_ensemble_coeff, known.chunk_size)
        return ensembler.update(chunk[None])

    # --- noise ----------------------------------------------------------------------------------------------------------

    def seed_of(self, episode):
        text = f"{self.seed} {episode.seed} {episode.step}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

    def noise(self, seeds):
        """The noise of each row, as lerobot draws it for this row alone after `torch.manual_seed`."""
        if self.kind not in NOISE:
            return {}
        shape = (1, *NOISE[self.kind](self.config))
        kind = next(self.policy.parameters()).dtype if self.kind == "diffusion" else torch.float32
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        rows = [torch.randn(shape, generator=generator, dtype=kind) for generator in self.generators]
        return {"noise": torch.cat(rows).to(self.device)}

    def own_noise_of_each_row(self, scheduler):
        """DDPM draws noise in each step, too, for which `predict_action_chunk` takes no generator."""
        step = scheduler.step

        def step_with_generators(*args, **kwargs):
            return step(*args, **{**kwargs, "generator": self.generators})

        scheduler.step = step_with_generators
