"""A page in a real browser: what its scripts made of it, measured by a probe that the page's policy admits."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=3000",
    "--enable-logging=stderr", "--v=0", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


@dataclass(frozen=True)
class Visit:
    """What a browser made of a page."""

    console: list[str]
    """What it wrote to the console, errors and refusals of the policy included."""
    probe: dict[str, Any]
    """What the probe found."""


def find_browser() -> str:
    """Path of Chromium; without one the test is skipped, in CI it fails."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    reason = f"no {' or '.join(NAMES)} on the path: the page is not tested in a browser"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


# A window is never narrower than 500 pixels; a frame in it can be.
FRAME = """<!doctype html><meta name="color-scheme" content="light dark">
<script>onmessage = (event) => {{ document.documentElement.dataset.probe = event.data; }};</script>
<iframe src="page.html" width="{width}" height="{height}" style="border: 0"></iframe>"""


def with_probe(page: str, script: str) -> str:
    """The page with one more script, which fills `result`, admitted by its hash."""
    source = f"const result = {{}};\n{script}\nparent.postMessage(JSON.stringify(result), '*');"
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    assert page.count("script-src '") == 1
    page = page.replace("script-src '", f"script-src 'sha256-{digest}' '")
    return page.replace("</body>", f"<script>{source}</script></body>")


def visit(
    page: str, folder: Path, width: int, height: int = 900, script: str = "", dark: bool = False
) -> Visit:
    """The page opened from a file in a frame of that size."""
    browser = find_browser()
    (folder / "page.html").write_text(with_probe(page, script), encoding="utf-8")
    outer = folder / "frame.html"
    outer.write_text(FRAME.format(width=width, height=height), encoding="utf-8")
    command = [
        browser,
        *SWITCHES,
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,1000",
    ]
    if dark:
        command.append("--blink-settings=preferredColorScheme=0")
    done = subprocess.run(
        [*command, "--dump-dom", outer.as_uri()],
        capture_output=True,
        encoding="utf-8",
        timeout=50,
        check=True,
    )
    found = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert found, f"the probe did not run: {done.stderr[-2000:]}"
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Visit(console, json.loads(html.unescape(found[1])))
