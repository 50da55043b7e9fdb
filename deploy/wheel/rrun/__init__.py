"""Reads the results of rrun, whose programs are `rrun` and `rrun-rank`.

>>> import rrun
>>> rrun.report("outputs/demo")["overall"]["success_rate"]
"""

import json
import os
import pathlib

__all__ = ["episodes", "rank", "report", "suites"]

_FOLDER = pathlib.Path(__file__).resolve().parent

# The program of one rank, for other launchers: `torchrun --no-python RANK eval --jobs jobs.json`.
rank = str(_FOLDER / "rrun-rank")

# The folder of the suites, which jobs files also find as `jobs/suites`.
suites = str(_FOLDER / "suites")


def report(folder: str | os.PathLike) -> dict:
    """Returns the report of a run as plain dictionaries. Takes its folder, or its `report.json`."""
    path = pathlib.Path(folder)
    path = path if path.suffix == ".json" else path / "report.json"
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; `rrun report {folder}` writes it") from None


def episodes(folder: str | os.PathLike) -> list[dict]:
    """Returns the episodes of a run, one dictionary each: `episodes.jsonl` of its folder."""
    path = pathlib.Path(folder) / "episodes.jsonl"
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; `rrun report {folder}` writes it") from None
