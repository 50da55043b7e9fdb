"""The process beside rank 0 that logs a run with the package of an experiment tracker: wandb, trackio or mlflow.

Requests are JSON with their `kind`, and each is answered before the next one comes:

    point    step, unix_s, values
    ending   status, rows, page, videos, is_uploaded

It says where to see the run when it has begun, and notes what was left out.
"""

import json
import os
import re
import sys
import traceback

from rrun_host import last_line

LARGEST_VIDEO = 20 << 20  # bytes of a video that is uploaded
ID_TAG = "rrun.run_id"  # by which an MLflow run is found again
COLUMNS = ["task", "episodes", "successes", "errors", "success_rate", "low", "high"]


def small(paths):
    """The files that exist and are small enough to be uploaded."""
    return [path for path in paths if os.path.isfile(path) and os.path.getsize(path) <= LARGEST_VIDEO]


def cells(ending):
    return [[row[column] for column in COLUMNS] for row in ending["rows"]]


def markdown(ending):
    lines = [COLUMNS, ["---"] * len(COLUMNS), *cells(ending)]
    return "".join("| " + " | ".join("" if cell is None else str(cell) for cell in line) + " |\n" for line in lines)


class Wandb:
    def __init__(self, start):
        import wandb

        self.wandb = wandb
        project = os.environ.get("WANDB_PROJECT") or "rrun"
        name = start["name"] if start["is_named"] else os.environ.get("WANDB_NAME") or start["name"]
        settings = {"project": project, "name": name, "id": start["id"], "resume": "allow", "job_type": "eval"}
        self.run = wandb.init(config=start["config"], **settings)
        # Steps of wandb must grow; a resumed run may begin before its last point.
        self.run.define_metric("episodes")
        self.run.define_metric("*", step_metric="episodes")
        self.link = self.run.url or f"{self.run.settings.sync_dir} (`wandb sync` uploads it)"

    def point(self, step, unix_s, values):
        self.run.log({"episodes": step, **values})

    def ending(self, ending):
        self.run.log({"tasks": self.wandb.Table(columns=COLUMNS, data=cells(ending))})
        self.run.summary["report"] = ending["page"]
        self.run.summary["videos"] = ending["videos"]
        if ending["is_uploaded"]:
            videos = self.wandb.Artifact(f"videos-{self.run.id}", type="videos")
            for path in small(ending["videos"]):
                videos.add_file(path)
            self.run.log_artifact(videos)
        self.run.finish(exit_code=0 if ending["status"] == "FINISHED" else 1)


class Trackio:
    def __init__(self, start):
        import trackio

        self.trackio = trackio
        project = os.environ.get("TRACKIO_PROJECT") or "rrun"
        # A run is found again by its name.
        name = f"{start['name']}-{start['id'][:8]}"
        self.run = trackio.init(project=project, name=name, config=start["config"], resume="allow", embed=False)
        self.link = f"run {name}: `trackio show --project {project}`"

    def point(self, step, unix_s, values):
        self.trackio.log(values, step=step)

    def ending(self, ending):
        self.trackio.log({"report": ending["page"], "status": ending["status"], "tasks": self.trackio.Markdown(markdown(ending))})
        self.trackio.finish()


class Mlflow:
    def __init__(self, start):
        import mlflow

        self.mlflow = mlflow
        experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or "rrun")
        self.client = mlflow.MlflowClient()
        found = self.client.search_runs([experiment.experiment_id], f"tags.`{ID_TAG}` = '{start['id']}'", max_results=1)
        known = found[0].info.run_id if found else None
        self.run = mlflow.start_run(run_id=known, run_name=start["name"], tags={ID_TAG: start["id"]})
        self.id = self.run.info.run_id
        if not known:
            # The parameters of a run that is continued cannot be changed.
            mlflow.log_params({name: text(value)[:500] for name, value in start["config"].items()})
        self.log_file(start["config"], "config.json")
        self.link = f"run {self.id} of experiment {experiment.experiment_id} in {mlflow.get_tracking_uri()}"

    def point(self, step, unix_s, values):
        from mlflow.entities import Metric

        metrics = [Metric(name_of(name), value, int(unix_s * 1000), step) for name, value in values.items()]
        self.client.log_batch(self.id, metrics=metrics)

    def log_file(self, contents, name):
        try:
            if isinstance(contents, str):
                self.mlflow.log_text(contents, name)
            else:
                self.mlflow.log_dict(contents, name)
        except Exception:
            # A server may take metrics and no files.
            traceback.print_exc()

    def ending(self, ending):
        self.mlflow.set_tag("rrun.report", ending["page"])
        self.log_file(markdown(ending), "tasks.md")
        self.log_file({"report": ending["page"], "videos": ending["videos"]}, "files.json")
        if ending["is_uploaded"]:
            for path in small(ending["videos"]):
                self.mlflow.log_artifact(path, "videos")
        self.mlflow.end_run(ending["status"])


TRACKERS = {"wandb": Wandb, "trackio": Trackio, "mlflow": Mlflow}


def text(value):
    return value if isinstance(value, str) else json.dumps(value)


def name_of(name):
    """The name of a metric with the letters that MLflow accepts."""
    return re.sub(r"[^\w\-. :/]", "_", name)


class Worker:
    def __init__(self, host, config):
        # The working directory comes first here, and may have the folder `wandb` of earlier runs.
        sys.path[:] = [path for path in sys.path if path]
        sys.argv = ["rrun-track"]
        self.host, self.config = host, config

    def start(self):
        self.tracker = TRACKERS[self.config["tracker"]](self.config)
        return self.tracker.link

    def serve(self):
        for sequence, packet in self.host.requests():
            message = json.loads(bytes(packet))
            if message.pop("kind") == "point":
                try:
                    self.tracker.point(**message)
                except Exception as error:
                    # A service may be away for a while.
                    traceback.print_exc()
                    self.host.note(f"a point was left out: {last_line(error).splitlines()[0]}")
            else:
                self.tracker.ending(message)
            self.host.answer(sequence)
