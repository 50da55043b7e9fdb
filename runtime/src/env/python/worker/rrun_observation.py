"""Looking into an observation: its entries by name, and what they look like.

Keys `a.b.c` go into nested dicts; an observation that is one array is called `observation`.
"""

import difflib
from collections.abc import Mapping

import numpy as np

from rrun_host import Refused, Wrong

BARE = "observation"
NUMBERS = "fiub"  # kinds of numpy's types that are cast


def children(node):
    """What is inside a dict or tuple, by name; None for a leaf."""
    if isinstance(node, Mapping):
        return {str(key): (key, value) for key, value in node.items()}
    if isinstance(node, tuple):
        return {str(index): (index, value) for index, value in enumerate(node)}
    return None


def find(node, text):
    """The way to the entry called `text`, as keys; None if there is none. Keys may have dots themselves."""
    inside = children(node)
    if inside is None:
        return None
    if text in inside and children(inside[text][1]) is None:
        return (inside[text][0],)
    for cut in (index for index, letter in enumerate(text) if letter == "."):
        if text[:cut] in inside:
            key, value = inside[text[:cut]]
            rest = find(value, text[cut + 1 :])
            if rest is not None:
                return (key, *rest)
    return None


def leaves(node, name="", path=()):
    """All entries as (name, path, value)."""
    inside = children(node)
    if inside is None:
        return [(name or BARE, path, node)]
    join = lambda key: f"{name}.{key}" if name else key
    return [leaf for text, (key, value) in inside.items() for leaf in leaves(value, join(text), (*path, key))]


def array(value):
    """A value as a numpy array, from wherever it is."""
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray and np.ma.is_masked(value):
            raise Wrong("masked numbers")
        return np.asarray(value)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def fetch(node, path, row):
    """The entry at `path`; `row` is the copy in a batch, None without one."""
    for key in path:
        node = node[key]
    if row is not None:
        node = node[row]
    if type(node) is np.ndarray:
        return node
    try:
        return array(node)
    except Wrong as wrong:
        raise Wrong(f"{wrong} in `{'.'.join(map(str, path)) or BARE}`") from None


def looks(value):
    """`uint8 [96, 96, 3]`."""
    value = array(value)
    kind = "text" if value.dtype.kind in "SU" else str(value.dtype)
    if value.dtype.kind == "O":
        kinds = {"text" if isinstance(item, (str, bytes)) else type(item).__name__ for item in value.flat}
        kind = " and ".join(sorted(kinds)) or kind
    return f"{kind} {list(value.shape)}"


class Scene:
    """The first observation, and how to refuse with both sides."""

    def __init__(self, observation, row, mapping, space):
        self.observation, self.row, self.mapping, self.space = observation, row, mapping, space

    def path(self, what, text):
        if children(self.observation) is None:
            path = () if text == BARE else None
        else:
            path = find(self.observation, text)
        if path is None:
            near = difflib.get_close_matches(text, [name for name, _, _ in self.leaves()], 1, 0.5)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            raise self.refused(f"{what} asks for `{text}`, which does not exist{hint}")
        if self.varies(path):
            raise self.refused(f"{what} asks for `{text}`, which is in a Sequence: its number of elements changes")
        return path

    def get(self, path):
        return fetch(self.observation, path, self.row)

    def leaves(self):
        return [(name, path, self.get(path)) for name, path, _ in leaves(self.observation)]

    def refused(self, reason):
        shows = ", ".join(f"`{name}` {looks(value)}" for name, _, value in self.leaves())
        return Refused(f"mapping: {reason}; the mapping asks for {self.asks()}; the environment shows {shows}")

    def asks(self):
        asked = []
        for section in ("video", "state"):
            for name, entry in (self.mapping.get(section) or {}).items():
                source = entry.get("from", "render()") if isinstance(entry, dict) else entry
                sources = source if isinstance(source, list) else [source]
                asked.append(f"{section}.{name} <- " + " + ".join(f"`{text}`" for text in sources))
        return ", ".join(asked) or "what is there"

    def varies(self, path):
        """Whether an entry is an element of a `Sequence`, which may have another number of them each time."""
        return any(hasattr(space, "feature_space") for space in self.spaces(path)[: len(path)])

    def spaces(self, path):
        """The spaces on the way to an entry, its own at last; fewer if they are not declared."""
        found = [self.space]
        for key in path:
            inside = getattr(found[-1], "feature_space", None)
            try:
                found.append(found[-1].spaces[key] if inside is None else inside)
            except (AttributeError, TypeError, KeyError, IndexError):
                break
        return found

    def declared(self, path):
        """The shape that the observation space gives for an entry; None if it gives none."""
        spaces = self.spaces(path)
        return getattr(spaces[-1], "shape", None) if len(spaces) > len(path) else None

    def agree(self, what, path, value):
        declared = self.declared(path)
        if declared is not None and tuple(declared) != value.shape:
            raise self.refused(f"{what}: the observation space says {list(declared)}, the first observation is {looks(value)}")
