"""Single values that an environment gives: rewards and flags, in whatever they are wrapped."""

import math

import numpy as np

from rrun_host import Wrong
from rrun_observation import NUMBERS, array

LARGEST_REWARD = float(np.finfo(np.float32).max)


def shown(value):
    """`float nan`, `str 'False'`, `ndarray float32 [0]`: type and value of what is not as it should be."""
    kind = type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype") and tuple(value.shape) != ():
        return f"{kind} {value.dtype} {list(value.shape)}"
    return f"{kind} {str(value) if isinstance(value, (float, np.generic)) else repr(value)[:200]}"


def single(value):
    """A bool, int or float out of a value or an array (or tensor) of one; None for anything else."""
    if type(value) in (bool, int, float):
        return value
    if value is None or isinstance(value, (str, bytes)):
        return None
    try:
        value = array(value)
    except Exception:
        return None
    return value.item() if value.size == 1 and value.dtype.kind in NUMBERS else None


def flag(value, name):
    """A truth value: a bool, or a number that is 0 or 1."""
    if type(value) is bool:
        return value
    if type(value) is np.bool_:
        return bool(value)
    number = single(value)
    if number is None or number not in (0, 1):
        raise Wrong(f"{name} as {shown(value)}, expected a bool (or 0 or 1)")
    return bool(number)


def reward_of(value):
    """A reward as a float that fits into float32; what is no number at all is for the other side to say."""
    if type(value) is float and -LARGEST_REWARD <= value <= LARGEST_REWARD:
        return value
    number = single(value)
    if number is None:
        raise Wrong(f"the reward as {shown(value)}, expected a number")
    if math.isfinite(number) and abs(number) > LARGEST_REWARD:
        raise Wrong(f"the reward {number:g}, expected a magnitude of at most {LARGEST_REWARD:.3g} (float32)")
    return float(number)
