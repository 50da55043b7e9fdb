"""The policy's action vector, `[dim]` float32, as an element of the environment's action space and of a batch of it.

Spaces are told apart by what they have, as gymnasium's do: `spaces` (Dict, Tuple), `nvec`, `low` and `high`, `n`.
"""

import numpy as np

from rrun_host import Refused


LONGEST_LOOP = 64  # numbers up to which a loop takes less than numpy's calls
LONGEST_TABLE = 1024  # elements of a `Discrete` that are looked up


class Part:
    """One leaf of the space, and where its numbers stand in the vector."""

    def __init__(self, name, space, begin):
        self.name, self.begin = name, begin
        kind = type(space).__name__
        if hasattr(space, "nvec"):
            self.shape, self.dtype = np.shape(space.nvec), space.dtype
            start = np.broadcast_to(getattr(space, "start", 0), self.shape)
            self.low, self.high, self.whole = start, start + np.asarray(space.nvec) - 1, True
        elif hasattr(space, "low"):
            self.shape, self.dtype = space.shape, space.dtype
            self.low, self.high, self.whole = space.low, space.high, np.issubdtype(space.dtype, np.integer)
        elif kind == "MultiBinary":
            self.shape, self.dtype = space.shape, space.dtype
            self.low, self.high, self.whole = np.zeros(self.shape), np.ones(self.shape), True
        elif hasattr(space, "n"):
            start = int(getattr(space, "start", 0))
            self.shape, self.dtype, self.whole = (), np.dtype(np.int64), True
            self.low, self.high = np.array(start), np.array(start + int(space.n) - 1)
        else:
            raise Refused(f"the action space has a {kind}, expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple")
        self.low = np.asarray(self.low, np.float64).reshape(-1)
        self.high = np.asarray(self.high, np.float64).reshape(-1)
        self.size = self.low.size

    def names(self):
        stem = self.name or "action"
        return [self.name] if self.name and self.size == 1 else [f"{stem}_{index}" for index in range(self.size)]

    def decode(self, vector):
        piece = vector[self.begin : self.begin + self.size].astype(self.dtype).reshape(self.shape)
        return piece[()] if self.shape == () else piece


def tree(space, name="", begin=0):
    """The space as nested dicts and tuples of parts, and the number of numbers so far."""
    inside = getattr(space, "spaces", None)
    if inside is None:
        part = Part(name, space, begin)
        return part, begin + part.size
    join = lambda key: f"{name}.{key}" if name else str(key)
    items = inside.items() if hasattr(inside, "items") else enumerate(inside)
    nodes = {}
    for key, child in items:
        nodes[key], begin = tree(child, join(key), begin)
    return (nodes if hasattr(inside, "items") else tuple(nodes.values())), begin


def parts(node):
    if isinstance(node, Part):
        return [node]
    inside = node.values() if isinstance(node, dict) else node
    return [part for child in inside for part in parts(child)]


def build(node, vector):
    if isinstance(node, Part):
        return node.decode(vector)
    if isinstance(node, dict):
        return {key: build(child, vector) for key, child in node.items()}
    return tuple(build(child, vector) for child in node)


