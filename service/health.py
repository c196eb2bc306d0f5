"""Is it live, is it ready: for orchestrators, also under the Open Inference Protocol's names."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from core import __version__
from service.holder import Holder
from service.schemas import Health, encode


def health_routes(holder: Holder) -> APIRouter:
    """live: the process answers. ready: a verified release is warm, and the service is not about to stop."""
    routes = APIRouter(tags=["health"])

    async def live() -> Response:
        """The process answers."""
        return Response(encode(Health("live")), media_type="application/json")

    async def ready() -> Response:
        """A verified release is mapped and warm; 503 before that, and from SIGTERM on."""
        status = "ready" if holder.ready else "draining" if holder.draining else "no release yet"
        body = encode(Health(status, holder.name))
        return Response(body, 200 if holder.ready else 503, media_type="application/json")

    async def model() -> Response:
        """The model's metadata, by the Open Inference Protocol."""
        about: dict[str, Any] = {
            "name": "xreg",
            "versions": [holder.name] if holder.name else [],
            "platform": f"xreg-{__version__}",
            "inputs": [{"name": "query", "datatype": "BYTES", "shape": [1]}],
            "outputs": [
                {"name": "ad", "datatype": "BYTES", "shape": [-1]},
                {"name": "relevance", "datatype": "FP32", "shape": [-1]},
            ],
        }
        return Response(encode(about), media_type="application/json")

    unready: dict[int | str, dict[str, Any]] = {503: {"description": "not ready"}}
    for prefix in ("", "/v2"):
        routes.add_api_route(f"{prefix}/health/live", live, name=f"{prefix[1:]}live", response_class=Response)
        routes.add_api_route(
            f"{prefix}/health/ready", ready, name=f"{prefix[1:]}ready", responses=unready,
            response_class=Response,
        )  # fmt: skip
    routes.add_api_route("/v2/models/xreg", model, response_class=Response)
    return routes
