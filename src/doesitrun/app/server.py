"""The routes of the web app, its API endpoints and MCP tools, on Gradio's Server mode. The only module that imports Gradio."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import gradio
from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from gradio.route_utils import get_root_url

from doesitrun import catalog
from doesitrun.app import badge, pages, screens
from doesitrun.app.tools import TOOLS
from doesitrun.errors import DoesItRunError, UsageError

HEADERS = {
    # Whatever a hostile row might slip past the templates, no script but ours runs.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "strict-origin-when-cross-origin",
    "Cache-Control": "no-cache",
}
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
MCP_PATH = "/gradio_api/mcp"
LOOKS = frozenset({"app.css", "app.js", "theme.js", "mark.svg"})


def build(source: catalog.Source) -> gradio.Server:
    """The app over the data, ready to be launched."""
    server = gradio.Server(title="doesitrun", docs_url=None, redoc_url=None, openapi_url=None)
    _add_pages(server, pages.Pages(source))
    _add_files(server, source)
    for name, tool in TOOLS.items():
        server.api(_endpoint(tool, source), name=name, description=_first_lines(tool.__doc__ or ""), queue=False)
    return server


def serve(place: str, host: str | None, port: int | None, announce: Callable[[str, bool], None], *, opened: bool = False) -> None:
    """Serves the data at `place` until it is stopped; `announce` is told the address, and whether MCP is there, once the app answers.

    Raises WorkspaceError or HubError where the data cannot be read at the start, UsageError where the port is taken.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # whoever looks a model up is nobody else's business
    logging.getLogger("httpx").setLevel(logging.WARNING)
    source = catalog.open_data(place)
    server = build(source)
    pages.Pages(source).draw({}, "", whole=True)  # templates are compiled before the first visitor comes
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Gradio announces MCP even when it is asked to be quiet
            app, address, _ = server.launch(
                server_name=host,
                server_port=port,
                inbrowser=opened,
                share=False,
                quiet=True,
                mcp_server=True,
                ssr_mode=False,
                enable_monitoring=False,
                prevent_thread_lock=True,
            )
    except OSError as error:
        message = f"Cannot listen at {host or '127.0.0.1'}, port {port or 'from 7860 on'} ({error}): name another with --port or --host."
        raise UsageError(message) from None
    blocks = app.get_blocks()
    announce(address.rstrip("/"), bool(blocks.mcp_server))
    blocks.block_thread()


def _base(request: Request) -> str:
    """The app's own address as the visitor sees it, without a trailing slash."""
    return get_root_url(request, request.url.path, None)


# ---------------------------------------------------------------------------------- pages
def _add_pages(server: gradio.Server, drawn: pages.Pages) -> None:
    @server.get("/", response_class=HTMLResponse)
    def root(request: Request) -> HTMLResponse:
        return HTMLResponse(drawn.draw(request.query_params, _base(request), whole=True), headers=HEADERS)

    @server.get("/page", response_class=HTMLResponse)
    def page(request: Request) -> HTMLResponse:
        return HTMLResponse(drawn.draw(request.query_params, _base(request), whole=False), headers=HEADERS)

    @server.get("/look/{name}")
    def look(name: str) -> Response:
        if name not in LOOKS:
            raise HTTPException(404)
        kept = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
        return Response(pages.look(name), media_type=KINDS[name.rpartition(".")[2]], headers=kept)


# ---------------------------------------------------------------------------------- files
def _add_files(server: gradio.Server, source: catalog.Source) -> None:
    def asked(parameters: Mapping[str, str]) -> catalog.Page:
        try:
            return screens.page_of(source.current(), parameters)
        except DoesItRunError as error:
            raise HTTPException(404, str(error)) from None

    @server.get("/badge/{model_id:path}.svg")
    def badge_svg(model_id: str, request: Request) -> Response:
        page = asked({**request.query_params, "model": model_id})
        kept = HEADERS | {
            "Cache-Control": "public, max-age=600",
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
        }
        return Response(badge.svg(page.line), media_type="image/svg+xml", headers=kept)

    @server.get("/run.py")
    def run_py(request: Request) -> PlainTextResponse:
        if not request.query_params.get("model"):
            raise HTTPException(404, "Name a model: /run.py?model=ORG/NAME.")
        page = asked(request.query_params)
        if not page.run_py:
            raise HTTPException(404, "No script was run for this model.")
        headers = HEADERS | {"Content-Disposition": 'attachment; filename="run.py"'}
        return PlainTextResponse(page.run_py.encode("utf-8", "replace"), media_type="text/x-python", headers=headers)

    @server.get("/changes.atom")
    def feed(request: Request) -> Response:
        events = catalog.events(source.current(), target=request.query_params.get("target") or None)
        text = catalog.atom(events, "Does it run? What changed", _base(request), "{address}/?{query}")
        return Response(text.encode("utf-8", "replace"), media_type="application/atom+xml", headers=HEADERS)


# ---------------------------------------------------------------------------------- API and MCP
def _first_lines(doc: str) -> str:
    """The docstring up to its Args."""
    return " ".join(doc.partition("Args:")[0].split())


def _endpoint(tool: Callable[..., dict[str, Any]], source: catalog.Source) -> Callable[..., Any]:
    """The tool on the data as they are; Gradio publishes its signature, less the data, and its documentation.

    Programs get the answer as JSON. Of an MCP tool Gradio sends `str(answer)`, so agents are given JSON as text.
    """

    @functools.wraps(tool)
    def endpoint(request: gradio.Request, *given: Any) -> Any:
        try:
            answer = tool(source.current(), *given)
        except DoesItRunError as error:
            raise gradio.Error(str(error), print_exception=False) from None
        return json.dumps(answer, ensure_ascii=False) if request.url.path.startswith(MCP_PATH) else answer

    signature = inspect.signature(tool, eval_str=True)
    _, *given = signature.parameters.values()
    asking = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=gradio.Request)
    del endpoint.__wrapped__
    endpoint.__signature__ = signature.replace(parameters=[asking, *given])  # type: ignore[attr-defined]
    endpoint.__annotations__ = {each.name: each.annotation for each in [asking, *given]} | {"return": signature.return_annotation}
    return endpoint
