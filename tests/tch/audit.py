"""Compares every C++ call of torch-sys with the function of libtorch that it reaches.

The C wrappers of torch-sys are generated, and pass their arguments by position. Where a wrapper
leaves out a parameter in the middle, because it has a default, those behind it shift by one, and
C++ converts a `bool` to a `Scalar` without a word. Here each call is resolved as C++ resolves it,
and each argument is compared with the parameter that receives it, by name and by type. So are the
two steps before: the Rust function that calls the wrapper, and the Rust declaration of it.

    python tests/tch/audit.py            what is wrong, and what of it this project calls
    python tests/tch/audit.py NAME ...   how these wrappers were understood
"""

import sys
from dataclasses import dataclass, field

import cpp_calls
import rust_calls
from calls import called
from wrappers import package, wrappers


@dataclass
class Verdict:
    """What the audit makes of a wrapper."""

    reached: object = None  # the `Function` of libtorch
    wrong: list = field(default_factory=list)  # reasons
    unclear: list = field(default_factory=list)  # what the audit does not understand


def audit(wrapper):
    verdict = Verdict()
    cpp_calls.compare(wrapper, verdict)
    rust_calls.compare(wrapper, verdict)
    return verdict


def audit_all():
    return {name: audit(wrapper) for name, wrapper in wrappers().items()}


def defaulted(wrapper, verdict):
    """The parameters of libtorch that the wrapper has no argument for."""
    return verdict.reached.params[len(wrapper.args) :] if verdict.reached else ()


def main(names):
    if names:
        for name in names:
            explain(wrappers()[name])
        return
    verdicts = audit_all()
    direct, within = called()
    understood = sum(not verdict.unclear for verdict in verdicts.values())
    print(f"torch-sys {package('torch-sys')[1]}: {len(verdicts)} wrappers, {understood} understood")
    print(f"This project calls {len(direct)} of them, and {len(within)} more through tch.")
    for name, verdict in verdicts.items():
        for reason in verdict.wrong + verdict.unclear:
            mark = " (called)" if name in direct | within else ""
            print(f"line {wrappers()[name].line}: {name}{mark}: {reason}")
    print("Called, with these parameters left at their defaults:")
    for name in sorted(direct):
        left = defaulted(wrappers()[name], verdicts[name])
        if left:
            print(f"  {name}: {', '.join(f'{p.type} {p.name}={p.default}' for p in left)}")


def explain(wrapper):
    verdict = audit(wrapper)
    print(f"{wrapper.name}, line {wrapper.line} of torch_api_generated.cpp")
    print(f"  calls    {wrapper.call}")
    print(f"  reaches  {verdict.reached or 'no function that the audit knows'}")
    for reason in verdict.wrong + verdict.unclear:
        print(f"  wrong    {reason}" if reason in verdict.wrong else f"  unclear  {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
