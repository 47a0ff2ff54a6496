"""The admin REST of brokers of a cluster, asked as Pulsar's own tools ask it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tests.cluster.brokers import BrokerProcess


class _Followed(HTTPRedirectHandler):
    """As Pulsar's clients do, go where another broker is named, with the same method and body."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request:
        return Request(newurl, data=req.data, headers=dict(req.headers), method=req.get_method())


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> Any:
    """Ask the admin REST as ``pulsar-admin`` does; return its JSON."""
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{broker.http}/admin/v2/{path}"
    made = Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
    with build_opener(_Followed).open(made, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def bundles(broker: BrokerProcess) -> list[str]:
    bounds = ask(broker, "GET", "namespaces/public/default/bundles")["boundaries"]
    return [f"{first}_{end}" for first, end in pairwise(bounds)]
