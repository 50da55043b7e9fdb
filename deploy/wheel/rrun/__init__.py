"""Reads the results of rrun, whose programs are `rrun` and `rrun-rank`.

>>> import rrun
>>> rrun.report("outputs/demo")["overall"]["success_rate"]
"""

import json
import os
import pathlib

__all__ = ["episodes", "report"]


def report(folder: str | os.PathLike) -> dict:
    """Returns the report of a run as plain dictionaries: `report.json` of its folder."""
    path = pathlib.Path(folder) / "report.json"
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
