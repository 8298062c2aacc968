"""Pages as HTML: templates, and how links are made.

A page brings its own style and needs nothing else: no script, nothing from elsewhere. Everything that a
person or a model wrote is escaped, and the content security policy in the page forbids what escaping should
have prevented.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mutoscope.platform.artifacts import layout
from mutoscope.platform.custody.pages_path import MANIFEST, folder_of, relative, subject
from mutoscope.platform.reward import told
from mutoscope.platform.wording import byte_size, excerpt

HTML, JSON = "text/html; charset=utf-8", "application/json"

_FOLDER = Path(__file__).parent / "templates"
_SMALL_PIXELS = 200
"""Pictures narrower than this are enlarged with hard pixels: smoothing would hide what is there."""


@dataclass(frozen=True, slots=True)
class Links:
    """How a page leads on.

    Attributes:
        bytes: the address of an artifact's bytes, by digest.
        page: the address of another page, by its path; None where the page stands alone.
        sources: where its pictures may come from, as a content security policy says it.
    """

    bytes: Callable[[str], str]
    page: Callable[[str], str | None]
    sources: str

    @classmethod
    def within(cls, folder: str) -> Links:
        """Relative links, for a page in a folder of the store: they work wherever the store is looked at."""
        return cls(
            bytes=lambda digest: relative(layout.object_name(digest), folder),
            page=lambda path: relative(path, folder),
            # 'self' means nothing to a page that was opened from a folder.
            sources="'self' file:",
        )


def render(template: str, links: Links, **values: Any) -> bytes:
    """A page."""
    style = _style()
    page = _environment().get_template(template)
    return page.render(links=links, style=Markup(style), policy=_policy(style, links), **values).encode()


def manifest_json(facts: dict[str, Any]) -> bytes:
    """Facts as a document; equal facts, equal bytes."""
    return (json.dumps(facts, indent=2, ensure_ascii=False, default=dict) + "\n").encode()


def _policy(style: str, links: Links) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src {links.sources} data:; media-src {links.sources}; "
        f"style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=1)
def _style() -> str:
    return (_FOLDER / "page.css").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": byte_size,
        "when": _when,
        "clock": _clock,
        "seconds": _seconds,
        "subject": subject,
        "folder": folder_of,
        "excerpt": excerpt,
        "value": _value,
        "small": lambda ref: int(ref.meta.get("width") or _SMALL_PIXELS) < _SMALL_PIXELS,
        "dimensions": _dimensions,
    }
    environment.globals["manifest_name"] = MANIFEST
    return environment


def _when(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B %Y, %H:%M:%S UTC") if seconds else "–"


def _clock(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M") if seconds else "–"


def _seconds(seconds: float | None) -> str:
    """A span as a person reads it."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _value(value: Any) -> str:
    """A parameter as text; structures as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _dimensions(ref: Any) -> str:
    """``64 × 64, 16 frames`` or ``score 0.9312``: what the artifact's own facts say."""
    meta, parts = ref.meta, []
    if ref.kind == "reward":
        parts.append(told(meta))
    if meta.get("width") and meta.get("height"):
        parts.append(f"{meta['width']} × {meta['height']}")
    if meta.get("frames"):
        parts.append(f"{meta['frames']} frames")
    if meta.get("fps"):
        parts.append(f"{meta['fps']:g} fps")
    if meta.get("channels") and meta.get("sample_rate"):
        channels = {1: "mono", 2: "stereo"}.get(meta["channels"], f"{meta['channels']} channels")
        parts.append(f"{channels}, {meta['sample_rate'] / 1000:g} kHz")
    if ref.kind == "audio" and meta.get("seconds"):
        parts.append(f"{meta['seconds']:.3g} s")
    return ", ".join(parts)
