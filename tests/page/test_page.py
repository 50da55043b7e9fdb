"""`report.html` in headless Chromium, opened from its folder: what is there can be seen, and nothing else is asked for.

    PAGE_FOLDER=outputs/tonight .venv/bin/pytest tests/page      another run's page
    PAGE_PICTURES=docs/images .venv/bin/pytest tests/page        its pictures
"""

import os
import pathlib
import re
import urllib.parse

import pytest

HERE = pathlib.Path(__file__).parent
LOOKS = [(1280, False), (1280, True), (390, False), (390, True)]
SECTIONS = ["success", "ranks", "failures", "films", "jobs", "speed", "settings", "origin"]


def see(tab, url, width=1280, dark=False):
    tab.open(url, width, dark=dark, mobile=width < 500)
    tab.run((HERE / "probes.js").read_text())


@pytest.mark.parametrize("width, dark", LOOKS)
def test_everything_is_there_and_nothing_covers_another(tab, url, width, dark):
    see(tab, url, width, dark)
    for section in SECTIONS:
        [[_, _, wide, high]] = tab.run(f"probes.box('#{section}')")
        assert wide > width / 2 and high > 40, section
    assert tab.run("probes.lines()") > 100
    assert tab.run("probes.overlaps()") == []
    assert tab.run("document.documentElement.scrollWidth") <= width, "the page itself does not scroll sideways"


@pytest.mark.parametrize("width, dark", LOOKS)
def test_every_text_stands_out_from_its_ground(tab, url, width, dark):
    see(tab, url, width, dark)
    assert tab.run("probes.faint()") == []


def test_a_sheet_of_paper_holds_the_page_and_is_white(tab, url):
    see(tab, url, 718, dark=True)  # A4 with margins of a centimetre
    tab.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("document.documentElement.scrollWidth") <= 718
    assert tab.run("probes.overlaps()") == []
    assert tab.run("probes.faint()") == []


@pytest.mark.parametrize("dark, light_ground", [(False, True), (True, False)])
def test_the_page_is_as_light_or_dark_as_the_desktop(tab, url, dark, light_ground):
    see(tab, url, dark=dark)
    channels = re.findall(r"\d+", tab.run("getComputedStyle(document.body).backgroundColor"))
    assert (int(channels[0]) > 128) == light_ground


def test_nothing_is_asked_for_beyond_the_folder_and_nothing_goes_wrong(tab, url, folder):
    tab.errors.clear()
    tab.requests.clear()
    see(tab, url)
    # Pictures of the player's own buttons are data.
    asked = [request for request in tab.requests if not request.startswith("data:")]
    assert asked == [url], "videos are loaded when they are played"
    assert tab.errors == []


def test_the_numbers_are_those_of_the_report(tab, url, report):
    see(tab, url)
    text = tab.run("document.querySelector('header').innerText").replace("\u202f", " ")
    overall = report["overall"]
    assert f"{overall['success_rate'] * 100:.1f} %" in text or overall["success_rate"] in (0, 1)
    assert f"{overall['wilson95'][0] * 100:.1f} to {overall['wilson95'][1] * 100:.1f} %" in text
    assert ("Partial" in text) == report["partial"]
    counts = tab.run("Object.fromEntries([...document.querySelectorAll('.counts > div')].map(d => [d.querySelector('dt').innerText, d.querySelector('dd').innerText.replaceAll('\u202f', '')]))")
    assert counts["Solved"] == str(overall["successes"])
    assert counts["Broke"] == str(overall["errors"])
    assert counts["Missing"] == str(overall["expected"] - overall["episodes"])


def test_bars_are_as_long_as_their_numbers_say(tab, url):
    see(tab, url)
    bars = tab.run("""[...document.querySelectorAll('.matrix td')].filter(row => row.querySelector('rect')).map(row => {
        const of = (element) => element.getBoundingClientRect();
        const all = of(row.querySelector('svg'));
        const at = (x) => (x - all.left) / all.width * 100;
        const [low, high] = [...row.querySelectorAll('.interval')].slice(0, 1).map(line => [at(of(line).left), at(of(line).right)])[0];
        const words = row.querySelector('.numbers').innerText.replaceAll('\u202f', ' ');
        return { rate: of(row.querySelector('rect')).width / all.width * 100, low, high, words };
    })""")
    assert bars
    for bar in bars:
        rate = float(re.match(r"([\d.]+) %", bar["words"])[1])
        low, high = map(float, re.search(r"([\d.]+) to ([\d.]+) %", bar["words"]).groups())
        # Half a pixel, and the digit that is not printed.
        assert bar["rate"] == pytest.approx(rate, abs=0.3), bar
        assert (bar["low"], bar["high"]) == (pytest.approx(low, abs=0.6), pytest.approx(high, abs=0.6)), bar


def test_lanes_show_lives_jobs_and_deaths(tab, url, report):
    see(tab, url)
    ranks = report["per_rank"]
    if len(ranks) > 64:
        pytest.skip("not every rank is shown")
    assert len(tab.run("probes.box('.lane:not(.axis)')")) == len(ranks)
    assert len(tab.run("probes.box('rect.life')")) == sum(len(rank["lives"]) for rank in ranks)
    assert len(tab.run("probes.box('line.death')")) == sum(rank["deaths"] for rank in ranks)
    assert len(tab.run("probes.box('rect.job')")) > 0
    assert re.search(r"UTC([+−]\d\d:\d\d)?", tab.run("document.querySelector('.lane.axis .who').innerText"))


