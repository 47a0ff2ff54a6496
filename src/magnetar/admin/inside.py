"""What a client has asked a part of this broker for, carried out as if it had asked over the network itself.

Kafka's requests go through the handlers, guards and audit of Kafka connections, those of the admin REST through its
application: there is no second implementation, and no other rule. A request that is another broker's to carry out is
passed on there in the client's name, as brokers pass on what they are asked about partitions:

    asked     {"role", "method", "proxy", "door", "address", "client",
               "api": key, "version": number, "body": base64}        or    {..., "verb", "path", "query", "body": text}
    answered  {"body": base64}    or    {"status", "body": text, "moved": broker or null}    or    {"error": words}
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote

from starlette.types import ASGIApp

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import AdminError, Declined, Forbidden, Invalid, NotThere, Unreachable
from magnetar.admin.refusals import refusal
from magnetar.auth.authentication import Principal
from magnetar.base.errors import BrokerError
from magnetar.kafka.audited import audited
from magnetar.kafka.authorization import guarded
from magnetar.kafka.context import RequestContext, Software
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.login import Login
from magnetar.kafka.route import is_reset
from magnetar.kafka.services import KafkaServices
from magnetar.kafka.settings import KafkaSettings
from magnetar.node.broker import Broker
from magnetar.pulsar.rest.request import INSIDE, InsideCaller
from magnetar.serving.listeners import Endpoint, Listener
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import ApiKey, response_class
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.metadata_response import MetadataResponse

ABOUT = "admin.inside"
_WAIT_S = 60.0
"""How long a thread waits for the loop: longer than any request of an operator's takes."""
_MOST_BYTES = 1 << 20
"""Of a request that is passed on: in base64, within what brokers may ask each other."""
_AGAIN = "Try again in a moment."
Answer = TypeVar("Answer", bound=Message)


class RestAnswer(NamedTuple):
    """An answer of the admin REST."""

    status: int
    body: bytes

    @property
    def reason(self) -> str:
        """Why a request was refused, in words."""
        try:
            told = json.loads(self.body)
        except ValueError:
            told = None
        if isinstance(told, dict):
            error = told.get("error")
            if isinstance(error, dict):
                return f"{error.get('message', '')} {error.get('next_step', '')}".strip()
            return str(told.get("reason", ""))
        return self.body[:300].decode("utf-8", "replace")


