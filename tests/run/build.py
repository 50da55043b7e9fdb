"""One build of everything that the parts need."""

import json
import pathlib
import re
import subprocess

import parts as of
from parts import ROOT, Part

CARGO = ["--release", "--locked"]


class Built:
    """Test programs by package and name; `lib` names the tests inside of a library."""

    def __init__(self):
        self.programs: dict[tuple[str, str], Program] = {}

    def find(self, target: tuple[str, str]) -> "Program":
        if target not in self.programs:
            raise LookupError(f"cargo has built no tests of {' '.join(target)}")
        return self.programs[target]

    def add(self, line: str) -> None:
        """Takes a line of cargo's JSON."""
        message = json.loads(line) if line.startswith("{") else {}
        if not message.get("executable") or not message["profile"]["test"]:
            return
        folder = pathlib.Path(message["manifest_path"]).parent
        package = package_name(message["package_id"])
        target = message["target"]
        name = "lib" if "lib" in target["kind"] else target["name"]
        self.programs[package, name] = Program(pathlib.Path(message["executable"]), folder)


class Program:
    """A test program, and the folder in which cargo would run it."""

    def __init__(self, path: pathlib.Path, folder: pathlib.Path):
        self.path, self.folder = path, folder

    def tests(self, module: str) -> list[str]:
        """The names of its tests; only those of one module, if it is named."""
        words = [self.path, "--list", "--format", "terse"]
        out = subprocess.run(words, cwd=self.folder, check=True, text=True,
                             stdout=subprocess.PIPE).stdout
        names = re.findall(r"^(.*): test$", out, re.M)
        return [name for name in names if not module or name.startswith(f"{module}::")]


def package_name(package_id: str) -> str:
    """`path+file:///work/jobs/fit#0.1.0` or `…#fit@0.1.0`: the folder has the name otherwise."""
    place, _, version = package_id.partition("#")
    return version.split("@")[0] if "@" in version else place.rsplit("/", 1)[-1]


def programs(chosen: list[Part]) -> list[list[str]]:
    """The command for `rrun` and `rrun-rank`, if a part starts them."""
    if any(part.needs_programs for part in chosen):
        return [["cargo", "build", *CARGO, "--workspace"]]
    return []


def tests(chosen: list[Part]) -> list[list[str]]:
    """The commands for the test programs. All that builds them selects the whole workspace, or
    packages whose dependencies have the same features then, see units.py."""
    targets = {part.target for part in chosen if part.target}
    libs = sorted(package for package, name in targets if name == "lib")
    others = [f"--test={name}" for _, name in sorted(targets) if name != "lib"]
    words = ["cargo", "test", *CARGO, "--no-run", "--message-format=json-render-diagnostics"]
    if libs == sorted(of.crates()):
        return [[*words, "--workspace", "--lib", *others]]
    commands = [[*words, *(f"--package={it}" for it in libs), "--lib"]] if libs else []
    return commands + ([[*words, "--workspace", *others]] if others else [])


def run(commands: list[list[str]], built: Built) -> bool:
    """Runs cargo, whose progress goes to the terminal; false if it fails."""
    for command in commands:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as cargo:
            for line in cargo.stdout:
                built.add(line)
        if cargo.returncode != 0:
            return False
    return True
