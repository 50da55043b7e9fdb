"""Finds the wrappers that this project may call, by the names of the Rust functions.

There are no types here, so a method of anything counts as a method of `Tensor`: this finds a few
wrappers too many, and none too few.
"""

import re

from wrappers import ROOT, package, wrappers

FOLDERS = ("runtime", "tests", "benches")
# `x.f_add(…)`, `x.sum::<…>(…)`, `Tensor::cat`, and `Tensor::relu` as a value.
CALL = re.compile(r"(?:\.|::)\s*([a-z_]\w*)\s*(?:\(|::<)|\bTensor::([a-z_]\w*)")
COMMENT = re.compile(r"^\s*//.*$", re.M)


def called():
    """The wrappers that the project calls itself, and those that tch calls for it."""
    ours = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.rs"):
            ours |= names(path.read_text())
    direct = {wrapper.name for wrapper in wrappers().values() if wrapper.rust.name in ours}
    return direct, inside_tch() - direct


def inside_tch():
    """What the handwritten part of tch calls. Its operators come from macros: every word counts."""
    words = set()
    for path in (package("tch")[0] / "src").rglob("*.rs"):
        if not path.stem.endswith("_generated"):
            code = COMMENT.sub("", path.read_text())
            words |= {stem(word) for word in re.findall(r"\w+", code)}
    return {wrapper.name for wrapper in wrappers().values() if wrapper.rust.name in words}


def names(text):
    """The functions that a Rust source may call."""
    found = CALL.findall(COMMENT.sub("", text))
    return {stem(method or function) for method, function in found}


def stem(name):
    """A name without what tch adds: `f_` where it returns a `Result`, `g_` beside an operator."""
    return re.sub(r"^(f_|g_)", "", name)

