"""Reads the C++ functions of the installed libtorch."""

import re
from dataclasses import dataclass, replace
from functools import cache

from wrappers import ROOT, Param, split

INCLUDE = ROOT / ".deps/libtorch/include"
FACTORIES = INCLUDE / "torch/csrc/autograd/generated/variable_factories.h"
PARAM = re.compile(r"(.*?[ &>])(\w+)(?: ?= ?(.*))?$")
FUNCTION = re.compile(
    r"^inline (?P<returns>[^\n]*?) ?\b(?P<name>(?:Tensor::)?\w+)"
    r"\((?P<params>[^\n]*)\) (?:const )?\{\n(?P<body>.*?)^\}",
    re.S | re.M,
)
METHOD = re.compile(r"^  (?:const )?(\w[^\n(*]*?)[ &]+(\w+)\(([^\n]*)\) const(?:;| \{)$", re.M)


@dataclass(frozen=True)
class Function:
    name: str  # `torch::add` or `self->add_`, as a wrapper calls it
    returns: str
    params: tuple
    operator: str  # `add__Tensor`; empty where the header calls no operator

    def __str__(self):
        shown = [f"{p.type} {p.name}" + (f"={p.default}" if p.default else "") for p in self.params]
        return f"{self.name}({', '.join(shown)})"


@cache
def functions():
    """Every function and method that a wrapper may call: its overloads by its name."""
    found = {}
    listed = (INCLUDE / "ATen/Functions.h").read_text()
    for header in re.findall(r"#include <(ATen/ops/\w+\.h)>", listed):
        collect((INCLUDE / header).read_text(), found)
    collect(listed, found)
    # What `torch::` declares itself hides the functions of that name that it has from `at::`.
    hiding = {}
    collect(FACTORIES.read_text(), hiding)
    for name, overloads in hiding.items():
        hidden = {types(f.params): f.operator for f in found.get(name, [])}
        hiding[name] = [replace(f, operator=hidden.get(types(f.params), "")) for f in overloads]
    found |= hiding
    # Likewise for a class and its base.
    collect_methods((INCLUDE / "ATen/core/TensorBase.h").read_text(), found)
    hiding = {}
    collect_methods((INCLUDE / "ATen/core/TensorBody.h").read_text(), hiding)
    return found | hiding


def collect(text, found):
    for match in FUNCTION.finditer(text):
        name = "torch::" + match["name"]
        function = Function(
            name, bare(match["returns"]), params(match["params"]), operator_of(match["body"])
        )
        found.setdefault(name, []).append(function)


def collect_methods(text, found):
    """The class has the defaults, the definitions below it name the operators."""
    operators = {
        (match["name"], types(params(match["params"]))): operator_of(match["body"])
        for match in FUNCTION.finditer(text)
    }
    for returns, name, listed in METHOD.findall(text):
        taken = params(listed)
        operator = operators.get(("Tensor::" + name, types(taken)), "")
        method = Function("self->" + name, bare(returns), taken, operator)
        found.setdefault(method.name, []).append(method)


def operator_of(body):
    called = re.search(r"at::_ops::(\w+)::call\(", body)
    return called[1] if called else ""


def params(text):
    found = []
    for part in split(text):
        match = PARAM.match(part)
        # Without a name it is for no caller: a type that no argument has.
        found.append(Param(bare(match[1]), match[2], match[3] or "") if match else Param(part, ""))
    return tuple(found)


def types(listed):
    return tuple(param.type for param in listed)


def bare(type):
    """A type without what does not matter to a call: namespaces, `const` and `&`."""
    return re.sub(r"\b(const|at|std|c10)\b(::)? ?|::|&| $", "", type).strip()
