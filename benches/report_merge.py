"""The Python side of report.py: merges the journals of a run folder into episodes.jsonl and a
report, with `json` alone.

    report_merge.py FOLDER

Like other merge scripts, it holds every line as an object in memory. It counts, and computes the
rate and the Wilson interval of each job; the report of rrun contains more.
"""

import collections
import json
import math
import pathlib
import sys
import time


def wilson(successes: int, trials: int) -> list[float]:
    z, p = 1.959963984540054, successes / trials
    centre, half = p + z * z / (2 * trials), z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    return [(centre - half) / (1 + z * z / trials), (centre + half) / (1 + z * z / trials)]


def main(folder: pathlib.Path) -> None:
    begin = time.perf_counter()
    jobs = json.loads((folder / "plan.json").read_text())["jobs"]
    episodes = collections.defaultdict(dict)
    for path in sorted((folder / "journal").glob("*.jsonl")):
        with path.open() as file:
            for line in map(json.loads, file):
                if line["type"] == "episode":
                    kept = episodes[line["job"]].get(line["episode"])
                    if kept is None or ("error" in kept, kept["ended"]) > ("error" in line, line["ended"]):
                        episodes[line["job"]][line["episode"]] = line
    read, per_job = time.perf_counter(), []
    with (folder / "python_episodes.jsonl").open("w") as file:
        for job in jobs:
            of_job = episodes[job["name"]]
            found = [of_job[number] for number in sorted(of_job)]
            successes = sum(1 for episode in found if episode["success"] and "error" not in episode)
            rate = {"success_rate": successes / len(found), "wilson95": wilson(successes, len(found))} if found else {}
            per_job.append({"name": job["name"], "episodes": len(found), "successes": successes, **rate})
            for episode in found:
                del episode["type"]
                file.write(json.dumps(episode) + "\n")
    (folder / "python_report.json").write_text(json.dumps({"per_job": per_job}, indent=2))
    done = time.perf_counter()
    count = sum(job["episodes"] for job in per_job)
    print(json.dumps({"read_s": read - begin, "report_s": 0, "write_s": done - read, "episodes": count}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