class Inside:
    """One broker's; ``rest`` is the application that serves its admin REST."""

    def __init__(self, broker: Broker, rest: ASGIApp) -> None:
        self._broker = broker
        self._rest = rest

    # Kafka's requests.

    async def kafka(self, caller: InsideCaller, node_id: int, request: Message, version: int) -> bytes:
        """Return a broker's answer to a request as its bytes; raise `AdminError` where there is none."""
        body = request.encode(version)
        if node_id == self._broker.cluster.ownership.node_id:
            return await self._kafka_here(caller, request.API_KEY, version, body)
        if len(body) > _MOST_BYTES:
            raise Declined(
                f"broker {node_id} has that partition, and takes {_MOST_BYTES >> 20} MB at most from another one",
                "Send it to that broker itself.",
            )
        asked = {"api": int(request.API_KEY), "version": version, "body": _packed(body)}
        return _unpacked((await self._there(caller, node_id, asked))["body"])

    async def _kafka_here(self, caller: InsideCaller, api_key: int, version: int, body: bytes) -> bytes:
        services = self._broker.offers.find(KafkaServices)
        if services is None:
            raise Declined("this broker does not speak Kafka's protocol", "Add kafka to messaging.protocols.")
        route = ROUTE_BY_KEY[api_key]
        request_class, handler = route.load()
        request = request_class.decode(body, version)
        context = self._context(services, caller, version)
        if context.access is not None:
            handler = guarded(route, handler, context.access, request)
        work = handler(request, context)
        if route.changes or (api_key == ApiKey.OFFSET_COMMIT and is_reset(request)):
            work = audited(work, context, route, request, 0)
        try:
            response = await work
        except ConnectionAbortedError as error:  # how Kafka's connections end that ask what is not theirs
            raise Forbidden(str(error), "Ask as a role that has the right to it.") from None
        return bytes(response.encode(version))

    def _context(self, services: KafkaServices, caller: InsideCaller, version: int) -> RequestContext:
        authentication = self._broker.security.authentication
        listener = _listener(self._broker)
        login = None
        if authentication.enabled:
            login = Login(self._broker, listener, caller.principal, host=caller.address)
        access = self._broker.security.authorization.access_of(caller.principal, caller.address)
        return RequestContext(
            services,
            version,
            f"magnetar-{caller.door}",
            f"/{caller.address}",
            listener,
            login,
            access,
            Software(caller.client[:100]),
            door=caller.door,
        )

    # The admin REST's.

    async def rest(
        self, caller: InsideCaller, verb: str, path: str, query: str = "", body: bytes = b""
    ) -> RestAnswer:
        """Return what the admin REST answers, of this broker or of the one that it names; raise `AdminError`."""
        answer = await self._rest_here(caller, verb, path, query, body)
        if answer.status != 307:
            return answer
        if caller.moved_to is None:
            raise Unreachable("no broker has what this is about yet", _AGAIN)
        asked = {"verb": verb, "path": path, "query": query, "body": body.decode()}
        told = await self._there(caller, caller.moved_to, asked)
        if told["status"] == 307:
            raise Unreachable("it moves to another broker just now", _AGAIN)
        return RestAnswer(told["status"], told["body"].encode())

    async def _rest_here(
        self, caller: InsideCaller, verb: str, path: str, query: str, body: bytes
    ) -> RestAnswer:
        caller.moved_to = None
        status, parts = 500, []
        incoming = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            part = next(incoming, None)
            return part if part is not None else await asyncio.Future()

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._rest(_scope(caller, verb, path, query, len(body)), receive, send)
        return RestAnswer(status, b"".join(parts))

    # Other brokers.

    async def _there(self, caller: InsideCaller, node_id: int, asked: Mapping[str, Any]) -> Any:
        principal = caller.principal
        by = {
            "role": principal.role,
            "method": principal.method,
            "proxy": principal.proxy,
            "door": caller.door,
            "address": caller.address,
            "client": caller.client,
        }
        try:
            told = await self._broker.cluster.between.ask(node_id, ABOUT, {**by, **asked})
        except BrokerError as error:
            raise Unreachable(
                f"{error}; whether it was done is not known", "Look before you try again."
            ) from None
        if "error" in told:
            raise _KINDS.get(told["kind"], AdminError)(told["error"], told["next_step"])
        return told

    def answer_others(self) -> None:
        """Register to carry out what others pass on."""
        self._broker.cluster.between.answer(ABOUT, _read, self._passed_on)

    async def _passed_on(self, passed: tuple[InsideCaller, Mapping[str, Any]]) -> dict[str, Any]:
        caller, asked = passed
        try:
            if "api" in asked:
                body = _unpacked(asked["body"])
                return {"body": _packed(await self._kafka_here(caller, asked["api"], asked["version"], body))}
            text = asked["body"].encode()
            answer = await self._rest_here(caller, asked["verb"], asked["path"], asked["query"], text)
        except AdminError as error:
            return {"error": str(error), "kind": type(error).__name__, "next_step": error.next_step}
        except WireError as error:
            return {"error": str(error), "kind": "Declined", "next_step": "Are both brokers of one version?"}
        return {"status": answer.status, "body": answer.body.decode("utf-8", "replace")}


_KINDS: dict[str, type[AdminError]] = {
    each.__name__: each for each in (Declined, Forbidden, Invalid, NotThere, Unreachable)
}


