"""A real browser without a window: Debian's Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.support.deadline import PATIENCE_S, until

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")

_PICTURES = """
[...document.querySelectorAll('img, video')].map(e => ({
  source: e.currentSrc || e.src, kind: e.localName,
  width: e.naturalWidth || e.videoWidth || 0, failed: !!e.error || (e.complete === true && !e.naturalWidth),
}))
"""


class Page:
    """One page, open."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket, self._session, self._last = socket, session, 0
        self.complaints: list[str] = []
        """What the browser logged: refusals by the content security policy, pictures it could not get."""

    def evaluate(self, expression: str) -> Any:
        """The value of a script, as plain data."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def pictures(self) -> list[dict[str, Any]]:
        """Every picture and video, once each is there or has failed."""

        def settled() -> tuple[list[dict[str, Any]], bool]:
            found: list[dict[str, Any]] = self.evaluate(_PICTURES)
            return found, all(one["width"] or one["failed"] for one in found)

        until(lambda: settled()[1], "every picture to arrive or fail", every=0.1)
        return settled()[0]

    def screenshot(self, path: Path, *, width: int, height: int) -> None:
        """What is in the window, as PNG."""
        shown = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", clip=shown)
        path.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters, "sessionId": self._session}
        self._socket.send(json.dumps(message))
        return self.wait(lambda event: event.get("id") == self._last).get("result", {})

    def wait(self, wanted: Any) -> dict[str, Any]:
        """The next message that is wanted; complaints on the way are kept."""
        while True:
            event: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if event.get("method") == "Log.entryAdded":
                self.complaints.append(event["params"]["entry"]["text"])
            if "error" in event:
                raise AssertionError(event["error"])
            if wanted(event):
                return event


@contextmanager
def opened(url: str, *, width: int = 1200, height: int = 3000, dark: bool = False) -> Iterator[Page]:
    """A page in a window so high that nothing has to be scrolled to."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(prefix="mutoscope-browser-", ignore_cleanup_errors=True) as profile:
        command = [
            PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio",
            "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--no-proxy-server",
            "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        log = Path(profile) / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            with connect(_address(log, process), max_size=None, proxy=None) as socket:
                page = _attach(socket)
                page.call(
                    "Emulation.setDeviceMetricsOverride",
                    width=width,
                    height=height,
                    deviceScaleFactor=1,
                    mobile=False,
                )
                scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
                page.call("Emulation.setEmulatedMedia", features=[scheme])
                for domain in ("Page", "Log", "Runtime"):
                    page.call(f"{domain}.enable")
                page.call("Page.navigate", url=url)
                until(lambda: page.evaluate("document.readyState") == "complete", f"{url} to load")
                yield page
        finally:
            process.kill()
            process.wait()


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    def look() -> str | None:
        said = log.read_text(errors="replace")
        assert process.poll() is None, said
        match = re.search(r"DevTools listening on (ws://\S+)", said)
        return match[1] if match else None

    return until(look, "the browser to start") or ""


def _attach(socket: ClientConnection) -> Page:
    target = _plain(socket, 1, "Target.createTarget", url="about:blank")["targetId"]
    session = _plain(socket, 2, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    page = Page(socket, session)
    page._last = 2
    return page


def _plain(socket: ClientConnection, number: int, method: str, **parameters: Any) -> dict[str, Any]:
    socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
    while True:
        answer: dict[str, Any] = json.loads(socket.recv(timeout=PATIENCE_S))
        if answer.get("id") == number:
            result: dict[str, Any] = answer["result"]
            return result
