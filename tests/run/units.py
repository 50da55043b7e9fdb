"""Checks that no cargo command compiles a package again that another one has compiled: a part of
`make check`. A package is compiled for each set of features that it is asked for, and its users
with it; which members are selected, and whether their tests are, changes what is asked for.

Compared are the commands of `make`, of `tests/run`, and `cargo test --package` of each member.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import build
import parts as of

# What `make test` builds, and all others should.
WHOLE = ["cargo", "test", *build.CARGO, "--workspace", "--no-run"]


@dataclass(frozen=True)
class Unit:
    """What one call of rustc compiles. `users` do not count, `depends` does."""

    package: str
    target: str
    profile: str
    features: frozenset[str]
    depends: int

    @property
    def place(self) -> tuple[str, str, str]:
        return self.package, self.target, self.profile


def commands() -> list[list[str]]:
    """All commands, without those that have a profile of their own."""
    text = (of.ROOT / "Makefile").read_text()
    found = [line.split(" -- ")[0].replace("'", "").split()
             for line in re.findall(r"^\t@?\$\(CARGO\) ((?:build|test) .*)$", text, re.M)]
    found = [["cargo", *words] for words in found if "--profile" not in words]
    # As CONTRIBUTING.md and benches/programs.py have it.
    found.append(["cargo", "test", "--release", "-p", "tests", "--test", "outside"])
    found.append(["cargo", "build", *build.CARGO, "--workspace", "--bench", "measure"])
    parts = of.all_parts()
    found += [*build.programs(parts), *build.tests(parts)]
    found += [command for part in parts for command in build.tests([part])]
    return [list(words) for words in sorted({tuple(it) for it in found})]


def units(command: list[str]) -> set[Unit]:
    """Libraries that the command compiles, those with their tests and procedural macros, too."""
    env = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
    words = [it for it in command if not it.startswith("--message-format")]
    done = subprocess.run([*words, "-Zunstable-options", "--unit-graph"], cwd=of.ROOT, env=env,
                          text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    graph = json.loads(done.stdout)["units"]
    known: dict[int, Unit] = {}

    def unit(index: int) -> Unit:
        if index not in known:
            it = graph[index]
            depends = frozenset(unit(other["index"]) for other in it["dependencies"])
            kind = "/".join([*it["target"]["kind"], it["mode"]])
            known[index] = Unit(name(it["pkg_id"]), f"{it['target']['name']} {kind}",
                                json.dumps(it["profile"], sort_keys=True),
                                frozenset(it["features"]), hash(depends))
        return known[index]

    libraries = [index for index, it in enumerate(graph)
                 if {"lib", "proc-macro", "custom-build"} & set(it["target"]["kind"])]
    return {unit(index) for index in libraries}


def name(package_id: str) -> str:
    """`syn 3.0.9`, of an identifier of cargo's."""
    version = package_id.partition("#")[2].rpartition("@")[2]
    return f"{build.package_name(package_id)} {version}"


def differences(command: list[str], whole: set[Unit], found: set[Unit]) -> list[str]:
    """Lines that say what the command would compile again; none if it is nothing."""
    others = found - whole
    by_place: dict[tuple, list[Unit]] = {}
    for unit in whole:
        by_place.setdefault(unit.place, []).append(unit)
    lines = []
    for unit in sorted(others, key=lambda it: it.place):
        has = by_place.get(unit.place, [])
        if "build" in unit.target and all(it.features != unit.features for it in has):
            wanted = [", ".join(sorted(it.features ^ unit.features)) for it in has]
            lines.append(f"    {unit.package}: {' or '.join(wanted) or 'only here'}")
    if others:
        again = len({unit.package for unit in others})
        lines.insert(0, f"`{' '.join(command)}` compiles {again} packages again, because these "
                        "have other features:")
    return list(dict.fromkeys(lines))


def main() -> None:
    known = commands()
    with ThreadPoolExecutor(of.CPUS) as pool:
        whole, *found = pool.map(units, [WHOLE, *known])
    lines = [line for command, it in zip(known, found)
             for line in differences(command, whole, it)]
    if lines:
        print(*lines, "Add these features to tests/rig/Cargo.toml.", sep="\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
