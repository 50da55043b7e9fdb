import json
import os
import pathlib

import chromium
import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A run folder with `report.html`; another one with PAGE_FOLDER."""
    if "PAGE_FOLDER" in os.environ:
        return pathlib.Path(os.environ["PAGE_FOLDER"]).resolve()
    import night

    rrun = os.environ.get("RRUN", night.ROOT / "target/release/rrun")
    return night.make(tmp_path_factory.mktemp("page") / "a night #1", rrun)


@pytest.fixture(scope="session")
def report(folder):
    return json.loads((folder / "report.json").read_text())


@pytest.fixture(scope="session")
def url(folder):
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="session")
def tab():
    program = chromium.path()
    if not program:
        pytest.skip("no Chromium: neither `chromium` nor `google-chrome` is on the PATH, and CHROMIUM is not set")
    with chromium.Chromium(program) as tab:
        yield tab
