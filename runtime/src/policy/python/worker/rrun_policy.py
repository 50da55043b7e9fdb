"""The process beside the rank that runs a policy in Python: reads calls, asks the policy, writes actions into shared memory.

Calls and answers are packets of a SOCK_SEQPACKET socket:

    call     JSON: sequence, rows (a list of [env, episode, seed, step, index of the text]), texts (of the instructions), reset (indices of the rows whose episode begins)
    stage    'S', what is being done
    hello    'H', JSON: what the policy is
    refused  'F', why it cannot be used: this process ends
    ready    'R'
    actions  'A', u32 sequence: the actions are in shared memory
    error    'E', u32 sequence, why there are none: the process goes on
    gone     'G', u32 sequence, as above, and no call would work again: the process ends

Before anything else comes JSON with the configuration, and after hello JSON with the places in shared memory, which is mapped once for reading (observations)
and once for writing (actions). numpy is enough; torch is imported only if the policy asks for tensors.
"""

import contextlib
import importlib
import importlib.util
import json
import mmap
import os
import platform
import struct
import sys
import traceback

LARGEST_PACKET = 1 << 18
LONGEST_TEXT = 16_000  # bytes of a reason
LONGEST_HORIZON = 4096
MOST_STEPS_BACK = 255
HEAD = struct.Struct("=cI")


class Refused(Exception):
    """The policy cannot be used as it is."""


class Wrong(Exception):
    """What the policy gave cannot be taken."""


def utf8(text):
    """A text as bytes. Half a surrogate pair, which UTF-8 has no bytes for, becomes `?`."""
    return text.encode("utf-8", "replace")


class Episode:
    """One row of a call: which episode it belongs to. All numbers are the same for any number of environments and ranks, except `env`."""

    __slots__ = ("env", "episode", "seed", "step")

    def __init__(self, env, episode, seed, step):
        self.env, self.episode, self.seed, self.step = env, episode, seed, step

    def __repr__(self):
        return f"Episode(env={self.env}, episode={self.episode}, seed={self.seed}, step={self.step})"


def load_factory(policy):
    """The callable that `file.py:name` or `package.module:name` means."""
    place, _, name = policy.rpartition(":")
    if place.endswith(".py"):
        if not os.path.exists(place):
            raise Refused(f"there is no file `{os.path.abspath(place)}`")
        stem = os.path.splitext(os.path.basename(place))[0]
        spec = importlib.util.spec_from_file_location(stem, place)
        module = sys.modules[stem] = importlib.util.module_from_spec(spec)
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    factory = module
    for part in name.split("."):
        if not hasattr(factory, part):
            there = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            raise Refused(f"`{place}` has no `{name}`; it has {', '.join(there) or 'nothing that can be called'}")
        factory = getattr(factory, part)
    return factory


