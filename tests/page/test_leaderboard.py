"""`leaderboard.html` in headless Chromium: three certified runs of one task, one of another, and a file that is broken."""

import json
import os
import subprocess

import night
import pytest
from test_page import LOOKS, see

SECTIONS = ["results", "refused", "ranks", "limits"]
LIMIT_S = 300


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """The folder of a leaderboard."""
    folder = tmp_path_factory.mktemp("leaderboard")
    rrun = os.environ.get("RRUN", night.ROOT / "target/release/rrun")
    call = lambda *words: subprocess.run([rrun, *words], check=True, timeout=LIMIT_S, cwd=folder, stdout=subprocess.DEVNULL)
    certificates = folder / "certificates"
    certificates.mkdir()
    for name, policy, environment in [("expert", "scripted", "reach"), ("idle", "zero_action", "reach"), ("random", "random_action", "reach"),
                                      ("push", "scripted", "push")]:
        job = {"name": name, "arena_env_args": {"environment": environment, "max_episode_steps": 60}, "policy_type": policy,
               "num_episodes": 20, "seed": 7}
        (folder / f"{name}.json").write_text(json.dumps({"jobs": [job]}))
        call("eval", "--jobs", f"{name}.json", "--output", name, "--no-video", "--no-dataset")
        call("certify", name, "--sample", "2", "--output", certificates / f"{name}.json")
    (certificates / "broken.json").write_text('{"schema": "rrun/certificate/1", "contents": "<b>a very long text</b>"')
    call("leaderboard", certificates, "--output", folder / "board")
    return folder / "board"


@pytest.fixture(scope="module")
def url(board):
    return (board / "leaderboard.html").as_uri()


@pytest.mark.parametrize("width, dark", LOOKS)
def test_everything_is_there_and_nothing_covers_another(tab, url, width, dark):
    see(tab, url, width, dark)
    for section in SECTIONS:
        [[_, _, wide, high]] = tab.run(f"probes.box('#{section}')")
        assert wide > width / 2 and high > 40, section
    assert tab.run("probes.overlaps()") == []
    assert tab.run("document.documentElement.scrollWidth") <= width, "the page itself does not scroll sideways"


@pytest.mark.parametrize("width, dark", LOOKS)
def test_every_text_stands_out_from_its_ground(tab, url, width, dark):
    see(tab, url, width, dark)
    assert tab.run("probes.faint()") == []


def test_every_control_and_table_has_a_name(tab, url):
    see(tab, url, 390)
    unnamed = tab.run("[...document.querySelectorAll('input, select')].filter((one) => !one.labels.length).length")
    assert unnamed == 0
    assert tab.run("[...document.querySelectorAll('.scroll')].every((one) => one.tabIndex === 0 && one.ariaLabel)")
    assert tab.run("[...document.querySelectorAll('thead th')].every((one) => one.scope === 'col' && one.innerText.trim())")


def test_nothing_is_asked_for_and_nothing_goes_wrong(tab, url):
    tab.errors.clear()
    tab.requests.clear()
    see(tab, url)
    assert tab.requests == [url]
    assert tab.errors == []


def rows(tab):
    return tab.run("[...document.querySelectorAll('#results tbody tr:not([hidden])')].map((row) => row.cells[2].innerText.trim())")


def test_choices_and_words_filter_rows(tab, url):
    see(tab, url)
    assert len(rows(tab)) == 4
    choose = lambda name, value: tab.run(f"""(() => {{
        const choice = document.querySelector("select[name='{name}']");
        choice.value = "{value}";
        choice.dispatchEvent(new Event("input", {{ bubbles: true }}));
    }})()""")
    choose("policy", "scripted")
    assert rows(tab) == ["scripted", "scripted"]
    assert tab.run("document.querySelector('#results output').innerText").startswith("2 ")
    tab.run("document.querySelector('#results input').focus()")
    for letter in "push":
        tab.key(letter, letter)
    assert rows(tab) == ["scripted"]
    choose("policy", "zero_action")
    assert rows(tab) == []


def test_ranks_are_those_of_the_file(tab, url, board):
    see(tab, url)
    found = json.loads((board / "leaderboard.json").read_text())
    reach = next(group for group in found["groups"] if group["environments"] == ["reach"])
    assert [(row["policy_type"], row["rank"]) for row in reach["rows"]][0] == ("scripted", [1, 1])
    assert sorted(row["rank"] for row in reach["rows"]) == [[1, 1], [2, 3], [2, 3]]
    assert "2 to 3" in tab.run("document.querySelector('#results table').innerText")
    assert [one["file"] for one in found["refused"]] == ["../certificates/broken.json"]


@pytest.mark.skipif("PAGE_PICTURES" not in os.environ, reason="PAGE_PICTURES names no folder")
def test_pictures(tab, url):
    see(tab, url)
    tab.picture(os.path.join(os.environ["PAGE_PICTURES"], "leaderboard.png"))
