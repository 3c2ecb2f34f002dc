"""The FastAPI half of the application: administration, metrics and documentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from fencelog.api.admin.admin import admin_router
from fencelog.api.admin.ask_brokers import StatsOfBrokers, asking
from fencelog.api.admin.autorecovery_routes import add_autorecovery_routes
from fencelog.api.admin.bookie_table import add_bookie_table
from fencelog.api.admin.broker_admin import add_broker_routes
from fencelog.api.admin.doctor_routes import add_doctor_routes
from fencelog.api.admin.models import PROBLEM_RESPONSES, JsonLine
from fencelog.api.admin.rate_routes import add_rates
from fencelog.api.admin.subscription_table_routes import add_subscription_table
from fencelog.api.admin.topic_table_routes import add_topic_table
from fencelog.api.http.asgi import AsgiApp, Scope
from fencelog.api.http.metrics import METRICS, METRICS_TYPE
from fencelog.api.http.problems import (
    MEDIA_TYPE,
    log_problem,
    problem_body,
    problem_headers,
    unexpected,
)
from fencelog.api.server.invalid_core import complaints
from fencelog.api.server.openapi import DESCRIPTION, complete_document
from fencelog.api.subscriptions.admin import add_subscription_routes
from fencelog.api.web_console.reference import REFERENCE_POLICY, reference_page
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin
    from fencelog.api.admin.doctor.doctor import Doctor
    from fencelog.api.http.metrics import ApiMetrics
    from fencelog.api.metrics.service import ServiceMetrics
    from fencelog.api.routing.peers import LinkPeers
    from fencelog.api.subscriptions.lifecycle import SubscriptionLifecycle
    from fencelog.broker.broker import Broker
    from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies

_CODES = {
    404: ErrorCode.NOT_FOUND,
    413: ErrorCode.PAYLOAD_TOO_LARGE,
    415: ErrorCode.UNSUPPORTED_MEDIA_TYPE,
}

_PAGE_HEADERS = {
    "content-security-policy": REFERENCE_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

OnProblem = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Framework:
    """The FastAPI application, and all its routes."""

    app: AsgiApp
    routes: Sequence[BaseRoute]

    def methods_at(self, scope: Scope) -> set[str]:
        """Return the methods that are handled at a scope's path; none: there is nothing. A path
        with a verb (``…/NAME:drain``) is no other route's name."""
        asked = {**scope, "method": "", "root_path": ""}
        found = [
            route
            for route in self.routes
            if isinstance(route, Route) and route.matches(asked)[0] is not Match.NONE
        ]
        with_verb = [route for route in found if ":" in route.path]
        return {method for route in with_verb or found for method in route.methods or ()} - {"HEAD"}


def build_framework(
    broker: Broker,
    bookies: RegisteredBookies,
    peers: LinkPeers,
    lifecycle: SubscriptionLifecycle,
    counted: ApiMetrics,
    healing: AutorecoveryAdmin,
    metrics: ServiceMetrics,
    doctor: Doctor,
) -> Framework:
    """Build the FastAPI half of a broker's application."""
    router = admin_router(broker, bookies)
    add_broker_routes(router, broker, peers)
    stats = StatsOfBrokers(broker.config.broker_id, lambda: broker.brokers(), asking(peers))
    add_topic_table(router, broker, peers, stats)
    add_rates(router, broker, peers, stats)
    add_subscription_table(router, broker, peers, stats)
    add_subscription_routes(router, broker, lifecycle)
    add_bookie_table(router, bookies, healing)
    add_autorecovery_routes(router, healing)
    add_doctor_routes(router, broker, peers, doctor)
    app = FastAPI(
        title="fencelog",
        description=DESCRIPTION,
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=None,
        redirect_slashes=False,
        default_response_class=JsonLine,
        generate_unique_id_function=attrgetter("name"),
    )
    # As they are: FastAPI builds those of an included router once more, at the first request. That
    # may be the one by which another broker hands over its partitions, while appends wait.
    app.router.routes.extend(router.routes)
    _add_docs(app)
    _add_metrics(app, metrics)
    _add_error_handlers(app, counted.problem)
    _complete_document(app)
    return Framework(cast("AsgiApp", app), app.routes)