class Action:
    """Names, the policy's range, and the way to the environment."""

    def __init__(self, space, mapping, clips=False):
        self.tree, self.size = tree(space)
        low = np.concatenate([part.low for part in parts(self.tree)])
        high = np.concatenate([part.high for part in parts(self.tree)])
        own = [name for part in parts(self.tree) for name in part.names()]
        self.names = mapping.get("names") or own
        if len(self.names) != self.size:
            raise Refused(f"mapping: action.names has {len(self.names)} names ({', '.join(self.names)}), the action space has {self.size} numbers ({', '.join(own)})")
        self.transforms(mapping.get("transforms") or {})
        self.whole = [(slice(part.begin, part.begin + part.size), part.low, part.high) for part in parts(self.tree) if part.whole]
        self.plain = self.is_unchanged and not self.whole
        # What the environment takes, whatever the policy's range is. On a grid, what is rounded to an end is within.
        half = np.concatenate([np.full(part.size, 0.5 if part.whole else 0.0) for part in parts(self.tree)])
        self.least, self.most = (low - half).astype(np.float32), (high + half).astype(np.float32)
        self.range = list(zip(self.least.tolist(), self.most.tolist()))
        self.clips_all = clips
        self.table = self.looked_up()
        # The policy's range is what the transforms take to the environment's.
        ends = np.sort(np.stack([(self.sign * end - self.offset) / self.scale for end in (low, high)]), axis=0)
        self.low = self.given(mapping, "low", ends[0])
        self.high = self.given(mapping, "high", ends[1])
        whole = np.concatenate([np.full(part.size, float(part.whole)) for part in parts(self.tree)])
        self.grid = whole / np.abs(self.scale)  # distance of neighbouring values; 0 where every number is one

    def looked_up(self):
        """The elements of a plain `Discrete` by their numbers; empty for any other space."""
        part = self.tree
        if not isinstance(part, Part) or part.shape != () or not part.whole or not self.is_unchanged:
            return {}
        low, high = int(part.low[0]), int(part.high[0])
        return {float(number): part.dtype.type(number) for number in range(low, high + 1)} if high - low < LONGEST_TABLE else {}

    def given(self, mapping, field, default):
        values = mapping.get(field)
        if values is None:
            return default
        if len(values) != self.size:
            raise Refused(f"mapping: action.{field} has {len(values)} numbers, the action space has {self.size} ({', '.join(self.names)})")
        return np.array(values, np.float64)

    def transforms(self, asked):
        unknown = [name for name in asked if name not in self.names]
        if unknown:
            raise Refused(f"mapping: action.transforms names {', '.join(unknown)}, the action has {', '.join(self.names)}")
        of = lambda field, default: np.array([asked.get(name, {}).get(field, default) for name in self.names], np.float64)
        self.scale, self.offset = of("scale", 1.0), of("offset", 0.0)
        self.sign = np.array([-1.0 if asked.get(name, {}).get("invert") else 1.0 for name in self.names])
        self.clips = [(self.names.index(name), *entry["clip"]) for name, entry in asked.items() if entry.get("clip")]
        self.steps = [
            (self.names.index(name), *((0.0, -1.0) if entry["binarize"] is True else (entry["binarize"], 0.0)))
            for name, entry in asked.items()
            if entry.get("binarize") is not None and entry["binarize"] is not False
        ]
        self.is_unchanged = not asked

    def decode(self, vector):
        """An element of the action space out of `[dim]` float32, in which the numbers of that element then stand, and
        whether one of them was beyond its range.

        A number of a space of whole ones becomes the nearest of them. The others are brought into their range only by
        `clip_actions`.
        """
        if self.table:
            element = self.table.get(vector[0].item())
            if element is not None:
                vector[0] = element  # 0 for -0
                return element, False
        if not self.plain:
            made = (vector * self.scale + self.offset) * self.sign
            for index, threshold, below in self.steps:
                made[index] = 1.0 if made[index] > threshold else below
            for index, low, high in self.clips:
                made[index] = min(max(made[index], low), high)
            vector[...] = made  # float32: the environment gets what the dataset has
        outside = self.is_outside(vector)
        if outside and self.clips_all:
            np.clip(vector, self.least, self.most, out=vector)
        for span, low, high in self.whole:
            vector[span] = np.clip(np.rint(vector[span]), low, high)
        return build(self.tree, vector), outside

    def is_outside(self, vector):
        if self.size > LONGEST_LOOP:
            return bool((vector < self.least).any() or (vector > self.most).any())
        return any(not least <= number <= most for number, (least, most) in zip(vector.tolist(), self.range))

    def middle(self):
        """An action that is in the space: the middle of its range, or the finite end next to 0."""
        low = np.where(np.isfinite(self.low), self.low, np.minimum(0.0, np.where(np.isfinite(self.high), self.high, 0.0)))
        high = np.where(np.isfinite(self.high), self.high, np.maximum(0.0, low))
        return ((low + high) / 2).astype(np.float32)


def stack(actions):
    """Actions of all copies as an element of the batched space."""
    first = actions[0]
    if isinstance(first, dict):
        return {key: stack([action[key] for action in actions]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack([action[index] for action in actions]) for index in range(len(first)))
    return np.stack(actions)
