"""Observations in the policy's names: cameras, state vectors, language.

A mapping is resolved once, against the first real observation; what does not fit is refused with both sides listed.
Afterwards every observation must look as the first one did.
"""

import numpy as np

from rrun_host import Wrong
from rrun_observation import NUMBERS, fetch, find, looks

BYTE = np.dtype(np.uint8)
LARGEST_STATE = 4096  # numbers in an entry that a default mapping still takes for a state vector

# --- cameras ------------------------------------------------------------------------------------------------------------


class Camera:
    """One picture, `[height, width, 3]` uint8 RGB."""

    def __init__(self, name, path, entry, picture, refused):
        self.name, self.path, self.shape = name, path, picture.shape
        self.first_channel = entry.get("layout", "hwc") == "chw"
        flips = entry.get("flip") or []
        flips = [flips] if isinstance(flips, str) else flips
        self.rows = slice(None, None, -1) if "vertical" in flips else slice(None)
        self.columns = slice(None, None, -1) if "horizontal" in flips else slice(None)
        steps = entry.get("convert") or []
        self.steps = [steps] if isinstance(steps, str) else steps
        self.low, self.high = entry.get("range") or (0.0, 1.0)
        self.turned = bool(flips) or self.first_channel or bool(self.steps)
        self.kind = picture.dtype
        made = self.converted(picture) if picture.dtype.kind in NUMBERS else picture
        if made.dtype != np.uint8 or made.ndim != 3 or made.shape[2] != (1 if "gray" in self.steps else 3):
            order = "[3, height, width]" if self.first_channel else "[height, width, 3]"
            by = f" (after {', '.join(self.steps)}: {looks(made)})" if self.steps else ""
            raise refused(f"video.{name} needs a picture, uint8 {order}, found {looks(picture)}{by}{self.hint(picture)}")
        self.height, self.width = made.shape[:2]

    def hint(self, picture):
        """What `convert` would help."""
        if picture.ndim not in (2, 3):
            return ""
        channels = 1 if picture.ndim == 2 else picture.shape[0 if self.first_channel else 2]
        wanted = ["scale"] if picture.dtype != np.uint8 and picture.dtype.kind in NUMBERS else []
        wanted += {1: ["gray"], 4: ["drop_alpha"]}.get(channels, [])
        return f"; `convert: [{', '.join(wanted)}]` would do" if wanted and wanted != self.steps else ""

    def converted(self, picture):
        """`[height, width, 3]` uint8, or 1 channel of gray, out of what the environment has."""
        if self.first_channel and picture.ndim == 3:
            picture = picture.transpose(1, 2, 0)
        if "scale" in self.steps:
            # What is infinite is at an end of the range.
            scaled = (picture.astype(np.float32) - self.low) * (255.0 / (self.high - self.low))
            if np.isnan(scaled).any():
                raise Wrong(f"the picture of camera {self.name} with NaN, expected numbers")
            picture = np.rint(np.clip(scaled, 0.0, 255.0)).astype(np.uint8)
        if "drop_alpha" in self.steps and picture.ndim == 3 and picture.shape[2] == 4:
            picture = picture[:, :, :3]
        if "gray" in self.steps and picture.ndim == 2:
            picture = picture[:, :, None]
        return picture

    def write(self, picture, view):
        if picture.shape != self.shape or not (picture.dtype == self.kind or picture.dtype.kind == self.kind.kind == "f"):
            raise Wrong(f"the picture of camera {self.name} as {looks(picture)}, at first it was {self.kind} {list(self.shape)}")
        if self.turned:
            picture = self.converted(picture)[self.rows, self.columns]
        view[...] = picture


def cameras(scene, render):
    asked = scene.mapping.get("video")
    if asked is None:
        asked = {
            name: {"path": path}
            for name, path, value in scene.leaves()
            if value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3 and not scene.varies(path)
        }
        if not asked and render.offered:
            asked = {"render": {"render": True}}
    found = []
    for name, entry in asked.items():
        entry = entry if isinstance(entry, dict) else {"from": entry}
        if entry.get("render"):
            path, picture = None, render.picture(scene, name)
        else:
            path = entry.get("path") or scene.path(f"video.{name}", entry["from"]) if "from" in entry else entry["path"]
            picture = scene.get(path)
            scene.agree(f"video.{name}", path, picture)
        found.append(Camera(name, path, entry, picture, scene.refused))
    return found


# --- state vectors ------------------------------------------------------------------------------------------------------


def quat_to_axis_angle(xyzw):
    """Rotation vector `[3]`, rad: axis times angle, as robosuite's `quat2axisangle` (the angle is 0 to 2 pi)."""
    w = float(np.clip(xyzw[3], -1.0, 1.0))
    length = np.sqrt(1.0 - w * w)
    return np.zeros(3) if np.isclose(length, 0.0) else xyzw[:3] * (2.0 * np.arccos(w) / length)


def quat_to_rpy(xyzw):
    """Roll, pitch, yaw `[3]`, rad: rotations about the fixed x, y and z axes, in this order."""
    x, y, z, w = xyzw / np.linalg.norm(xyzw)
    roll = np.arctan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2.0 * (w * y - z * x), -1.0, 1.0))
    yaw = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    return np.array([roll, pitch, yaw])


