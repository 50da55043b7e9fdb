"""Skips tests of the imitation itself if nothing that they test has changed since they passed."""

import hashlib
import json
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STAMP = ROOT / "target/imitation/passed.json"
# What the planner's peaks are of, beside the imitation.
NETWORK = ["runtime", "benches/measure", "benches/random_checkpoint", "jobs/fit/src/gr00t"]
SOURCES = (".py", ".sh", ".cc", ".h", ".rs", ".json", ".toml")


def group(item: pytest.Item) -> str | None:
    """Tests that one stamp is for; none for `rrun` on imitated cards, which is always tested."""
    return {"test_memory.py": "memory", "test_ranks.py": None}.get(item.path.name, "itself")


def digest(group: str) -> str:
    """Of everything that decides how the tests of a group end."""
    folders = [HERE, *(ROOT / it for it in NETWORK if group == "memory")]
    paths = [it for folder in folders for it in sorted(folder.rglob("*")) if it.suffix in SOURCES]
    paths += ROOT.glob(".venv/lib/python3.*/site-packages/torch/version.py")
    found = hashlib.sha256()
    for path in paths:
        found.update(f"{path}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


class Skipping:
    """The plugin of `--if-changed`."""

    def __init__(self):
        self.passed = json.loads(STAMP.read_text()) if STAMP.exists() else {}
        self.digests: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items):
        groups = {group(item) for item in items} - {None}
        self.digests = {name: digest(name) for name in groups}
        why = pytest.mark.skip(reason="passed with the same sources and torch")
        for item in items:
            name = group(item)
            if name and self.passed.get(name) == self.digests[name]:
                item.add_marker(why)

    def pytest_sessionfinish(self, exitstatus):
        if exitstatus == 0 and self.digests:
            STAMP.parent.mkdir(parents=True, exist_ok=True)
            STAMP.write_text(json.dumps(self.passed | self.digests))
