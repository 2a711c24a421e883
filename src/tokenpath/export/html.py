"""One self-contained page: the report's content as data in `report.html`, drawn by `report.js`.

Everything a person reads is worded here, by the functions that word the terminal report; the script only
lays it out, with `textContent`, never with markup. The page's policy forbids every request and every
script or style but its own two, by hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

from tokenpath import __version__
from tokenpath.core.report import Report
from tokenpath.export import text
from tokenpath.export.escape import visible
from tokenpath.export.html_data import Limits, page_data

MAX_BYTES = 390_000
"""A page larger than this is rendered again with fewer rows."""

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_FALLBACK_WIDTH = 72
_FALLBACK_DEVICES = 16
_LIMITS = (
    Limits(),
    Limits(rows=250, findings=60, notes=60, steps=120, devices=32, lanes=16, chars=400),
    Limits(rows=100, findings=40, notes=40, steps=60, devices=16, lanes=12, bins=200, chars=300),
    Limits(
        rows=40,
        findings=25,
        notes=25,
        steps=30,
        devices=8,
        lanes=8,
        bins=150,
        chars=200,
        facts=4_000,
    ),
    Limits(
        rows=15,
        findings=12,
        notes=12,
        steps=12,
        devices=4,
        lanes=4,
        bins=100,
        chars=120,
        facts=1_000,
    ),
)


def render(report: Report) -> str:
    """The page, below 400 kB: it needs no network and no other file.

    Long tables are cut, the page says by how much; `export.json` has everything. Without scripts it
    shows the terminal report.
    """
    pages = (_page(report, limits) for limits in _LIMITS)
    page = next(pages)
    for smaller in pages:
        if len(page.encode("utf-8")) <= MAX_BYTES:
            break
        page = smaller
    return page


def _page(report: Report, limits: Limits) -> str:
    style, script = _asset("report.css"), _asset("report.js")
    parts = {
        "policy": (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        "title": escape(visible(report.headline, 120)),
        "style": style,
        "script": script,
        "version": escape(__version__),
        "data": _script_json(page_data(report, limits)),
        "fallback": escape(_fallback(report, limits)),
    }
    # One pass: a name that looks like a placeholder is not one.
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], _asset("report.html"))


def _fallback(report: Report, limits: Limits) -> str:
    """The terminal report for readers without scripts (mail previews, artefact viewers)."""
    short = replace(
        report,
        findings=report.findings[: limits.findings],
        notes=report.notes[: limits.notes],
        device_funnels=report.device_funnels[:_FALLBACK_DEVICES],
        step_funnels=(),
        request_funnels=report.request_funnels[:_FALLBACK_DEVICES],
        dismissed=report.dismissed[: limits.notes],
    )
    shown = text.render(short, width=_FALLBACK_WIDTH, details=True)
    return f"{shown}\nShortened, because scripts are off: `tokenpath explain` prints all of it.\n"


def escape(raw: str) -> str:
    """The text for an element or a quoted attribute of a page."""
    for char, entity in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ('"', "&quot;"),
        ("'", "&#39;"),
    ):
        raw = raw.replace(char, entity)
    return raw


def _script_json(value: Any) -> str:
    """JSON that may stand in a script element: no character that could end or open markup."""
    encoded = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        encoded = encoded.replace(char, f"\\u{ord(char):04x}")
    return encoded


@functools.cache
def _asset(name: str) -> str:
    return files("tokenpath.export").joinpath(name).read_text(encoding="utf-8").strip()


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
