"""Routes of the gateway, and what every answer carries.

Everything is read-only and works without scripts. Endpoints are synchronous functions, which Starlette runs
in threads: catalog and store are synchronous too.
"""

from __future__ import annotations

import json
import operator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mutoscope.models.registry import cards
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.pages import Pages
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing, InvalidInput, MutoscopeError
from mutoscope.platform.ids import sha256
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.web import content, views
from mutoscope.platform.web.metrics import exposition
from mutoscope.platform.web.poster import KINDS as POSTER_KINDS
from mutoscope.platform.web.poster import poster
from mutoscope.platform.wording import byte_size

_HERE = Path(__file__).parent

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Gateway:
    """The endpoints, over one catalog and one store."""

    def __init__(self, catalog: Catalog, store: ArtifactStore) -> None:
        self._catalog = catalog
        self._store = store
        self._pages = _pages()

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/", self.index),
                Route("/health", self.health),
                Route("/metrics", self.metrics),
                Route("/pool", self.pool),
                Route("/artifacts/{reference}", self.artifact),
                Route("/artifacts/{reference}/page", self.artifact_page),
                Route("/artifacts/{reference}/poster", self.artifact_poster),
                Route("/runs/{run_id}", self.run_page),
                Route("/workflows/{run_id}", self.workflow_page),
                Mount("/static", StaticFiles(directory=_HERE / "static")),
            ],
            middleware=[Middleware(SecurityHeaders)],
            exception_handlers={MutoscopeError: self._refuse, HTTPException: self._refuse},
        )

    def health(self, request: Request) -> Response:
        """200 while the catalog answers."""
        self._catalog.artifacts.list(limit=1)
        return JSONResponse({"status": "ok"})

    def index(self, request: Request) -> Response:
        """The contact sheet. `?q=` leads to an artifact by reference."""
        if wanted := request.query_params.get("q", "").strip():
            return RedirectResponse(f"/artifacts/{self._catalog.artifacts.resolve(wanted).digest}/page", 303)
        return self._page("sheet.html", view=views.sheet(self._catalog))

    def metrics(self, request: Request) -> Response:
        """The pool, for Prometheus."""
        data, content_type = exposition(self._catalog, request.headers.get("accept", ""), cards())
        return Response(data, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    def pool(self, request: Request) -> Response:
        """The pool, for people. The page asks for itself again every few seconds."""
        return self._page("pool.html", report=self._catalog.pool.report())

    def artifact(self, request: Request) -> Response:
        """The bytes."""
        return content.serve(request, self._store, self._named(request))

    def artifact_page(self, request: Request) -> Response:
        """What the bytes show, and where they come from. A prefix leads to the full name."""
        given = request.path_params["reference"]
        ref = self._catalog.artifacts.resolve(given)
        if given != ref.digest:
            return RedirectResponse(f"/artifacts/{ref.digest}/page", 307)
        view = views.artifact(self._catalog, ref.digest)
        return self._page("artifact.html", view=view, text=self._text(ref))

    def artifact_poster(self, request: Request) -> Response:
        """A video's first frame, a sound's waveform and spectrogram; an image is its own poster."""
        ref = self._named(request)
        if ref.kind not in POSTER_KINDS:
            return RedirectResponse(f"/artifacts/{ref.digest}", 307)
        tag = sha256(f"poster/1 {ref.digest}".encode())
        if content.is_current(request, tag):
            return Response(status_code=304, headers=content.entity_headers(tag))
        return Response(poster(self._store, ref), media_type="image/png", headers=content.entity_headers(tag))

    def run_page(self, request: Request) -> Response:
        view = views.run(self._catalog, request.path_params["run_id"])
        return self._page("run.html", view=view, weights=views.weight_names(self._catalog, view))

    def workflow_page(self, request: Request) -> Response:
        view = views.workflow(self._catalog, request.path_params["run_id"])
        ended = view.record.finished_at is not None
        return self._page(
            "workflow.html",
            view=view,
            page=Pages(self._catalog, self._store).url(view.record) if ended else None,
        )

    def _named(self, request: Request) -> ArtifactRef:
        return self._catalog.artifacts.resolve(request.path_params["reference"])

    def _text(self, ref: ArtifactRef) -> str | None:
        """A small text or JSON artifact, to show on its page."""
        if ref.kind not in ("text", "json", "reward", "weights") or ref.size > content.IN_MEMORY_BYTES // 512:
            return None
        if not self._store.contains(ref.digest):
            return None
        text = self._store.get(ref.digest).decode(errors="replace")
        if ref.media_type == "application/json":
            try:
                return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
            except ValueError:
                return text
        return text

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        html = self._pages.get_template(template).render(**values)
        return HTMLResponse(html, status_code=status, headers={"Cache-Control": "no-cache"})

    def _refuse(self, request: Request, error: Exception) -> Response:
        status, line = _status(error), str(getattr(error, "detail", None) or error)
        if "text/html" in request.headers.get("accept", ""):
            return self._page("error.html", status=status, code=status, line=line)
        return JSONResponse({"error": line}, status_code=status)


def _status(error: Exception) -> int:
    match error:
        case HTTPException():
            return error.status_code
        case ArtifactMissing():
            return 410  # catalogued, but gone
        case ArtifactCorrupt():
            return 500
        case InvalidInput():
            return 404
    return 500


class SecurityHeaders:
    """Adds the headers that every answer carries, unless the answer has set its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.lower().encode(), value.encode())
                        for name, value in _HEADERS.items()
                        if name.lower().encode() not in present
                    ),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def _pages() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["when"] = _when
    environment.filters["bytes"] = byte_size
    environment.filters["prompt"] = views.prompt_of
    environment.filters["merged"] = operator.or_
    environment.filters["duration"] = views.duration
    environment.filters["asked"] = views.asked
    return environment


def _when(seconds: float | None) -> str:
    """A time since the epoch, readable and sortable."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else "–"
