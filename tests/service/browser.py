"""A real Chromium, driven by its own protocol over a pipe: no driver, and no port."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"
PATIENCE = 30.0
"""seconds after which something that is waited for counts as missing"""
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip


def found() -> str | None:
    """The path of a Chromium; the variable MEBANDIT_CHROMIUM names another one."""
    return os.environ.get("MEBANDIT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one tab."""

    def __init__(self, path: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="mb")
        to_browser, ours_out = os.pipe()
        ours_in, from_browser = os.pipe()
        pair = f"{to_browser}, {from_browser}"
        program = f"import os, sys; a, b = (os.dup(os.dup(os.dup(each))) for each in ({pair}))"  # the protocol is spoken on 3 and 4
        program += "; os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-S", "-c", program, path, *FLAGS, f"--user-data-dir={self._folder}"]
        self._process = subprocess.Popen(
            [*command, "about:blank"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._out, self._in, self._read, self._number = ours_out, ours_in, b"", 0
        self.said: list[str] = []
        """what the console said: errors, warnings, what a policy refused"""
        target = next(each for each in self._send("Target.getTargets")["targetInfos"] if each["type"] == "page")["targetId"]
        self._session: str = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError):
            self._write({"id": 0, "method": "Browser.close"})
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, message: dict[str, Any]) -> None:
        os.write(self._out, json.dumps(message).encode() + b"\0")

    def _message(self) -> dict[str, Any]:
        """The next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._read:
            if not select.select([self._in], [], [], max(end - time.monotonic(), 0.0))[0]:
                raise AssertionError("the browser must answer")
            more = os.read(self._in, 1 << 16)
            if not more:
                raise AssertionError("the browser must live")
            self._read += more
        first, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] in ("warning", "error"):
            self.said.append(message["params"]["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.said.append(str(message["params"]["exceptionDetails"]))
        return message

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        session = {"sessionId": self._session} if hasattr(self, "_session") else {}
        self._write({"id": self._number, "method": method, "params": params} | session)
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, message
                answer: dict[str, Any] = message["result"]
                return answer

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A call of the protocol."""
        return self._send(method, **params)

    # ---- what people do ----

    def open(self, address: str) -> None:
        """Go to a page, and wait until it is there."""
        self.run("window.stale = true")
        self.call("Page.navigate", url=address)
        self.wait_for("!window.stale && document.readyState == 'complete'")

    def run(self, script: str) -> Any:
        """What a script of the page gives."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until a script gives something true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):  # between two pages there is none to ask
                if self.run(script):
                    return
            time.sleep(0.02)
        raise AssertionError(f"{script} must become true on {self.run('location.href')}: {self.text()[:2000]}")

    def text(self) -> str:
        """All that the page shows."""
        return str(self.run("document.body.innerText"))

    def click(self, selector: str, words: str = "") -> None:
        """Click on what has these words, with the mouse, and wait for the page that follows, if one does."""
        find = f"[...document.querySelectorAll({json.dumps(selector)})].find(e => e.textContent.includes({json.dumps(words)}))"
        self.wait_for(f"!!{find}")
        place = self.run(
            f"(() => {{ const e = {find}; e.scrollIntoView({{block: 'center'}}); const b = e.getClientRects()[0];"
            " window.stale = true; return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def follow(self, selector: str, words: str = "") -> None:
        """Click, and wait for another page."""
        self.click(selector, words)
        self.wait_for("!window.stale && document.readyState == 'complete'")

    def fill(self, selector: str, text: str) -> None:
        """Write into a field, key by key as far as the page can tell."""
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select?.(); }})()")
        self.call("Input.insertText", text=text)

    def press_enter(self) -> None:
        """Press the key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")

    def look(self, *, dark: bool = False, width: int = 1200, height: int = 900) -> None:
        """Choose the theme and the size of the window."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save the page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
        given: dict[str, Any] = {"clip": clip, "captureBeyondViewport": True} if whole else {}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **given)["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser, for as long as it is needed."""
    path = found()
    assert path is not None
    made = Browser(path)
    try:
        yield made
    finally:
        made.close()