CONVERSIONS = {"quat_to_axis_angle": quat_to_axis_angle, "quat_to_rpy": quat_to_rpy}


class State:
    """One vector of numbers, flattened."""

    def __init__(self, name, entry, scene):
        self.name = name
        sources = entry.get("from", name)
        sources = sources if isinstance(sources, list) else [sources]
        what = f"state.{name}"
        self.paths = [entry["path"]] if "path" in entry else [scene.path(what, text) for text in sources]
        values = [scene.get(path) for path in self.paths]
        for path, value in zip(self.paths, values):
            if value.dtype.kind not in NUMBERS:
                raise scene.refused(f"{what} needs numbers, found {looks(value)}")
            scene.agree(what, path, value)
        self.looks = [(value.shape, value.dtype) for value in values]
        self.convert = CONVERSIONS.get(entry.get("convert"))
        self.scalar_first = entry.get("order", "xyzw") == "wxyz"
        self.index = chosen(entry.get("index"))
        self.scale, self.offset = entry.get("scale"), entry.get("offset")
        self.plain = not (self.convert or entry.get("index") is not None or len(values) > 1 or "scale" in entry or "offset" in entry)
        joined = np.concatenate([value.reshape(-1) for value in values])
        if self.convert and joined.size != 4:
            raise scene.refused(f"{what}: {entry['convert']} needs a quaternion of 4 numbers, found {joined.size}")
        try:
            self.size = self.vector(values).size
        except IndexError as error:
            raise scene.refused(f"{what}: index {entry.get('index')!r}: {error}") from None
        if self.size == 0:
            raise scene.refused(f"{what}: nothing is left of {' + '.join(map(looks, values))}")

    def vector(self, values):
        vector = np.concatenate([value.reshape(-1) for value in values]).astype(np.float64)
        if self.convert:
            vector = self.convert(np.roll(vector, -1) if self.scalar_first else vector)
        vector = np.atleast_1d(vector[self.index])
        vector = vector if self.scale is None else vector * self.scale
        return vector if self.offset is None else vector + self.offset

    def write(self, observation, row, view):
        if self.plain:
            view[...] = self.checked(fetch(observation, self.paths[0], row), self.looks[0]).reshape(-1)
            return
        values = [self.checked(fetch(observation, path, row), look) for path, look in zip(self.paths, self.looks)]
        view[...] = self.vector(values)

    def checked(self, value, look):
        shape, dtype = look
        # Numbers of another type are as good: all become float32.
        if value.shape != shape or value.dtype.kind not in NUMBERS:
            raise Wrong(f"state {self.name} as {looks(value)}, at first it was {dtype} {list(shape)}")
        return value


def chosen(index):
    """`3`, `[0, 2]` or `"0:3"` as numpy takes it."""
    if isinstance(index, str):
        return slice(*(int(part) if part.strip() else None for part in index.split(":")))
    return slice(None) if index is None else index


def states(scene, pictures, left_out):
    """The job's state vectors, or all that is there; `pictures` are the entries that cameras show."""
    asked = scene.mapping.get("state")
    if asked is not None:
        entries = {name: entry if isinstance(entry, dict) else {"from": entry} for name, entry in asked.items()}
        return [State(name, entry, scene) for name, entry in entries.items()]
    found = []
    for name, path, value in scene.leaves():
        if path in pictures:
            continue
        if scene.varies(path):
            left_out.append(f"`{name}` {looks(value)} is left out: it is in a Sequence, whose number of elements changes")
            continue
        is_picture = value.dtype == np.uint8 and value.ndim == 3
        if value.dtype.kind in NUMBERS and 0 < value.size <= LARGEST_STATE and not is_picture:
            found.append(State(name, {"path": path}, scene))
        elif value.dtype.kind in NUMBERS and not (is_picture and value.shape[2] == 3):
            left_out.append(f"`{name}` {looks(value)} is left out: neither a picture nor a short vector")
    return found


# --- words --------------------------------------------------------------------------------------------------------------


def words(value):
    """A text as a str, out of bytes or an array of one text too."""
    value = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    return value.decode() if isinstance(value, bytes) else str(value)


def language(scene):
    """A function (observation, row, info, attribute) -> text; `attribute` reads one of the environment."""
    asked = scene.mapping.get("language")
    if isinstance(asked, str):
        return lambda observation, row, info, attribute: asked
    if asked is None:
        texts = [path for _, path, value in scene.leaves() if value.dtype.kind in "SU" and value.size == 1 and not scene.varies(path)]
        if not texts:
            return lambda observation, row, info, attribute: ""
        asked, path = {"from": None}, texts[0]
    elif "from" in asked:
        path = scene.path("language", asked["from"])
    if "from" in asked:
        return lambda observation, row, info, attribute: words(fetch(observation, path, row))
    if "attr" in asked:
        return lambda observation, row, info, attribute: words(attribute(asked["attr"]))
    key = asked["info"]

    def from_info(observation, row, info, attribute):
        path = find(info, key)
        if path is None:
            raise Wrong(f"an info without `{key}`, the mapping's language: it has {', '.join(map(str, info)) or 'nothing'}")
        for step in path:
            info = info[step]
        return words(info)

    return from_info
