"""The page of a run while it lasts (`rrun eval --page`), in headless Chromium: a real run of two ranks, watched until
it is stopped with the button."""

import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

import night
import pytest
from test_page import HERE, LOOKS

LIMIT_S = 300
PROBES = (HERE / "probes.js").read_text()
TOKEN = "a-token-for-the-test"
SECTIONS = ["now", "success", "ranks", "failures", "films", "jobs", "speed", "settings", "origin"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(happens, what):
    """Waits for a condition; the answer of it that is true."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if found := happens():
            return found
        time.sleep(0.2)
    raise TimeoutError(what)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that goes on for as long as the tests need, with a token; its address and folder."""
    folder = tmp_path_factory.mktemp("live") / "tonight"
    folder.mkdir()
    camera = {"enable_cameras": True, "camera_width": 96, "camera_height": 96, "max_episode_steps": 60, "num_envs": 2}
    entries = [{"name": f"{task}_{policy}", "arena_env_args": {"environment": task, **camera}, "policy_type": policy, "num_episodes": 5000}
               for task in ("reach", "push") for policy in ("random_action",)]
    (folder / "tonight.json").write_text(json.dumps({"jobs": entries}))
    port = free_port()
    rrun = os.environ.get("RRUN", night.ROOT / "target/release/rrun")
    command = [rrun, "--nproc-per-node", "2", "eval", "--jobs", folder / "tonight.json", "--output", folder, "--page", str(port)]
    environment = {**os.environ, "LP_NUM_THREADS": "0", "TZ": "Europe/Berlin", "RRUN_PAGE_TOKEN": TOKEN}
    with open(folder / "stderr", "wb") as said:
        child = subprocess.Popen(command, cwd=night.ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=said)
    try:
        address = f"http://127.0.0.1:{port}/"
        until(lambda: answers(address) or child.poll() is not None, "the page is not there")
        assert child.poll() is None, (folder / "stderr").read_text()
        until(lambda: len(list((folder / "live").glob("rank*.png"))) >= 4, "there are no pictures")
        until(lambda: sum(path.read_text().count('{"type":"episode",') for path in (folder / "journal").glob("*.jsonl")) >= 8, "no episode has ended")
        yield address, folder, child
    finally:
        child.terminate()
        child.wait(LIMIT_S)


def answers(address):
    try:
        urllib.request.urlopen(address, timeout=5)
    except urllib.error.HTTPError as err:
        return err.code == 401
    except OSError:
        return False
    return True


@pytest.fixture
def see(tab, run):
    """Opens the page, with the token if it is asked for."""
    address, _, _ = run

    def open_page(width=1280, dark=False):
        tab.open(address, width, dark=dark, mobile=width < 500)
        if tab.run("!!document.querySelector('.door')"):
            tab.run(f"document.querySelector('input[name=token]').value = '{TOKEN}'")
            tab.events.clear()
            tab.run("document.querySelector('form').submit()")
            until(lambda: tab.run("document.readyState === 'complete' && !document.querySelector('.door')"), "the token is not taken")
        tab.run(PROBES)
        until(lambda: tab.run("[...document.querySelectorAll('.env img')].length >= 4 && "
                              "[...document.querySelectorAll('.env img')].every((image) => image.naturalWidth > 0)"), "no pictures")

    return open_page


@pytest.mark.parametrize("width, dark", LOOKS)
def test_everything_is_there_and_nothing_covers_another(tab, see, width, dark):
    see(width, dark)
    for section in SECTIONS:
        [[_, _, wide, high]] = tab.run(f"probes.box('#{section}')")
        assert wide > width / 2 and high > 15, section
    assert tab.run("probes.overlaps()") == []
    assert tab.run("document.documentElement.scrollWidth") <= width, "the page itself does not scroll sideways"


@pytest.mark.parametrize("width, dark", LOOKS)
def test_every_text_stands_out_from_its_ground(tab, see, width, dark):
    see(width, dark)
    assert tab.run("probes.faint()") == []


def test_numbers_and_pictures_go_on_by_themselves_and_nothing_goes_wrong(tab, see, run):
    tab.errors.clear()
    see()
    tab.requests.clear()
    found = lambda: tab.run("document.querySelector('.expected b').innerText")
    sources = lambda: tab.run("[...document.querySelectorAll('.env img')].map((image) => image.src)")
    first, pictures = found(), sources()
    until(lambda: found() != first, "the number of episodes stays as it is")
    until(lambda: sources() != pictures, "the pictures stay as they are")
    address, _, _ = run
    assert all(request.startswith(address) for request in tab.requests if not request.startswith("data:"))
    # The first answer asks for the token.
    assert [error for error in tab.errors if "401" not in error] == []


def test_what_is_open_sorted_and_typed_stays_so(tab, see):
    see()
    tab.run("[...document.querySelectorAll('#jobs thead button')].find((button) => button.innerText == 'Job').click()")
    tab.run("(() => { const input = document.querySelector('#jobs input'); input.value = 'push'; input.dispatchEvent(new Event('input', { bubbles: true })); input.focus(); })()")
    found = lambda: tab.run("document.querySelector('.expected b').innerText")
    first = found()
    until(lambda: found() != first, "the number of episodes stays as it is")
    assert tab.run("document.querySelector('#jobs th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    assert tab.run("[...document.querySelectorAll('#jobs tbody tr')].filter((row) => !row.hidden).map((row) => row.cells[0].innerText)") == ["push_random_action"]
    assert tab.run("document.activeElement === document.querySelector('#jobs input')")


def test_a_film_of_a_failure_plays_while_the_run_goes_on(tab, see, run):
    see()
    until(lambda: tab.run("document.querySelectorAll('#films video').length > 0"), "no film")
    state = tab.run("""new Promise((done, failed) => {
        const video = document.querySelector('#films video');
        video.addEventListener('error', () => failed(new Error('cannot be played: ' + video.error?.message)));
        video.addEventListener('timeupdate', () => { if (video.currentTime > 0) done([video.readyState, video.videoWidth]); });
        video.play().catch(failed);
        setTimeout(() => failed(new Error('does not begin: state ' + video.readyState)), 30000);
    })""")
    assert state[0] >= 2 and state[1] > 0


@pytest.mark.skipif("PAGE_PICTURES" not in os.environ, reason="PAGE_PICTURES names no folder")
@pytest.mark.parametrize("name, width, dark, bottom", [("live", 1280, False, "success-part"), ("live_phone", 390, True, "success-part")])
def test_pictures(tab, see, name, width, dark, bottom):
    to = pathlib.Path(os.environ["PAGE_PICTURES"])
    to.mkdir(parents=True, exist_ok=True)
    see(width, dark)
    tab.picture(to / f"{name}.png", 0, int(tab.run(f"probes.box('#{bottom}')[0][1]")) - 24)


def test_the_button_stops_the_run_after_its_episodes(tab, see, run):
    """The last test of the file: afterwards there is no run."""
    _, folder, child = run
    see()
    tab.run("window.confirm = () => true")
    tab.run("document.querySelector('button[data-command=stop]').click()")
    until(lambda: child.poll() is not None, "the run goes on")
    # It lacks episodes.
    assert child.returncode == 1, (folder / "stderr").read_text()
    report = json.loads((folder / "report.json").read_text())
    assert report["partial"] and report["overall"]["errors"] == 0
    assert all(rank["lives"][-1]["end"] == "done" for rank in report["per_rank"])
    assert report["run"]["stopped"] == "stopped on its page"
    # The page has the last state, and a server that is gone is no fault.
    until(lambda: tab.run("document.getElementById('ended')?.innerText ?? ''"), "the page does not say that the run has ended")
    assert str(folder / "report.html") in tab.run("document.getElementById('ended').innerText")
    assert tab.run("document.getElementById('lost').hidden")
