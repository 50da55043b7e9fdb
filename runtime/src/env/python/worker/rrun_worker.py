"""The process beside the simulator: reads commands, steps, writes what is seen into shared memory.

Requests and answers have entries, in the machine's byte order:

    request  each: u16 copy, u8 reset 0 / step 1, u8 place of the pictures from 1 on or 0 without, u32 -, u64 seed, u64 episode
    answer   each: u16 copy, u8 as above, u8 flags, f32 reward, u32 bytes of text; the texts: JSON or nothing.
             They come in the order of the commands, in as many packets as they need.
             After a step the place of the action has what the environment took. An answer with `wrong` in its text has nothing else.

Shared memory has 64 bytes with the copy and the call that are under way, each a u32, and for each copy: action, states, pictures in two places. The other side may still look at those in the place that it does not name.

Python 3.8 and gymnasium's interface are enough: simulators are old.
"""

import math
import struct

import numpy as np

import rrun_mapping as mapping
import rrun_simulator as simulator
from rrun_actions import Action
from rrun_feedback import Feedback
from rrun_host import LINE, NOBODY, Places, Refused, Wrong, last_line, packed
from rrun_observation import Scene, fetch
from rrun_values import flag, reward_of
from rrun_success import Success

ENTRY, ANSWER = struct.Struct("=HBB4xQQ"), struct.Struct("=HBBfI")
RESET, STEP = 0, 1
SLOTS = 2  # places for the pictures of a copy
SUCCESS, TERMINATED, TRUNCATED, RENDERED, OUT_OF_BOUNDS = 1, 2, 4, 8, 16
CALLING = {"idle": 0, "reset": 1, "step": 2, "render": 3, "observation": 4}
LONGEST_WRONG = 1_000  # letters of what is wrong with a copy's answer
LONGEST_ANSWERS = 100_000  # bytes after which no more answers are added to a packet
SEED_BITS = (1 << 31) - 1  # what C's and numpy's older generators take
DEFAULT_HZ = 20


def by_name(what, sizes):
    """An object of names and sizes, each name once."""
    named = dict(sizes)
    if len(named) < len(sizes):
        raise Refused(f"two of its {what} have the same name: {', '.join(name for name, _ in sizes)}")
    return named


class Render:
    """`env.render()` as a camera."""

    def __init__(self, copies):
        self.copies = copies
        self.offered = getattr(copies.first, "render_mode", None) == "rgb_array"

    def picture(self, scene, name):
        if not self.offered:
            mode = getattr(self.copies.first, "render_mode", None)
            raise scene.refused(f"video.{name} needs render(), but the environment's render_mode is {mode}, expected `rgb_array`")
        return self.copies.render(0)


class Place:
    """Views of one copy in shared memory."""

    def __init__(self, worker, memory, places):
        floats = lambda count: np.frombuffer(memory, np.float32, count, places.take(4 * count))
        self.action = floats(worker.action.size)
        self.vectors = [floats(state.size) for state in worker.states]
        shapes = [(camera.height, camera.width, 3) for camera in worker.cameras]
        bytes_of = lambda size: np.frombuffer(memory, np.uint8, size, places.take(size))
        self.pictures = [[bytes_of(math.prod(shape)).reshape(shape) for shape in shapes] for _ in range(SLOTS)]


