"""The process beside the rank that runs a policy in Python: reads calls, asks the policy, writes actions into shared memory.

A call is JSON: rows (a list of [env, episode, seed, step, index of the text]), texts (of the instructions), reset (indices of the rows whose episode begins), most (rows for which the shared memory has places). The answer is empty: the actions are in shared memory, which is mapped once for reading (observations) and once for writing (actions).

numpy is enough; torch is imported only if the policy asks for tensors.
"""

import json
import math
import mmap
import platform
import sys
import traceback

from rrun_host import Places, Refused, last_line, load

LONGEST_HORIZON = 4096
MOST_STEPS_BACK = 255
PAGE = 1 << 16  # alignment of the actions


class Episode:
    """One row of a call: which episode it belongs to. All numbers are the same for any number of environments and ranks, except `env`."""

    __slots__ = ("env", "episode", "seed", "step")

    def __init__(self, env, episode, seed, step):
        self.env, self.episode, self.seed, self.step = env, episode, seed, step

    def __repr__(self):
        return f"Episode(env={self.env}, episode={self.episode}, seed={self.seed}, step={self.step})"


class Worker:
    def __init__(self, host, config):
        self.host, self.config = host, config

    # --- start ----------------------------------------------------------------------------------------------------------

    def start(self):
        config = self.config
        self.host.stage("import numpy")
        global np
        import numpy as np

        self.host.stage(f"import of `{config['policy']}`")
        factory = load(config["policy"])
        if not callable(factory):
            raise Refused(f"`{config['policy']}` is a {type(factory).__name__}, which cannot be called")
        self.host.stage("factory")
        spec = self.spec()
        self.cameras, self.states, self.size = dict(spec["cameras"]), dict(spec["states"]), len(spec["actions"]["names"])
        self.policy = factory(spec, config["device"], config["seed"], **config["policy_kwargs"])
        if not callable(getattr(self.policy, "act", None)):
            raise Refused(f"the factory made `{type(self.policy).__name__}`, which has no `act(observations, episodes)`")
        self.resets = callable(getattr(self.policy, "reset", None))
        self.tensors = bool(getattr(self.policy, "tensors", False))
        if self.tensors:
            import torch

            self.torch = torch
        self.needs_video = self.needs_video_of(self.own("needs_video"))
        self.cameras = self.cameras if self.needs_video else {}
        self.times = self.times_of(self.own("looks_back"))
        self.horizon = self.horizon_of(self.own("action_horizon"))
        if self.horizon is None:
            self.horizon = self.probe()
        return self.hello()

    def spec(self):
        """The environment, as the factory gets it."""
        given = self.config["interface"]
        actions = {"names": list(given["actions"]["names"])}
        for bound, missing in (("low", -np.inf), ("high", np.inf)):
            actions[bound] = np.array([missing if value is None else value for value in given["actions"][bound]], np.float32)
        return {
            "environment": given["name"],
            "cameras": {name: {"height": height, "width": width} for name, (height, width) in given["cameras"].items()},
            "states": dict(given["states"]),
            "actions": actions,
            **{name: given[name] for name in ("control_hz", "max_episode_steps", "language")},
        }

    def own(self, name):
        """A field of the policy's `spec`, an object or a dict."""
        spec = getattr(self.policy, "spec", None)
        return spec.get(name) if isinstance(spec, dict) else getattr(spec, name, None)

    def needs_video_of(self, value):
        if value is None or isinstance(value, (bool, np.bool_)):
            return value is None or bool(value)
        raise Refused(f"`spec` of the policy has needs_video {value!r}, expected True or False")

    def times_of(self, value):
        """The axis of time that each row of an observation has: none for a policy that does not look back."""
        if value is None or value == 0:
            return ()
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 1 <= value <= MOST_STEPS_BACK:
            return (int(value) + 1,)
        raise Refused(f"`spec` of the policy has looks_back {value!r}, expected a whole number from 0 to {MOST_STEPS_BACK}")

    def horizon_of(self, value):
        if value is None:
            return None
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 1 <= value <= LONGEST_HORIZON:
            return int(value)
        raise Refused(f"`spec` of the policy has action_horizon {value!r}, expected a whole number from 1 to {LONGEST_HORIZON}")

    def probe(self):
        """Asks for actions for one row of zeros, to see how many there are."""
        self.host.stage("first call of `act`, with zeros")
        pictures = {name: np.zeros((1, *self.times, size["height"], size["width"], 3), np.uint8) for name, size in self.cameras.items()}
        state = {name: np.zeros((1, *self.times, length), np.float32) for name, length in self.states.items()}
        episodes = [Episode(0, 0, 0, 0)]
        if self.resets:
            self.policy.reset(episodes)
        actions = self.numbers(self.policy.act(self.observations(pictures, state, [""]), episodes))
        if actions.ndim != 3 or actions.shape[0] != 1 or actions.shape[2] != self.size or not 1 <= actions.shape[1] <= LONGEST_HORIZON:
            raise Refused(f"`act` gave {list(actions.shape)} for one row, expected [1, horizon, {self.size}]")
        return actions.shape[1]

    def hello(self):
        versions = {"python": platform.python_version(), "numpy": np.__version__}
        for name in ("torch", "transformers", "lerobot"):
            if name in sys.modules:
                versions[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
        looks_back = self.times[0] - 1 if self.times else 0
        terms = {"action_horizon": self.horizon, "needs_video": self.needs_video, "looks_back": looks_back, "has_reset": self.resets}
        return {**terms, "versions": versions}

    def attach(self, rows):
        places, blocks = Places(), []
        shapes = [(np.uint8, (size["height"], size["width"], 3)) for size in self.cameras.values()]
        shapes += [(np.float32, (length,)) for length in self.states.values()]
        for kind, shape in shapes:
            shape = (rows, *self.times, *shape)
            count = math.prod(shape)
            blocks.append((kind, shape, count, places.take(count * np.dtype(kind).itemsize)))
        begin = -(-max(places.at, 1) // PAGE) * PAGE
        seen = self.host.memory(0, begin, mmap.ACCESS_READ)
        views = [np.frombuffer(seen, kind, count, offset).reshape(shape) for kind, shape, count, offset in blocks]
        self.pictures = dict(zip(self.cameras, views))
        self.state = dict(zip(self.states, views[len(self.cameras) :]))
        taken = self.host.memory(begin)
        self.actions = np.frombuffer(taken, np.float32, rows * self.horizon * self.size).reshape(rows, self.horizon, self.size)

    # --- work -----------------------------------------------------------------------------------------------------------

    def observations(self, pictures, state, texts):
        if self.tensors:
            # A copy, even on the CPU: whoever writes to the read-only memory through a tensor ends this process.
            pictures = {name: self.tensor(view) for name, view in pictures.items()}
            state = {name: self.tensor(view) for name, view in state.items()}
        return {"pictures": pictures, "state": state, "instruction": texts}

    def tensor(self, view):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the view cannot be written to
            return self.torch.from_numpy(view).to(self.config["device"], copy=True)

    def numbers(self, actions):
        """The actions as an array of numbers."""
        if hasattr(actions, "detach"):
            actions = actions.detach().to("cpu")
            actions = (actions.float() if actions.is_floating_point() else actions).numpy()
        actions = np.asarray(actions)
        if actions.dtype.kind not in "fiub":
            raise Refused(f"`act` gave an array of {actions.dtype}, expected numbers")
        return actions

    def serve(self):
        self.actions = None
        for sequence, packet in self.host.requests():
            call = json.loads(bytes(packet))
            if self.actions is None:
                self.attach(call["most"])
            try:
                self.call(call)
            except Exception as error:
                if isinstance(error, Refused):
                    reason = str(error)
                else:
                    traceback.print_exception(type(error), error, error.__traceback__)
                    reason = f"`{self.doing}` raised {last_line(error)}"
                if "CUDA error" in reason:  # every later call of this process would fail
                    raise Refused(reason) from None
                self.host.failed(sequence, reason)
                continue
            self.host.answer(sequence)

    def call(self, call):
        rows = call["rows"]
        episodes = [Episode(*row[:4]) for row in rows]
        if call["reset"] and self.resets:
            self.doing = "reset"
            self.policy.reset([episodes[index] for index in call["reset"]])
        count = len(rows)
        pictures = {name: view[:count] for name, view in self.pictures.items()}
        state = {name: view[:count] for name, view in self.state.items()}
        texts = [call["texts"][row[4]] for row in rows]
        self.doing = "act"
        actions = self.numbers(self.policy.act(self.observations(pictures, state, texts), episodes))
        wanted = (count, self.horizon, self.size)
        if actions.shape != wanted:
            raise Refused(f"`act` gave {list(actions.shape)}, expected {list(wanted)}")
        with np.errstate(all="ignore"):  # numbers beyond float32 become infinite, and are refused
            self.actions[:count] = actions
