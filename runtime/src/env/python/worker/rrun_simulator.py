"""The copies of an environment: made by name, and stepped one by one (`Separate`) or as a VectorEnv (`Together`)."""

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import platform
import sys

import numpy as np

import rrun_host
from rrun_actions import stack
from rrun_host import Refused
from rrun_observation import array


def load(environment):
    """Imports what `make` needs for an environment."""
    if not environment.startswith("gym:"):
        load_factory(environment)
        return
    import gymnasium

    module, _, name = environment[4:].rpartition(":")
    if module:
        importlib.import_module(module)
    # `make` says what is wrong with an id, and knows those without a version.
    with contextlib.suppress(gymnasium.error.Error):
        entry_point = gymnasium.spec(name).entry_point
        if isinstance(entry_point, str):
            gymnasium.envs.registration.load_env_creator(entry_point)


load_factory = functools.lru_cache(maxsize=None)(rrun_host.load)  # a file is run once


def versions():
    """Versions of the interpreter and of the installed packages that are imported, by the names of their modules."""
    standard, found = getattr(sys, "stdlib_module_names", ()), {"python": platform.python_version()}
    for name in sorted({name.partition(".")[0] for name in sys.modules}):
        if name in standard or name.startswith("_"):
            continue
        version = version_of(name)
        if version is not None:
            found[name] = version
    return found


@functools.lru_cache(maxsize=None)
def version_of(package):
    """The version of an installed package, or None."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):
        return str(importlib.metadata.version(package))
    return None


def make(config):
    """The copies that this process holds, by the job's fields."""
    number, environment = config["num_envs"], config["environment"]
    kwargs = [kwargs_of(config, local) for local in range(number)]
    if environment.startswith("gym:"):
        import gymnasium

        given = {"max_episode_steps": config["max_episode_steps"]} if config["max_episode_steps"] else {}
        if config["renders"]:
            given["render_mode"] = "rgb_array"
        maker = lambda kwargs: gymnasium.make(environment[4:], disable_env_checker=True, **{**given, **kwargs})
        return Separate([maker(each) for each in kwargs])
    factory = load_factory(environment)
    vector = config["vector"]
    if vector is not False and takes_num_envs(factory):
        made = factory(**{"num_envs": number, **kwargs[0]})
        if vector or is_vector(made):
            return Together(made, number)
        if number > 1:
            raise Refused(f"the factory takes num_envs and has made one {type(made).__name__}, envs_per_process is {number}: `vector: false` makes {number} of them")
        return Separate([made])
    first = factory(**kwargs[0])
    if vector or (vector is None and is_vector(first)):
        return Together(first, number)
    return Separate([first, *(factory(**each) for each in kwargs[1:])])


def kwargs_of(config, local):
    """The arguments of a copy, with its numbers in place of `{gpu}`, `{env}` and `{rank}`."""
    numbers = {"{gpu}": config["gpu"], "{env}": config["first_env"] + local, "{rank}": config["rank"]}
    return filled(config["env_kwargs"], numbers)


def filled(value, numbers):
    """A value with numbers in its texts; a text that is nothing else becomes the number."""
    if isinstance(value, dict):
        return {key: filled(inside, numbers) for key, inside in value.items()}
    if isinstance(value, list):
        return [filled(inside, numbers) for inside in value]
    if not isinstance(value, str):
        return value
    if value in numbers:
        return numbers[value]
    for name, number in numbers.items():
        value = value.replace(name, "" if number is None else str(number))
    return value


def is_vector(env):
    """Whether it is a VectorEnv; plain environments may have a number of that name for ends of their own."""
    return hasattr(env, "num_envs") and hasattr(env, "single_action_space")


def takes_num_envs(factory):
    try:
        return "num_envs" in inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False


def check(env, names):
    missing = [name for name in names if not hasattr(env, name)]
    if missing:
        raise Refused(f"the environment is a {type(env).__name__} without {', '.join(missing)}, expected a gymnasium Env or VectorEnv")


def five(values):
    if not isinstance(values, tuple) or len(values) != 5:
        count = f"{len(values)} values" if isinstance(values, tuple) else f"a {type(values).__name__}"
        raise TypeError(f"step gave {count}, expected (observation, reward, terminated, truncated, info)")
    return values


def two(values):
    if not isinstance(values, tuple) or len(values) != 2:
        raise TypeError(f"reset gave a {type(values).__name__}, expected (observation, info)")
    return values


def spec_of(env, field):
    return getattr(getattr(env, "spec", None), field, None)


