"""Headless Chromium over its debugging pipe: JSON messages that end with a zero byte. Needs nothing but Chromium."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

DEADLINE_S = 60


def path():
    """The program, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


class Chromium:
    """One tab. What it logs as an error and all that it asks for are kept."""

    def __init__(self, program):
        self.home = tempfile.mkdtemp(prefix="chromium-")
        to_child, self.out = os.pipe()
        self.into, from_child = os.pipe()

        def pipes():
            # Chromium reads from 3 and writes to 4; both ends may have these numbers now.
            kept = os.dup(to_child), os.dup(from_child)
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        flags = [
            "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--mute-audio",
            "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
            "--autoplay-policy=no-user-gesture-required", f"--user-data-dir={self.home}",
        ]
        self.child = subprocess.Popen([program, *flags], preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.rest, self.number, self.session = b"", 0, None
        self.errors, self.requests, self.events = [], [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
            self.child.wait(DEADLINE_S)
        finally:
            if self.child.poll() is None:
                self.child.kill()
                self.child.wait()
            os.close(self.out)
            os.close(self.into)
            shutil.rmtree(self.home, ignore_errors=True)

    def call(self, method, **params):
        """Sends a command and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            reply = self.read(deadline)
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]
            self.on(reply)

    def read(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self.into, 1 << 16)
            if not data:
                raise EOFError("Chromium has ended")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def on(self, event):
        method, params = event.get("method"), event.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["text"])
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))
        if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, url, width, height=900, dark=False, mobile=False):
        """Loads a page in a window of that many CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + DEADLINE_S
        while "Page.loadEventFired" not in self.events:
            self.on(self.read(deadline))
        # Two frames later all is painted.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def run(self, script):
        """The value of an expression; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def key(self, key, text=""):
        """Presses a key and lets go of it."""
        code = {"Enter": 13, "Tab": 9}.get(key, ord(key.upper()[0]))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def picture(self, file, top=0, bottom=None):
        """A PNG of the page between two of its pixels, from edge to edge."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": (bottom or size["height"]) - top, "scale": 1}
        png = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        with open(file, "wb") as out:
            out.write(base64.b64decode(png))