class Worker:
    def __init__(self, sock, config):
        self.sock, self.config = sock, config
        self.doing = "start"

    def stage(self, text):
        self.doing = text
        self.sock.send(b"S" + utf8(text))

    # --- start ----------------------------------------------------------------------------------------------------------

    def prepare(self):
        config = self.config
        self.stage("import numpy")
        global np
        import numpy as np

        self.stage(f"import of `{config['policy']}`")
        factory = load_factory(config["policy"])
        if not callable(factory):
            raise Refused(f"`{config['policy']}` is a {type(factory).__name__}, which cannot be called")
        self.stage("factory")
        self.policy = factory(self.spec(), config["device"], config["seed"], **config["policy_kwargs"])
        if not callable(getattr(self.policy, "act", None)):
            raise Refused(f"the factory made `{type(self.policy).__name__}`, which has no `act(observations, episodes)`")
        self.resets = callable(getattr(self.policy, "reset", None))
        self.tensors = bool(getattr(self.policy, "tensors", False))
        if self.tensors:
            import torch

            self.torch = torch
        self.size = len(config["spec"]["actions"]["names"])
        self.needs_video = self.needs_video_of(self.own("needs_video"))
        self.cameras = config["spec"]["cameras"] if self.needs_video else {}
        self.states = config["spec"]["states"]
        self.times = self.times_of(self.own("looks_back"))
        self.horizon = self.horizon_of(self.own("action_horizon"))
        if self.horizon is None:
            self.horizon = self.probe()

    def spec(self):
        """The environment, as the factory gets it."""
        spec = json.loads(json.dumps(self.config["spec"]))
        actions = spec["actions"]
        for bound, missing in (("low", -np.inf), ("high", np.inf)):
            actions[bound] = np.array([missing if value is None else value for value in actions[bound]], np.float32)
        return spec

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
        self.stage("first call of `act`, with zeros")
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

    def attach(self, layout):
        fd, begin, rows = self.config["memory_fd"], layout["actions"], layout["rows"]
        seen = mmap.mmap(fd, begin, mmap.MAP_SHARED, mmap.PROT_READ)
        taken = mmap.mmap(fd, layout["bytes"] - begin, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=begin)
        os.close(fd)

        def view(kind, shape, offset):
            count = 1
            for edge in shape:
                count *= edge
            return np.frombuffer(seen, kind, count, offset).reshape(shape)

        sizes = self.cameras.items()
        self.pictures = {name: view(np.uint8, (rows, *self.times, size["height"], size["width"], 3), offset) for (name, size), offset in zip(sizes, layout["cameras"])}
        self.state = {name: view(np.float32, (rows, *self.times, length), offset) for (name, length), offset in zip(self.states.items(), layout["states"])}
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
            raise Wrong(f"`act` gave an array of {actions.dtype}, expected numbers")
        return actions

    def run(self):
        buffer = memoryview(bytearray(LARGEST_PACKET))
        while True:
            size = self.sock.recv_into(buffer)
            if size < 2:
                return  # asked to close, or nobody is there any more
            call = json.loads(bytes(buffer[:size]))
            sequence = call["sequence"]
            try:
                self.call(call)
            except Exception as error:
                if isinstance(error, Wrong):
                    reason = str(error)
                else:
                    traceback.print_exception(type(error), error, error.__traceback__)
                    reason = f"`{self.doing}` raised {last_line(error)}"
                is_gone = "CUDA error" in reason  # every later call of this process would fail
                self.sock.send(HEAD.pack(b"G" if is_gone else b"E", sequence) + utf8(reason)[:LONGEST_TEXT])
                if is_gone:
                    return
                continue
            self.sock.send(HEAD.pack(b"A", sequence))

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
            raise Wrong(f"`act` gave {list(actions.shape)}, expected {list(wanted)}")
        with np.errstate(all="ignore"):  # numbers beyond float32 become infinite, and are refused
            self.actions[:count] = actions


def last_line(error):
    """The exception, and the line of the policy that raised it."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(("rrun_", "<frozen"))]
    if frames:
        text += f" ({frames[-1].filename} line {frames[-1].lineno}, in {frames[-1].name})"
    return text


def main(sock, config):
    worker = Worker(sock, config)
    code = 1
    try:
        worker.prepare()
        sock.send(b"H" + json.dumps(worker.hello()).encode())
        packet = sock.recv(LARGEST_PACKET)
        if packet:
            worker.attach(json.loads(packet))
            sock.send(b"R")
            worker.run()
        code = 0
    except BaseException as error:
        if not isinstance(error, (Refused, Wrong)):
            traceback.print_exception(type(error), error, error.__traceback__)
        reason = str(error) if isinstance(error, (Refused, Wrong)) else f"{worker.doing} raised {last_line(error)}"
        with contextlib.suppress(OSError):  # nobody may be there to be told
            sock.send(b"F" + utf8(reason)[:LONGEST_TEXT])
    finally:
        # Policies leave threads and exit handlers that hang.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
