"""What an environment says beside its observation, as the text of an answer: EmbodiedBench's info, and names of actions."""

import math

from rrun_host import Wrong, packed, utf8
from rrun_observation import array
from rrun_simulator import of_copy

LONGEST_WORDS = 4_000  # letters of an instruction or a feedback; a packet takes some 200 kB, at least one answer
LONGEST_NAMES = 32_000  # bytes of the names of all actions
TOLD = {"env_feedback", "last_action_success", "task_progress"}  # what of an info is told after a step
NAMES = ("language_skill_set", "action_names")  # EmbodiedBench's word, and a plain one


def clean(text):
    """A text that is not too long, and that every reader of JSON takes."""
    return utf8(str(text)[:LONGEST_WORDS]).decode()


class Feedback:
    def __init__(self, copies):
        self.copies = copies
        space = copies.action_space
        self.discrete = hasattr(space, "n") and type(space).__name__ != "MultiBinary"
        self.attribute = next((name for name in NAMES if self.discrete and self.has(name)), None)

    def has(self, name):
        try:
            return self.copies.attribute(0, name) is not None
        except AttributeError:
            return False

    def hello(self):
        """The actions, if the action space is one `Discrete`."""
        if not self.discrete:
            return None
        space = self.copies.action_space
        return {"start": int(getattr(space, "start", 0)), "count": int(space.n), "names": self.names(0) or []}

    def names(self, local):
        """The names of a copy's actions now; None if it has none."""
        if self.attribute is None:
            return None
        names = [clean(name) for name in self.copies.attribute(local, self.attribute)]
        if len(names) > self.copies.action_space.n:
            raise Wrong(f"a {self.attribute} of {len(names)} names, the action space had {self.copies.action_space.n} actions at first: make it as large as the largest list")
        if len(packed(names)) > LONGEST_NAMES:
            raise Wrong(f"a {self.attribute} of {len(packed(names))} bytes, expected at most {LONGEST_NAMES}")
        return names

    def begun(self, language, local):
        """The text after a reset; `language` is None where it is the one before."""
        names = self.names(local)
        told = {}
        if language is not None:
            told["language"] = clean(language)
        if names is not None:
            told["feedback"] = {"action_names": names}
        return packed(told) if told else b""

    def stepped(self, info, row):
        """The text after a step: nothing, for most environments."""
        if TOLD.isdisjoint(info):
            return b""
        told = {}
        there, words = of_copy(info, "env_feedback", row)
        if there and words is not None:
            told["env_feedback"] = clean(words)
        there, success = of_copy(info, "last_action_success", row)
        if there and success is not None:
            told["last_action_success"] = bool(array(success).all())
        there, progress = of_copy(info, "task_progress", row)
        if there and progress is not None and math.isfinite(float(progress)):
            told["task_progress"] = float(progress)
        return packed({"feedback": told}) if told else b""