class InsideCluster(ClusterAdmin):
    """The same orders as the command line's, for a client that has shown who it is. Used by a thread, not the loop."""

    def __init__(
        self, broker: Broker, inside: Inside, caller: InsideCaller, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._ownership = broker.cluster.ownership
        self._inside = inside
        self._caller = caller
        self._loop = loop

    def ask(self, request: Message, answer: type[Answer], *, most: int | None = None) -> Answer:
        return self._on(self._ownership.node_id, request, answer, most)

    def ask_node(self, node_id: int | None, request: Message, answer: type[Answer]) -> Answer:
        return self._on(self._ownership.node_id if node_id is None else node_id, request, answer, None)

    def ask_coordinator(
        self, key: str, request: Message, answer: type[Answer], *, most: int | None = None, key_type: int = 0
    ) -> Answer:
        return self._on(self._coordinator(key, key_type), request, answer, most)

    def coordinator(self, group: str) -> int:
        return self._coordinator(group, 0)

    def _coordinator(self, key: str, key_type: int) -> int:
        asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        (found,) = self.ask(asked, FindCoordinatorResponse).coordinators
        if found.error_code:
            raise refusal(
                found.error_code, found.error_message, f"{'transactional id' if key_type else 'group'} {key}"
            )
        return found.node_id

    def ask_all(
        self, request: Message, answer: type[Answer], *, most: int | None = None
    ) -> tuple[Answer, ...]:
        return tuple(self._on(each.node_id, request, answer, most) for each in self._ownership.brokers())

    def ask_leaders(
        self,
        partitions: Iterable[tuple[str, int]],
        request: Callable[[list[tuple[str, int]]], Message],
        answer: type[Answer],
    ) -> tuple[Answer, ...]:
        keys = list(partitions)
        topics = [MetadataRequestTopic(name=name) for name in dict.fromkeys(name for name, _ in keys)]
        told = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse)
        leaders = {
            (topic.name, each.partition_index): each.leader_id
            for topic in told.topics
            for each in topic.partitions
        }
        by_leader: dict[int, list[tuple[str, int]]] = {}
        for key in keys:
            leader = leaders.get(key, -1)
            by_leader.setdefault(self._ownership.node_id if leader < 0 else leader, []).append(key)
        return tuple(self._on(node_id, request(some), answer, None) for node_id, some in by_leader.items())

    def close(self) -> None:
        """There is no connection."""

    def _on(self, node_id: int, request: Message, answer: type[Answer], most: int | None) -> Answer:
        newest = ROUTE_BY_KEY[request.API_KEY].versions[-1]
        version = newest if most is None else min(newest, most)
        work = self._inside.kafka(self._caller, node_id, request, version)
        body = asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)
        return cast(Answer, response_class(request.API_KEY).decode(memoryview(body), version))


def _read(asked: object) -> tuple[InsideCaller, Mapping[str, Any]]:
    """Read what another broker passes on; raise ``ValueError``."""
    given = cast(Any, asked)
    try:
        words = [given[each] for each in ("role", "method", "proxy", "door", "address", "client", "body")]
        if "api" in given:
            fits = given["version"] in ROUTE_BY_KEY[given["api"]].versions
        else:
            words += [given[each] for each in ("verb", "path", "query")]
            fits = True
        if not fits or not all(isinstance(each, str) for each in words):
            raise ValueError
    except (KeyError, TypeError) as error:
        raise ValueError from error
    principal = Principal(given["role"], given["method"], proxy=given["proxy"])
    return InsideCaller(principal, given["door"], given["address"], given["client"]), given


def _packed(body: bytes) -> str:
    return base64.b64encode(body).decode()


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        raise Declined("what another broker says cannot be read", "Are both of one version?") from None


def _listener(broker: Broker) -> Listener:
    """Return a Kafka listener as its clients know it; answers name brokers by their addresses at it."""
    ownership = broker.cluster.ownership
    own = next((each.endpoints for each in ownership.brokers() if each.node_id == ownership.node_id), {})
    beside = ("PULSAR", "PULSAR_SSL", "HTTP", "HTTPS")
    wanted = broker.settings.of(KafkaSettings).inter_broker_listener_name
    names = [name for name in own if name not in beside]
    name = wanted if wanted in names else next(iter(names), "INSIDE")
    place = own.get(name, Endpoint("", 0))
    return Listener(name, "kafka", place, place)


def _scope(caller: InsideCaller, verb: str, path: str, query: str, nbytes: int) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": verb,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(nbytes).encode())],
        "scheme": "http",
        "server": ("inside", 0),
        "client": (caller.address, 0),
        "state": {},
        INSIDE: caller,
    }
