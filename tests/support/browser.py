"""A headless Chromium, driven over its debugging protocol by the standard library alone: a page, its keys, its pictures."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_for

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-port=0",
)  # fmt: skip


def program() -> str | None:
    """Return the browser that is there, if one is."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Socket:
    """The client's side of a WebSocket to this machine: text frames, whole messages."""

    def __init__(self, url: str) -> None:
        host, _, path = url.removeprefix("ws://").partition("/")
        name, _, port = host.partition(":")
        self._socket = socket.create_connection((name, int(port)), timeout=30)
        self._read = self._socket.makefile("rb")
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        lines = [
            f"GET /{path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert b" 101 " in self._read.readline()
        while self._read.readline().strip():
            continue

    def send(self, text: str) -> None:
        """Send a message."""
        data, mask = text.encode(), secrets.token_bytes(4)
        length = bytes([0x80 | len(data)]) if len(data) < 126 else struct.pack("!BH", 0xFE, len(data))
        if len(data) > 65535:
            length = struct.pack("!BQ", 0xFF, len(data))
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        self._socket.sendall(b"\x81" + length + mask + masked)

    def receive(self) -> str:
        """Return the next message."""
        message = b""
        while True:
            first, second = self._read.read(2)
            size = second & 0x7F
            if size >= 126:
                size = int.from_bytes(self._read.read(2 if size == 126 else 8), "big")
            message += self._read.read(size)
            if first & 0x80:
                return message.decode()

    def close(self) -> None:
        """Close it."""
        self._read.close()
        self._socket.close()


class Page:
    """One page: what it says on its console, what it asks the network for, and everything one does with it."""

    def __init__(self, url: str) -> None:
        self._socket = Socket(url)
        self._number = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **params: Any) -> Any:
        """Ask the browser, and return its answer; what happens meanwhile is noted."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.receive())
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self.call("Page.navigate", url=path.as_uri())
        wait_for(lambda: self.run("document.readyState === 'complete' && location.protocol === 'file:'"), f"{path} is loaded")

    def run(self, script: str) -> Any:
        """Return the value of an expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def key(self, name: str, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, **({"text": text} if text and kind == "keyDown" else {}),
                      windowsVirtualKeyCode=_CODES.get(name, 0))  # fmt: skip

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move, press, release or turn the wheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag from one point to another."""
        self.mouse("mousePressed", *start, button="left", buttons=1, clickCount=1)
        self.mouse("mouseMoved", *end, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)

    def emulate(self, *, scheme: str = "light", media: str = "screen") -> None:
        """Prefer a colour scheme; look as on a screen or on paper."""
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path, *, whole: bool = True) -> bytes:
        """Write what is seen as a PNG file, and return it."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])
        path.write_bytes(data)
        return data

    def complaints(self) -> list[str]:
        """Return what is an error on the console, an exception, or a refusal."""
        found = []
        for event in self.events:
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(event["params"]["exceptionDetails"])[:400])
                case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning", "assert"):
                    found.append(json.dumps(event["params"]["args"])[:400])
                case "Log.entryAdded" if event["params"]["entry"]["level"] in ("error", "warning"):
                    found.append(event["params"]["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Return every address that was asked for."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def close(self) -> None:
        """Leave it."""
        self._socket.close()


_CODES = {"Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Escape": 27}


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Run a browser with a new profile in a folder, and give its page."""
    found = program()
    assert found is not None
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [found, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "--window-size=1280,900", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(folder)},
            start_new_session=True,
        )
    try:
        ports = folder / "profile" / "DevToolsActivePort"
        wait_for(lambda: ports.exists() and "\n" in ports.read_text(), "the browser listens", within_s=60)
        page = Page(_first_page(ports.read_text().splitlines()[0]))
        yield page
        page.close()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _first_page(port: str) -> str:
    def ask() -> str | None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=10) as answer:
            pages = [each for each in json.load(answer) if each["type"] == "page"]
        return str(pages[0]["webSocketDebuggerUrl"]) if pages else None

    return str(wait_for(ask, "there is a page"))
