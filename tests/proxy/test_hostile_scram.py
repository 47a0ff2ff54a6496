"""Logins by SCRAM through the proxy that go wrong in every way end as at a broker, and nobody else notices."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire, frame, request_bytes
from tests.proxy.processes import PATIENCE_S, ClusterProcess, ProxyProcess
from tests.proxy.test_scram import BOTH, LISTENS, SECRET, SETTINGS, address, prepared, produce_to_all
from tests.security.test_delegation_tokens import log_in

MB = 1 << 20
CROWD = 40


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(home, 3, *SETTINGS, SECRET) as made:
        yield made
        check_log(made)


def check_log(process: ClusterProcess | ProxyProcess) -> None:
    log = process.log.read_text()
    assert "Traceback" not in log
    assert max(map(len, log.splitlines()), default=0) < 1000, "strangers write no books in it"


@pytest.fixture(scope="module")
def proxy(home: Path, cluster: ClusterProcess) -> Iterator[ProxyProcess]:
    with ProxyProcess(home, cluster, *LISTENS) as made:
        yield made
        check_log(made)


@pytest.fixture(scope="module")
def someone(cluster: ClusterProcess) -> tuple[str, str]:
    """A topic, and a user who may use it."""
    return prepared(cluster)


class Innocent:
    """A client that has logged in, and goes on asking; it notes how long it waits, and what went wrong.

    Where its broker ends it logs in anew, as clients do.
    """

    def __init__(self, proxy: ProxyProcess, user: str) -> None:
        self.waits: list[float] = []
        self.error: BaseException | None = None
        self.cut_off = 0
        self._proxy, self._user = proxy, user
        self._wire = self._logged_in()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _logged_in(self) -> Wire:
        give_up = time.monotonic() + PATIENCE_S
        while True:
            wire = Wire(address(self._proxy))
            try:
                assert log_in(wire, self._user, "secret", more="").error_code == 0
                return wire
            except ConnectionError:  # a broker is just ending
                wire.close()
                assert time.monotonic() < give_up

    def _ask(self) -> None:
        try:
            while True:
                began = time.perf_counter()
                try:
                    assert self._wire.ask(MetadataRequest(topics=[]), 9).brokers
                except ConnectionError:
                    self.cut_off += 1
                    self._wire.close()
                    self._wire = self._logged_in()
                self.waits.append(time.perf_counter() - began)
                if self._ended.wait(0.01):
                    break
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._wire.close()
        assert self.error is None
        assert self.waits


@pytest.fixture(autouse=True)
def innocent(
    proxy: ProxyProcess, someone: tuple[str, str], request: pytest.FixtureRequest
) -> Iterator[Innocent]:
    made = Innocent(proxy, someone[1])
    yield made
    made.end()
    assert made.cut_off <= (1 if "broker_that_dies" in request.node.name else 0)
    print(f"{request.node.name}: longest wait {max(made.waits) * 1000:.1f} ms of {len(made.waits)}")


def said(message: Any, version: int) -> bytes:
    return frame(request_bytes(message, version))


def handshake(mechanism: str = BOTH[0]) -> bytes:
    return said(SaslHandshakeRequest(mechanism=mechanism), 1)


def words(content: bytes) -> bytes:
    return said(SaslAuthenticateRequest(auth_bytes=content), 2)


def of_version(api_key: int, version: int) -> bytes:
    return frame(struct.pack(">hhih", api_key, version, 1, -1) + b"\0")


def cut(whole: bytes, size: int) -> bytes:
    """Return a frame that ends early, and says so."""
    return frame(whole[4:-size])


FIRST = b"n,,n=nobody,r=abc"
CONVERSATIONS: dict[str, list[bytes]] = {
    "a handshake that is cut short": [cut(handshake(), 5)],
    "a handshake of nothing": [frame(struct.pack(">hhih", ApiKey.SASL_HANDSHAKE, 1, 1, -1))],
    "a handshake of a mechanism that claims 32 KB": [
        frame(struct.pack(">hhihh", ApiKey.SASL_HANDSHAKE, 1, 1, -1, 32767) + b"SCRAM")
    ],
    "a handshake of version 99": [of_version(ApiKey.SASL_HANDSHAKE, 99)],
    "words that are cut short": [handshake(), cut(words(FIRST), 5)],
    "words that claim 2 GB": [
        handshake(),
        frame(struct.pack(">hhihi", ApiKey.SASL_AUTHENTICATE, 0, 1, -1, 2**31 - 1) + b"n,,"),
    ],
    "words of version 99": [handshake(), of_version(ApiKey.SASL_AUTHENTICATE, 99)],
    "a frame that claims 2 GB": [struct.pack(">i", 2**31 - 1)],
    "a frame of less than nothing": [struct.pack(">i", -2)],
    "a frame that claims 2 GB for words": [handshake(), struct.pack(">i", 2**31 - 1) + words(FIRST)[4:]],
    "words without a handshake": [words(FIRST)],
    "a request without a login": [said(MetadataRequest(topics=[]), 9)],
    "a request amid a login": [handshake(), words(FIRST), said(MetadataRequest(topics=[]), 9)],
    "a mechanism of 30,000 letters": [handshake("S" * 30_000)],
    "a name of 30,000 letters": [handshake(), words(b"n,,n=" + b"a" * 30_000 + b",r=abc")],
    "a name of a MB": [handshake(), words(b"n,,n=" + b"a" * MB + b",r=abc")],
    "10,000 extensions": [handshake(), words(FIRST + b",a=b" * 10_000)],
    "900 extensions of tokens": [handshake(), words(FIRST + b",tokenauth=true" * 900)],
    "a nonce of 30,000 letters": [
        handshake(),
        words(b"n,,n=nobody,r=" + b"x" * 30_000),
        words(b"c=biws,r=x,p=AAAA"),
    ],
    "words that are not UTF-8": [handshake(), words(b"n,,n=\xff\xfe,r=abc")],
    "no words": [handshake(), words(b"")],
    "proof first": [handshake(), words(b"c=biws,r=abc,p=AAAA")],
    "first words twice": [handshake(), words(FIRST), words(FIRST)],
    "a client id of 30,000 letters": [
        frame(
            struct.pack(">hhih", ApiKey.SASL_HANDSHAKE, 1, 1, 30_000) + b"i" * 30_000 + handshake("NO")[-4:]
        )
    ],
    "two handshakes": [handshake(), handshake()],
    "handshakes of two mechanisms": [handshake(), handshake(BOTH[1]), words(FIRST)],
    "a handshake amid a login": [handshake(), words(FIRST), handshake(), words(FIRST)],
    "twenty handshakes": [handshake()] * 20,
}


def outcome(at: ClusterProcess | ProxyProcess, conversation: list[bytes]) -> list[int | str]:
    """Say it; give the codes that were answered, and whether the connection was closed then."""
    codes: list[int | str] = []
    with Wire(address(at)) as wire:
        wire.socket.settimeout(PATIENCE_S)
        try:
            for each in conversation:
                wire.send(each)
                codes.append(struct.unpack_from(">h", wire.frame(), _code_at(each))[0])
        except ConnectionError:
            codes.append("closed")
        else:  # who was told that something is wrong is let go
            codes.append("closed" if codes[-1] and wire.is_closed() else "open")
    return codes


def _code_at(asked: bytes) -> int:
    """Return where an answer's code is: behind the correlation id, and tags where its header has them."""
    api_key, version = struct.unpack_from(">hh", asked, 4)
    return 5 if (api_key, version) == (ApiKey.SASL_AUTHENTICATE, 2) else 4