def looker(env):
    """What has an attribute `rendering`, a bool, in an environment: pictures may be left out while it is False."""
    inner = getattr(env, "unwrapped", env)
    return inner if isinstance(getattr(inner, "rendering", None), bool) else None


class Separate:
    """One object a copy, stepped in turn."""

    batched = False

    def __init__(self, envs):
        self.envs = envs
        for env in envs:
            check(env, ["reset", "step", "action_space"])
        self.first = envs[0]
        self.space, self.action_space = getattr(self.first, "observation_space", None), self.first.action_space
        self.lookers = [looker(env) for env in envs]

    def look(self, local, render):
        """Tells an environment that wants to know whether its pictures will be looked at."""
        if self.lookers[local] is not None:
            self.lookers[local].rendering = render

    def reset(self, local, seed, options):
        return two(self.envs[local].reset(seed=seed, options=options))

    def step(self, local, action):
        return five(self.envs[local].step(action))

    def render(self, local):
        return array(self.envs[local].render())

    def attribute(self, local, name):
        return attribute(self.envs[local], name)

    def close(self):
        for env in self.envs:
            env.close()


class Together:
    """A VectorEnv, of which all copies step at once.

    A copy that has no action then takes the middle one. Nobody looks at it: the other side sends the actions of all
    copies with an episode together, and resets copies between steps.
    """

    batched = True

    def __init__(self, env, number):
        check(env, ["reset", "step", "single_action_space", "num_envs"])
        if env.num_envs != number:
            raise Refused(f"the VectorEnv has {env.num_envs} copies, envs_per_process is {number}")
        mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
        if "disabled" not in str(getattr(mode, "value", mode)).lower():
            raise Refused(f"the VectorEnv's metadata['autoreset_mode'] is {mode}, expected AutoresetMode.DISABLED: episodes are reset one by one, with their seeds")
        self.first = self.env = env
        self.space = getattr(env, "single_observation_space", None)
        self.action_space, self.number = env.single_action_space, number
        self.idle = None  # the action of a copy that has none
        self.begun = [(0, None)] * number  # seed and options of each copy's episode
        self.ended = np.zeros(number, np.bool_)  # by its last step
        self.looker = looker(env)
        self.shown = {}  # since the last call: the pictures, and attributes by their names; each for all copies

    def look(self, render):
        """As that of `Separate`, for all copies."""
        if self.looker is not None:
            self.looker.rendering = render

    def reset(self, seeds, options):
        """Resets the copies in `seeds` (copy -> seed)."""
        self.shown.clear()
        mask = np.zeros(self.number, np.bool_)
        mask[list(seeds)] = True
        for local, seed in seeds.items():
            self.begun[local] = seed, options
        self.ended[mask] = False
        given = [seeds.get(local) for local in range(self.number)]
        return two(self.env.reset(seed=given, options={**(options or {}), "reset_mask": mask}))

    def step(self, actions):
        """Steps with the actions in `actions` (copy -> action)."""
        for local in np.flatnonzero(self.ended):
            # Stepping what has ended is an error in gymnasium, even if nobody looks.
            if local not in actions:
                seed, options = self.begun[local]
                self.reset({local: seed}, options)
        self.shown.clear()
        values = five(self.env.step(stack([actions.get(local, self.idle) for local in range(self.number)])))
        self.ended = np.asarray(values[2], np.bool_) | np.asarray(values[3], np.bool_)
        return values

    def render(self, local):
        return array(self.once("render()", self.env.render)[local])

    def attribute(self, local, name):
        read = self.env.get_attr if hasattr(self.env, "get_attr") else functools.partial(getattr, self.env)
        values = self.once(name, lambda: read(name))
        return values if isinstance(values, (str, bytes)) else values[local]

    def once(self, name, call):
        """What a call gives for all copies; asking once for each of them would take the square of their number."""
        if name not in self.shown:
            self.shown[name] = call()
        return self.shown[name]

    def close(self):
        self.env.close()


def attribute(env, name):
    """An attribute of the environment or of what its wrappers wrap."""
    while env is not None:
        if name in dir(env):
            return getattr(env, name)
        env = getattr(env, "env", None)
    raise AttributeError(f"the environment has no attribute `{name}`")


def keys_of(info):
    """What an info has, for a message; gymnasium's masks, `_key`, are left out."""
    return ", ".join(key for key in map(str, info) if not key.startswith("_")) or "nothing"


def of_copy(info, key, row):
    """(is it there, value) of `key` in one copy's info; `row` is the copy in a batched one."""
    if key not in info:
        return False, None
    if row is None:
        return True, info[key]
    there = info.get(f"_{key}")
    return (there is None or bool(there[row])), info[key][row]