_START = """<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fencelog</title>
<link rel="icon" href="console/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="console/style.css">
<main>
<h1>fencelog</h1>
<p>A log service. <a href="console/">Console</a>; <a href="docs">all requests</a>,
<a href="openapi.json">for machines</a>;
<a href="v1/topics">topics</a>, <a href="v1/brokers">brokers</a>,
<a href="v1/bookies">bookies</a>; <a href="healthz">health</a>,
<a href="readyz">readiness</a>, <a href="metrics">metrics</a>.</p>
</main>
</html>
"""


def _add_docs(app: FastAPI) -> None:
    """Add the pages that lead to everything: the first one, and the one of all requests."""

    @app.get("/", include_in_schema=False)
    async def start() -> HTMLResponse:
        return HTMLResponse(_START, headers=_PAGE_HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(), headers=_PAGE_HEADERS)

    @cache
    def page() -> str:
        return reference_page(app.openapi())


def _add_metrics(app: FastAPI, shown: ServiceMetrics) -> None:
    @app.get(
        METRICS,
        tags=["health"],
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {}}, "description": "Prometheus text format"},
            **PROBLEM_RESPONSES,
        },
    )
    async def metrics(partitions: bool = False) -> Response:
        """Return the metrics for Prometheus. Those of self-healing are left out while the metadata
        store is away. With `partitions` the busiest partitions have figures of their own."""
        text = await shown.text(partitions=partitions)
        return Response(text, media_type=METRICS_TYPE.decode())


def _add_error_handlers(app: FastAPI, on_problem: OnProblem) -> None:
    def answer(request: Request, error: FencelogError) -> Response:
        on_problem(error.code.slug)
        if error.code is not ErrorCode.INTERNAL:
            log_problem(error, request.method, request.url.path)
        headers = {name.decode(): value.decode() for name, value in problem_headers(error)}
        return Response(
            problem_body(error, request.url.path),
            status_code=error.code.status,
            media_type=MEDIA_TYPE.decode(),
            headers=headers,
        )

    @app.exception_handler(FencelogError)
    async def on_fencelog_error(request: Request, error: FencelogError) -> Response:
        return answer(request, error)

    @app.exception_handler(Exception)
    async def on_unexpected(request: Request, _: Exception) -> Response:
        # Starlette raises it again after this answer, and the application logs it.
        return answer(request, unexpected())

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, validation_error(error, request.headers.get("content-type", "")))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, FencelogError):
            return answer(request, error.__cause__)  # The body did not arrive, see ``Cycle``.
        code = _CODES.get(error.status_code, ErrorCode.BAD_REQUEST)
        where = f"{request.method} {request.url.path}"
        detail = error.detail if code is ErrorCode.BAD_REQUEST else f"{where}: {error.detail}"
        return answer(request, FencelogError(code, detail))


def validation_error(error: RequestValidationError, content_type: str) -> FencelogError:
    """Return an error with the first complaint as the detail, and all of them as ``errors``.

    A body of another type (curl's default is a form) is refused for its type, which is the cause.
    """
    in_body = any(item["loc"][:1] == ("body",) for item in error.errors())
    if in_body and content_type.partition(";")[0].strip().lower() != "application/json":
        given = content_type or "none"
        return FencelogError(
            ErrorCode.UNSUPPORTED_MEDIA_TYPE, f"Content-Type is {given}; taken is application/json"
        )
    errors = complaints(error.errors(), error.body)
    field, why = errors[0]["field"], errors[0]["why"]
    extra = {"field" if in_body else "parameter": field}
    return FencelogError(ErrorCode.BAD_REQUEST, f"{field} {why}", errors=errors, **extra)


def _complete_document(app: FastAPI) -> None:
    generated = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete_document(generated())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way
