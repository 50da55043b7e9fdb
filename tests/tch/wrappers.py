"""Reads the C wrappers of the locked torch-sys, and the functions of the locked tch around them."""

import json
import re
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def package(name):
    """The folder and the version of a crate of Cargo.lock."""
    host = re.search(r"host: (\S+)", output("rustc", "-vV"))[1]
    options = ["--locked", "--format-version", "1", "--filter-platform", host]
    for found in json.loads(output("cargo", "metadata", *options))["packages"]:
        if found["name"] == name:
            return Path(found["manifest_path"]).parent, found["version"]
    raise LookupError(f"Cargo.lock has no crate `{name}`")


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


@dataclass(frozen=True)
class Param:
    type: str
    name: str
    default: str = ""


@dataclass
class Rust:
    """How Rust declares a wrapper and calls it: `name` calls `f_name`, which calls `atg_…`."""

    declared: list = field(default_factory=list)  # of `Param`
    returns: str = ""
    name: str = ""
    params: list = field(default_factory=list)  # names, those of `f_name`
    args: list = field(default_factory=list)  # of the call of `atg_…`
    outputs: int = 0
    plain_params: list = field(default_factory=list)  # names, those of `name`
    plain_args: list = field(default_factory=list)  # of the call of `f_name`


@dataclass
class Wrapper:
    """A function of torch_api_generated.cpp, and what tch makes of it. Names are without `atg_`."""

    name: str
    returns: str
    params: list  # of `Param`, those of the C function
    line: int  # of the C++ call
    callee: str  # `torch::add` or `self->add_`
    args: list  # of the C++ call, as they are written
    outputs: int  # tensors that it writes into `out__`
    rust: Rust = field(default_factory=Rust)

    @property
    def call(self):
        return f"{self.callee}({', '.join(self.args)})"


def split(text):
    """The parts between those commas that stand in no bracket."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "({<") - (char in ")}>" and text[at - 1] not in "-=")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [part for part in [*parts, text[start:].strip()] if part]


def enclosed(text, start):
    """What stands between the bracket at `start` and the one that closes it."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return text[start + 1 : at]
    raise ValueError(f"this bracket is never closed: {text[start : start + 80]}")


@cache
def wrappers():
    """Every wrapper by its name."""
    sys, tch = package("torch-sys")[0], package("tch")[0]
    found = read_cpp((sys / "libtch/torch_api_generated.cpp").read_text())
    read_declarations((sys / "src/c_generated.rs").read_text(), found)
    fallible = (tch / "src/wrappers/tensor_fallible_generated.rs").read_text()
    plain = (tch / "src/wrappers/tensor_generated.rs").read_text()
    read_plain(plain, read_callers(fallible, found))
    return found


WRAPPER = r"^(\w[\w *]*?) ?atg_(\w+)\(([^\n]*)\) \{\n(.*?)^\}"
CALL = r"^    (?:auto outputs__ = |return )?((?:torch::|self->)\w+)\("


def read_cpp(text):
    found = {}
    for match in re.finditer(WRAPPER, text, re.S | re.M):
        returns, name, params, body = match.groups()
        call = re.search(CALL, body, re.M)
        found[name] = Wrapper(
            name,
            returns,
            params=[Param(*re.match(r"(.*?) ?(\w+)$", param).groups()) for param in split(params)],
            line=text.count("\n", 0, match.start(4) + call.start()) + 1,
            callee=call[1],
            args=split_call(enclosed(body, call.end() - 1)),
            outputs=len(re.findall(r"^    out__\[\d+\] = ", body, re.M)),
        )
    return found


def split_call(args):
    """`split`, but a `<` between spaces compares and opens no bracket."""
    return [arg.replace(" less ", " < ") for arg in split(args.replace(" < ", " less "))]


def read_declarations(text, found):
    for match in re.finditer(r"pub fn atg_(\w+)\((.*?)\)(?: -> ([^;]*))?;", text, re.S):
        pairs = [param.split(": ") for param in split(match[2])]
        found[match[1]].rust = Rust([Param(type, name) for name, type in pairs], match[3] or "")


def rust_functions(text):
    """The name of each, the names of its parameters without `self`, and its text."""
    for match in re.finditer(r"^    pub fn (\w+)(.*?)^    \}$", text, re.S | re.M):
        start = match[2].index("(", generics_end(match[2]))
        params = split(enclosed(match[2], start))
        yield match[1], [p.split(":")[0] for p in params if not p.endswith("self")], match[2]


def generics_end(text):
    return text.index(">(") if text.startswith("<") else 0


def read_callers(text, found):
    by_rust_name = {}
    for name, params, body in rust_functions(text):
        call = re.search(r"\batg_(\w+)\(", body)
        rust = found[call[1]].rust
        rust.name = name.removeprefix("f_")
        rust.params = params
        rust.args = split(enclosed(body, call.end() - 1))
        slots = re.search(r"c_tensors = \[std::ptr::null_mut\(\); (\d+)\]", body)
        rust.outputs = int(slots[1]) if slots else 0
        by_rust_name[rust.name] = rust
    return by_rust_name


def read_plain(text, by_rust_name):
    for name, params, body in rust_functions(text):
        call = re.search(r"\bf_(\w+)\(", body)
        rust = by_rust_name[call[1]]
        if name in (rust.name, "g_" + rust.name):
            rust.plain_params = params
            rust.plain_args = split(enclosed(body, call.end() - 1))
