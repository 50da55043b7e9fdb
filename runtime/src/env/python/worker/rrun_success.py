"""Whether an episode is solved after a step, by the job's rule."""

from rrun_host import Refused, Wrong
from rrun_simulator import keys_of, of_copy
from rrun_values import flag


class Success:
    """The rule; without one, `is_success` or `success` in info, whichever the first step gave."""

    def __init__(self, rule, info, row):
        self.rule = rule
        self.key, self.reward = None, None
        if rule is None:
            self.key = next((key for key in ("is_success", "success") if of_copy(info, key, row)[0]), None)
            if self.key is None:
                raise Refused(
                    "`arena_env_args.success` is not given, and info has neither `is_success` nor `success` after a step "
                    f"(it has {keys_of(info)}); expected info.<key>, terminated or reward>=X"
                )
        elif rule.startswith("reward>="):
            self.reward = float(rule[len("reward>=") :])
        elif rule != "terminated":
            self.key = "is_success" if rule == "is_success" else rule[len("info.") :]

    def __call__(self, reward, terminated, over, info, row):
        if self.key is None:
            return reward >= self.reward if self.reward is not None else terminated
        there, value = of_copy(info, self.key, row)
        if not there and over:
            raise Wrong(f"an info without `{self.key}`, which success asks for, at the episode's end: it has {keys_of(info)}")
        return there and flag(value, f"info `{self.key}`")