def test_a_film_plays_the_episode_that_it_is_about(tab, url, folder, report):
    see(tab, url)
    tab.requests.clear()
    tab.errors.clear()
    if not tab.run("document.querySelectorAll('video').length"):
        pytest.skip("no unsolved episode was filmed")
    before = tab.run("probes.box('.film')")
    # The last one: it begins within its file if any does.
    found = tab.run("""new Promise((done, failed) => {
        const video = [...document.querySelectorAll('video')].at(-1);
        const [from, to] = (new URL(video.src).hash.match(/t=([\\d.]+),([\\d.]+)/) ?? [0, 0, Infinity]).slice(1).map(Number);
        video.addEventListener('error', () => failed(new Error('cannot be played: ' + video.error?.message)));
        video.addEventListener('timeupdate', () => {
            if (video.currentTime > from) done({ src: video.src, state: video.readyState, from, to, at: video.currentTime, width: video.videoWidth });
        });
        video.play().catch(failed);
        setTimeout(() => failed(new Error('does not begin: state ' + video.readyState)), 30000);
    })""")
    assert found["state"] >= 2 and found["width"] > 0
    assert found["from"] <= found["at"] <= (found["to"] or found["at"]) + 0.1
    file = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(found["src"]).path))
    assert file.is_file() and file.is_relative_to(folder)
    assert {urllib.parse.urldefrag(request)[0] for request in tab.requests if not request.startswith("data:")} == {
        urllib.parse.urldefrag(found["src"])[0]}
    assert tab.errors == []
    assert tab.run("probes.box('.film')") == before, "a film has its place before it is loaded"


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves_while_the_page_is_loaded(tab, url, width):
    see(tab, url, width)
    moved = tab.run("""new Promise(done => {
        const observer = new PerformanceObserver(() => {});
        observer.observe({ type: 'layout-shift', buffered: true });
        requestAnimationFrame(() => done(observer.takeRecords().reduce((sum, entry) => sum + entry.value, 0)));
    })""")
    assert moved == 0


def names(tab):
    return tab.run("[...document.querySelectorAll('#jobs tbody tr')].filter(row => !row.hidden).map(row => row.cells[0].innerText)")


def test_jobs_are_sorted_from_the_keyboard(tab, url, report):
    see(tab, url)
    rates = {job["name"]: job["success_rate"] for job in report["per_job"]}
    tab.run("[...document.querySelectorAll('#jobs thead button')].find(button => button.innerText == 'Rate').focus()")
    for order in ("ascending", "descending"):
        tab.key("Enter", "\r")
        assert tab.run("document.querySelector('#jobs th[aria-sort]').getAttribute('aria-sort')") == order
        found = [rates[name] for name in names(tab) if rates[name] is not None]
        assert found == sorted(found, reverse=order == "descending")


def test_jobs_are_filtered_by_what_is_typed(tab, url, report):
    see(tab, url)
    job = report["per_job"][0]
    tab.run("document.querySelector('#jobs input').focus()")
    for letter in job["policy_type"].upper():
        tab.key(letter, letter)
    found = names(tab)
    assert job["name"] in found
    other = {other["name"] for other in report["per_job"] if job["policy_type"] not in str(other)}
    assert not other & set(found)
    assert tab.run("document.querySelector('#jobs output').innerText").startswith(str(len(found)))


def test_every_link_leads_somewhere(tab, url, folder):
    see(tab, url)
    for link in set(tab.run("[...document.querySelectorAll('a')].map(a => a.href)")):
        target, place = urllib.parse.urldefrag(link)
        if target == url:
            assert tab.run(f"!!document.getElementById({place!r})"), link
        else:
            path = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(target).path))
            assert path.exists() and path.is_relative_to(folder), link


def test_the_keyboard_reaches_what_scrolls_and_what_can_be_pressed(tab, url):
    see(tab, url)
    left = tab.run("""[...document.querySelectorAll('a, button, input, summary, video, .scroll')]
        .filter(element => element.tabIndex < 0).map(element => element.outerHTML.slice(0, 80))""")
    assert left == []


@pytest.mark.skipif("PAGE_PICTURES" not in os.environ, reason="PAGE_PICTURES names no folder")
@pytest.mark.parametrize("name, width, dark, top, bottom", [
    ("report", 1280, False, None, "failures"),
    ("report_dark", 1280, True, "jobs", "settings"),
    ("report_phone", 390, False, None, "ranks"),
])
def test_pictures(tab, url, name, width, dark, top, bottom):
    to = pathlib.Path(os.environ["PAGE_PICTURES"])
    to.mkdir(parents=True, exist_ok=True)
    see(tab, url, width, dark)
    top, bottom = [int(tab.run(f"probes.box('#{section}-part')[0][1]")) - 24 if section else 0 for section in (top, bottom)]
    tab.picture(to / f"{name}.png", top, min(bottom, top + 2200))
