"""ApiVersions through the proxy: what brokers list, less what does not pass, and the proxy in a broker's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.proxy.kafka.passed import versions_of
from magnetar.proxy.kafka.request import framed, written
from magnetar.records.compression import Buffer
from magnetar.wire.kafka.header import RequestHeader, decode_response_header
from magnetar.wire.kafka.messages import ApiKey, response_class
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest

_FIRST_WITH_NODE = 5
_NO_NODE = -1


def node_asked_for(header: RequestHeader, body: memoryview) -> ApiVersionsRequest | None:
    """Return a request that says which cluster and node the client wants (KIP-1242); None for any other.

    One that names the cluster alone, or the node, is left to the broker, which refuses it.
    """
    if header.api_version < _FIRST_WITH_NODE:
        return None
    request = ApiVersionsRequest.decode(body, header.api_version)
    return None if request.cluster_id is None or request.node_id == _NO_NODE else request


def of_any_node(header: RequestHeader, request: ApiVersionsRequest) -> memoryview:
    """Return the request as one that any broker answers: clients of the proxy know the proxy's node alone."""
    request.cluster_id, request.node_id = None, _NO_NODE
    return framed(header, request)


def listed(header: RequestHeader, frame: memoryview) -> Sequence[Buffer]:
    """Return a broker's answer without the APIs and the later versions that do not pass.

    The lowest versions stay as the broker lists them: librdkafka switches features by them, and Kafka lists some that
    are refused when they come.
    """
    _, body = decode_response_header(frame, header.api_key, header.api_version)
    answer: Any = response_class(ApiKey.API_VERSIONS).decode(body, header.api_version)
    kept = []
    for each in answer.api_keys:
        passed = versions_of(each.api_key)
        if passed and each.min_version <= passed[-1] and each.max_version >= passed[0]:
            each.max_version = min(each.max_version, passed[-1])
            kept.append(each)
    answer.api_keys = kept
    return written(header, answer)