OTHERWISE: dict[str, list[int | str]] = {
    "words without a handshake": [ErrorCode.ILLEGAL_SASL_STATE, "closed"],
    "900 extensions of tokens": [0, ErrorCode.SASL_AUTHENTICATION_FAILED, "closed"],  # no token lets in here
}
"""What is answered here and not at a broker."""


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_login_that_breaks_the_rules_ends_as_at_a_broker(
    proxy: ProxyProcess, cluster: ClusterProcess, name: str
) -> None:
    conversation = CONVERSATIONS[name]
    told = outcome(proxy, conversation)
    assert told == (OTHERWISE.get(name) or outcome(cluster, conversation))
    assert told[-1] == "closed" or not any(told[:-1])


def test_very_long_words_are_not_looked_through(
    proxy: ProxyProcess, cluster: ClusterProcess, someone: tuple[str, str]
) -> None:
    """Who is in may send requests of any size: a name of 10 MB took the loop 2 s, here and at the broker."""
    for at in (proxy, cluster):
        for long in (b"n,,n=" + b"a" * 10 * MB + b",r=abc", FIRST + b",a=b" * 2 * MB):
            with Wire(address(at)) as wire:
                assert log_in(wire, someone[1], "secret", more="").error_code == 0
                wire.send(handshake() + words(long))
                with suppress(ConnectionError):
                    wire.frame()
                    assert (
                        struct.unpack_from(">h", wire.frame(), 5)[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
                    )
                assert wire.is_closed()


def resident_mb(process: ClusterProcess | ProxyProcess) -> float:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB


def descriptors(process: ClusterProcess | ProxyProcess) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def flat_again(process: ClusterProcess | ProxyProcess, before: int) -> None:
    """Wait until no more descriptors are open than before, and few."""
    give_up = time.monotonic() + PATIENCE_S
    while descriptors(process) > before:
        assert time.monotonic() < give_up, f"{descriptors(process)} descriptors; {before} before"
        time.sleep(0.1)


def begun(proxy: ProxyProcess, user: str, *, how_far: int) -> Wire:
    """Begin a login and go no further; nothing of what is answered is read."""
    wire = Wire(address(proxy))
    first = words(f"n,,n={user},r=abc".encode())
    for each in [handshake()[:-3], handshake(), handshake() + first[:-7], handshake() + first][
        how_far : how_far + 1
    ]:
        wire.send(each)
    return wire


def test_crowds_that_begin_and_never_finish_cost_nobody_anything(
    proxy: ProxyProcess, cluster: ClusterProcess, someone: tuple[str, str], innocent: Innocent
) -> None:
    topic, user = someone

    def crowd() -> None:
        with ExitStack() as stack:
            there = [stack.enter_context(begun(proxy, user, how_far=number % 4)) for number in range(CROWD)]
            with Wire(address(proxy)) as wire:  # whoever comes meanwhile is let in
                assert log_in(wire, user, "secret", more="").error_code == 0
                assert set(produce_to_all(wire, topic)) == {0}
            assert len(there) == CROWD

    crowd()
    time.sleep(1)
    before = [(descriptors(each), resident_mb(each)) for each in (proxy, cluster)]
    for _ in range(10):
        crowd()
    for process, (open_before, mb_before) in zip((proxy, cluster), before, strict=True):
        flat_again(process, open_before)
        assert resident_mb(process) < mb_before + 16


def test_strangers_that_ask_and_never_read_are_not_read_any_more(proxy: ProxyProcess) -> None:
    asked = said(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    before = resident_mb(proxy)
    with ExitStack() as stack:
        for _ in range(CROWD):
            wire = stack.enter_context(Wire(address(proxy)))
            wire.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                wire.send(asked * 200_000)
        assert resident_mb(proxy) < before + 64


def test_a_broker_that_dies_amid_logins_ends_them_and_the_next_ones_go_elsewhere(
    proxy: ProxyProcess, cluster: ClusterProcess, someone: tuple[str, str]
) -> None:
    user = someone[1]
    open_before = descriptors(proxy)
    with ExitStack() as stack:
        logins = [stack.enter_context(Wire(address(proxy))) for _ in range(12)]
        for wire in logins:
            assert wire.ask(SaslHandshakeRequest(mechanism=BOTH[0]), 1).error_code == 0
            assert (
                wire.ask(SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=abc".encode()), 2).error_code == 0
            )
        cluster.do("end 1")  # which the proxy asks first
        try:
            ended = 0
            for wire in logins:
                wire.send(words(b"c=biws,r=abc,p=AAAA"))
                try:
                    answer = wire.frame()
                    assert struct.unpack_from(">h", answer, 5)[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
                except ConnectionError:
                    ended += 1
                assert wire.is_closed()
            assert ended == len(logins)
            with Wire(address(proxy)) as wire:
                assert log_in(wire, user, "secret", more="").error_code == 0
        finally:
            cluster.do("start 1")
    flat_again(proxy, open_before)