class Worker:
    def __init__(self, host, config):
        self.host, self.config, self.notes = host, config, []
        self.is_hertz_assumed = False
        self.calls = None  # shared words: copy, call
        self.current = NOBODY

    # --- start ----------------------------------------------------------------------------------------------------------

    def start(self):
        config = self.config
        for name in config["imports"]:
            self.host.stage(f"import {name}")
            __import__(name)
        self.host.stage(f"make {config['environment']}")
        self.copies = simulator.make(config)
        self.action = Action(self.copies.action_space, config["mapping"].get("action") or {}, config["clip_actions"])
        if self.copies.batched:
            self.copies.idle, _ = self.action.decode(self.action.middle())
        observation, info = self.first_reset()
        self.host.stage("first observation")
        row = 0 if self.copies.batched else None
        scene = Scene(observation, row, config["mapping"], self.copies.space)
        self.cameras = mapping.cameras(scene, Render(self.copies))
        self.states = mapping.states(scene, {camera.path for camera in self.cameras}, self.notes)
        self.words = mapping.language(scene)
        self.language = self.words(observation, row, info, lambda name: self.copies.attribute(0, name))
        self.feedback = Feedback(self.copies)
        self.host.stage("step")
        self.probe(row)
        limit = config["max_episode_steps"] or self.own_limit()
        if not limit:
            raise Refused("the environment has no limit of steps: set max_episode_steps")
        self.limit = limit
        number = config["num_envs"]
        self.steps, self.told = [0] * number, [None] * number
        return self.hello()

    def first_reset(self):
        """With the seed 0; an environment that cannot begin there gets another chance with the first episode's.

        So does one whose process has died there: `probe` says of what.
        """
        failure = self.config["probe"]
        if failure is None:
            try:
                self.host.stage("reset(seed=0)")
                return self.reset_one(0, 0, 0)
            except Exception as error:
                failure = f"raised {last_line(error)}"
        seed = self.config["first_seed"] & SEED_BITS
        self.notes.append(f"reset(seed=0), which the start tries, {failure}; it was tried again with the first episode's seed {seed}")
        self.host.stage(f"reset(seed={seed})")
        return self.reset_one(0, seed, 0)

    def reset_one(self, local, seed, episode):
        options = {"episode": episode} if self.config["pass_episode"] else None
        if self.copies.batched:
            return self.copies.reset({local: seed} if self.calls else dict.fromkeys(range(self.copies.number), seed), options)
        return self.copies.reset(local, seed, options)

    def probe(self, row):
        """One step, to see what it gives."""
        action, _ = self.action.decode(self.action.middle())
        if self.copies.batched:
            values = self.copies.step(dict.fromkeys(range(self.copies.number), action))
        else:
            values = self.copies.step(0, action)
        self.success = Success(self.config["success"], values[4], row)
        if self.success.key is not None and not simulator.of_copy(values[4], self.success.key, row)[0]:
            self.notes.append(f"success asks for info `{self.success.key}`, after the first step info has {simulator.keys_of(values[4])}")
        try:
            self.success(*self.outcome(values, row)[:2], False, values[4], row)
        except Wrong as wrong:
            self.notes.append(f"the first step gave {wrong}; episodes in which that is so end with an error")

    def own_limit(self):
        env = self.copies.first
        for value in (simulator.spec_of(env, "max_episode_steps"), getattr(env, "max_episode_steps", None)):
            if isinstance(value, (int, np.integer)) and value > 0:
                return int(value)
        return None

    def hertz(self):
        if self.config["control_hz"]:
            return self.config["control_hz"]
        rate = (getattr(self.copies.first, "metadata", None) or {}).get("render_fps")
        if isinstance(rate, (int, float, np.number)) and math.isfinite(rate) and rate >= 1:
            return round(float(rate))
        self.is_hertz_assumed = True
        self.notes.append(f"neither control_hz nor metadata['render_fps'] is given: {DEFAULT_HZ} steps per second are assumed")
        return DEFAULT_HZ

    def hello(self):
        finite = lambda values: [float(value) if math.isfinite(value) else None for value in values]
        return {
            "interface": {
                "name": self.config["environment"],
                "states": by_name("state vectors", [(state.name, state.size) for state in self.states]),
                "cameras": by_name("cameras", [(camera.name, (camera.height, camera.width)) for camera in self.cameras]),
                "actions": {
                    "names": self.action.names,
                    "low": finite(self.action.low),
                    "high": finite(self.action.high),
                    "grid": self.action.grid.tolist(),
                },
                "control_hz": self.hertz(),
                "max_episode_steps": self.limit,
                "language": self.language,
            },
            "discrete": self.feedback.hello(),
            "is_control_hz_assumed": self.is_hertz_assumed,
            "together": self.copies.batched,
            "notes": self.notes,
            "versions": simulator.versions(),
        }

    def attach(self):
        memory, places = self.host.memory(), Places(LINE)
        self.calls = memoryview(memory)[:8].cast("I")
        self.places = [Place(self, memory, places) for _ in self.steps]

    # --- work -----------------------------------------------------------------------------------------------------------

    def serve(self):
        work = self.together if self.copies.batched else self.separately
        for sequence, entries in self.host.requests():
            if self.calls is None:
                self.attach()
            self.reply(sequence, work(ENTRY.iter_unpack(entries)))
        self.copies.close()

    def reply(self, sequence, made):
        answers, texts, size = [], [], 0
        for local, kind, flags, reward, text in made:
            answers.append(ANSWER.pack(local, kind, flags, reward, len(text)))
            texts.append(text)
            size += ANSWER.size + len(text)
            if size > LONGEST_ANSWERS:
                self.host.answer(sequence, b"".join([*answers, *texts]), len(answers))
                answers, texts, size = [], [], 0
        self.calls[1] = 0
        if answers:
            self.host.answer(sequence, b"".join([*answers, *texts]), len(answers))

    def call(self, local, name):
        self.current = local
        self.calls[0], self.calls[1] = local, CALLING[name]

    def separately(self, entries):
        for local, kind, render, seed, episode in entries:
            if kind == RESET:
                self.call(local, "reset")
                self.copies.look(local, bool(render))
                observation, info = self.reset_one(local, seed & SEED_BITS, episode)
                yield self.begun(local, (observation, None, info, render))
                continue
            self.call(local, "step")
            self.copies.look(local, bool(render))
            action, outside = self.action.decode(self.places[local].action)
            yield self.stepped(local, self.copies.step(local, action), None, (render, outside))

    def together(self, entries):
        entries = list(entries)
        steps = {local: render for local, kind, render, *_ in entries if kind == STEP}
        resets = {local: (render, seed & SEED_BITS, episode) for local, kind, render, seed, episode in entries if kind == RESET}
        answers = {}
        if steps:
            self.call(min(steps), "step")
            self.copies.look(any(steps.values()))
            actions = {local: self.action.decode(self.places[local].action) for local in steps}
            values = self.copies.step({local: action for local, (action, _) in actions.items()})
            for local, render in steps.items():
                answers[local] = self.stepped(local, values, local, (render, actions[local][1]))
        for group in self.groups(resets):
            self.call(min(group), "reset")
            self.copies.look(any(resets[local][0] for local in group))
            options = {"episode": resets[min(group)][2]} if self.config["pass_episode"] else None
            observation, info = self.copies.reset({local: resets[local][1] for local in group}, options)
            for local in group:
                shown = observation, local, info, resets[local][0]
                answers[local] = self.begun(local, shown)
        return [answers[entry[0]] for entry in entries]

    def groups(self, resets):
        """Copies that one reset can take: all, unless each is told its episode."""
        if self.config["pass_episode"]:
            return [[local] for local in resets]
        return [list(resets)] if resets else []

    def begun(self, local, shown):
        self.steps[local] = 0
        try:
            return self.seen_first(local, *shown)
        except Wrong as wrong:
            self.told[local] = None  # its words are not on the way
            return refusal(local, RESET, wrong)

    def seen_first(self, local, observation, row, info, render):
        text = self.words(observation, row, info, lambda name: self.copies.attribute(local, name))
        new = text != self.told[local]
        self.told[local] = text
        self.write(local, observation, row, render)
        return local, RESET, RENDERED if render else 0, 0.0, self.feedback.begun(text if new else None, local)

    def outcome(self, values, row):
        reward, terminated, truncated = values[1], values[2], values[3]
        if row is not None:
            reward, terminated, truncated = reward[row], terminated[row], truncated[row]
        return reward_of(reward), flag(terminated, "terminated"), flag(truncated, "truncated")

    def stepped(self, local, values, row, how):
        try:
            return self.seen(local, values, row, *how)
        except Wrong as wrong:
            return refusal(local, STEP, wrong)

    def seen(self, local, values, row, render, outside):
        reward, terminated, truncated = self.outcome(values, row)
        self.steps[local] += 1
        truncated = truncated or self.steps[local] >= self.limit
        self.write(local, values[0], row, render)
        success = self.success(reward, terminated, terminated or truncated, values[4], row)
        flags = success * SUCCESS | terminated * TERMINATED | truncated * TRUNCATED | (RENDERED if render else 0) | outside * OUT_OF_BOUNDS
        return local, STEP, flags, reward, self.feedback.stepped(values[4], row)

    def write(self, local, observation, row, render):
        self.calls[1] = CALLING["observation"]
        for state, view in zip(self.states, self.places[local].vectors):
            state.write(observation, row, view)
        if not render:
            return
        for camera, view in zip(self.cameras, self.places[local].pictures[render - 1]):
            if camera.path is None:
                self.call(local, "render")
                camera.write(self.copies.render(local), view)
            else:
                camera.write(fetch(observation, camera.path, row), view)


def refusal(local, kind, wrong):
    """The answer where what the environment gave is wrong: its episode is over, and the process lives on."""
    text = packed({"wrong": str(wrong)[:LONGEST_WRONG]})
    return local, kind, 0, 0.0, text
