"""Pulsar's proxies: whom they ask for must be allowed what is asked, and so must they; others speak for nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from magnetar.admin.client import ask
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.process import BrokerProcess
from tests.proxy.processes import ProxyProcess
from tests.pulsar.raw import Raw, frame
from tests.security.signing import OTHER_SECRET, SECURED, expiring, token

STATS = "/admin/v2/persistent/public/default/{topic}/stats"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """``gate`` is a proxy that may do everything on ``both``, ``door`` one that is a super user as well."""
    with started(tmp_path_factory.mktemp("proxied") / "data") as process:
        root = {"Authorization": f"Bearer {token('root')}"}
        for topic in ("both", "hers", "gates"):
            path = f"{url(process)}/admin/v2/persistent/public/default/{topic}"
            assert httpx.put(path, headers=root).status_code == 204
        for topic, role in (("both", "bob"), ("both", "gate"), ("hers", "bob"), ("gates", "gate")):
            ask(process.data, "grant", target=topic, role=role, actions=["produce", "consume"])
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]


def started(data: Path, *more: str) -> BrokerProcess:
    texts = [*SECURED, "pulsar.listeners=pulsar://127.0.0.1:0", "http.listeners=http://127.0.0.1:0"]
    texts += ["listeners=PLAINTEXT://127.0.0.1:0", "schema.registry.listeners=http://127.0.0.1:0"]
    texts += ["proxyRoles=gate,door", "super.user.roles=root,door", *more]
    return BrokerProcess(data, *(part for text in texts for part in ("--set", text)), kafka=None)


def url(house: BrokerProcess) -> str:
    return f"http://{house.served['http'][0].rstrip('/')}"


def registry(house: BrokerProcess) -> str:
    return f"http://{house.served['schema-registry'][0].rstrip('/')}"


def hello(role: str, original: str | None, text: str = "", shown: str | None = None) -> BaseCommand:
    said = BaseCommand(type=BaseCommand.CONNECT)
    said.connect.client_version, said.connect.protocol_version = "raw", 21
    said.connect.auth_method_name, said.connect.auth_data = "token", (text or token(role)).encode()
    said.connect.feature_flags.supports_auth_refresh = True
    if original is not None:
        said.connect.original_principal = original
    if shown is not None:
        said.connect.original_auth_method, said.connect.original_auth_data = "token", shown
    return said


def looked_up(client: Raw, topic: str) -> bool:
    wanted = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
    wanted.partitionMetadata.topic = f"persistent://public/default/{topic}"
    wanted.partitionMetadata.request_id = 1
    answer = client.ask(wanted).partitionMetadataResponse
    assert not answer.HasField("error") or answer.error == ServerError.AuthorizationError
    return not answer.HasField("error")


REFUSED = [
    ("gate", None),
    ("gate", ""),
    ("gate", "gate"),
    ("gate", "door"),
    ("door", None),
    ("bob", "root"),
    ("bob", "gate"),
    ("root", "bob"),
]
LET_IN = [
    ("bob", None),
    ("bob", ""),
    ("bob", "bob"),
    ("root", None),
    ("gate", "bob"),
    ("door", "bob"),
    ("gate", "root"),
]
MAY = {
    ("bob", None): {"both", "hers"},
    ("bob", "bob"): {"both", "hers"},
    ("root", None): {"both", "hers", "gates"},
    ("gate", "bob"): {"both"},
    ("door", "bob"): {"both", "hers"},
    ("gate", "root"): {"both", "gates"},
    ("gate", "eve"): set(),
    ("door", "eve"): set(),
}
"""By who connects and whom it names: the topics that it may use."""


@pytest.mark.parametrize(("role", "original"), REFUSED)
def test_who_may_not_speak_for_whom_it_names(house: BrokerProcess, role: str, original: str | None) -> None:
    with Raw(house, connect=False) as client:
        answer = client.ask(hello(role, original))
        assert answer.error.error == ServerError.AuthorizationError
        assert answer.error.message == "Invalid roles."
        assert client.hears_nothing_more()
    headers = {"Authorization": f"Bearer {token(role)}"}
    if original is not None:
        headers["X-Original-Principal"] = original
    assert httpx.get(f"{url(house)}/admin/v2/clusters", headers=headers).status_code == 401


@pytest.mark.parametrize(("role", "original"), LET_IN)
def test_who_may(house: BrokerProcess, role: str, original: str | None) -> None:
    with Raw(house, connect=False) as client:
        assert client.ask(hello(role, original)).type == BaseCommand.CONNECTED


@pytest.mark.parametrize(("role", "original"), list(MAY))
def test_both_must_be_allowed_what_is_asked(house: BrokerProcess, role: str, original: str | None) -> None:
    headers = {"Authorization": f"Bearer {token(role)}"} | (
        {"X-Original-Principal": original} if original else {}
    )
    with Raw(house, connect=False) as client, httpx.Client(base_url=url(house), headers=headers) as rest:
        assert client.ask(hello(role, original)).type == BaseCommand.CONNECTED
        found = {each for each in ("both", "hers", "gates") if looked_up(client, each)}
        assert found == MAY[role, original]
        over_rest = {
            each
            for each in ("both", "hers", "gates")
            if rest.get(STATS.format(topic=each)).status_code == 200
        }
        assert over_rest == found
        is_super = {role, original or role} <= {"root", "door"}
        assert (rest.get("/admin/v2/tenants").status_code == 200) is is_super


SUBJECT = "/subjects/{topic}-value/versions"


@pytest.mark.parametrize(("role", "original"), list(MAY))
def test_both_must_be_allowed_what_is_asked_of_the_registry(
    house: BrokerProcess, role: str, original: str | None
) -> None:
    headers = {"Authorization": f"Bearer {token(role)}"} | (
        {"X-Original-Principal": original} if original else {}
    )
    with httpx.Client(base_url=registry(house), headers=headers) as client:
        for topic in ("both", "hers", "gates"):
            answer = client.post(SUBJECT.format(topic=topic), json={"schema": '"string"'})
            assert (answer.status_code == 200) is (topic in MAY[role, original]), answer.text


@pytest.mark.parametrize(("role", "original"), REFUSED)
def test_the_registry_refuses_who_speaks_for_others(
    house: BrokerProcess, role: str, original: str | None
) -> None:
    headers = {"Authorization": f"Bearer {token(role)}"}
    if original is not None:
        headers["X-Original-Principal"] = original
    assert httpx.get(f"{registry(house)}/subjects", headers=headers).status_code == 401


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that has a proxy's client prove itself, too."""
    data = tmp_path_factory.mktemp("checking") / "data"
    with started(data, "authenticateOriginalAuthData=true") as process:
        for topic, role in (("both", "bob"), ("both", "gate"), ("hers", "bob")):
            path = f"{url(process)}/admin/v2/persistent/public/default/{topic}"
            httpx.put(path, headers={"Authorization": f"Bearer {token('root')}"})
            ask(process.data, "grant", target=topic, role=role, actions=["produce", "consume"])
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]


@pytest.mark.parametrize("named", ["bob", "root", "eve", ""])
def test_a_proxys_client_is_who_it_proves_to_be(checking: BrokerProcess, named: str) -> None:
    with Raw(checking, connect=False) as client:
        assert client.ask(hello("gate", named, shown=token("bob"))).type == BaseCommand.CONNECTED
        assert looked_up(client, "both")
        assert not looked_up(client, "hers")


def test_the_proxy_passes_on_what_its_client_shows(checking: BrokerProcess, tmp_path: Path) -> None:
    """Magnetar's proxy before a broker, and Pulsar's, as `Raw` speaks, before both."""
    place = checking.served["pulsar"][0]
    with ProxyProcess(
        tmp_path,
        cast(Any, SimpleNamespace(served=checking.served)),
        "pulsar.listeners=pulsar://127.0.0.1:0",
        f"broker.service.url=pulsar://{place}",
    ) as proxy:
        behind = cast(Any, SimpleNamespace(served=proxy.served))
        with Raw(behind, connect=False) as client:
            assert client.ask(hello("gate", "bob", shown=token("bob"))).type == BaseCommand.CONNECTED
            assert looked_up(client, "both")
        with Raw(behind, connect=False) as client:
            assert client.ask(hello("gate", "bob", shown="x")).error.error == ServerError.AuthenticationError


@pytest.mark.parametrize(
    "shown", [None, "", "x", "x" * 20_000, token("bob")[:-2], token("bob", OTHER_SECRET)]
)
def test_a_proxys_client_that_proves_nothing_is_not_let_in(
    checking: BrokerProcess, shown: str | None
) -> None:
    with Raw(checking, connect=False) as client:
        assert client.ask(hello("gate", "bob", shown=shown)).error.error == ServerError.AuthenticationError
        assert client.hears_nothing_more()


@pytest.mark.parametrize(
    ("role", "original", "shown"), [("gate", "bob", "gate"), ("gate", "bob", "door"), ("bob", "bob", "root")]
)
def test_what_is_proved_is_asked_about_and_not_what_is_named(
    checking: BrokerProcess, role: str, original: str, shown: str
) -> None:
    with Raw(checking, connect=False) as client:
        answer = client.ask(hello(role, original, shown=token(shown)))
        assert answer.error.error == ServerError.AuthorizationError


def test_who_names_nobody_need_not_prove_more(checking: BrokerProcess) -> None:
    with Raw(checking, connect=False) as client:
        assert client.ask(hello("bob", None)).type == BaseCommand.CONNECTED
        assert looked_up(client, "hers")


@pytest.mark.parametrize(("role", "goes_on"), [("bob", True), ("carl", False), ("gate", False)])
def test_it_is_the_client_behind_a_proxy_that_proves_itself_anew(
    checking: BrokerProcess, role: str, goes_on: bool
) -> None:
    with Raw(checking, connect=False) as client:
        assert client.ask(hello("gate", "bob", shown=expiring(3, "bob"))).type == BaseCommand.CONNECTED
        client.patience(60)
        while (said := client.hear()[0]).type == BaseCommand.PING:
            pass
        assert said.type == BaseCommand.AUTH_CHALLENGE
        response = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
        response.authResponse.response.auth_method_name = "token"
        response.authResponse.response.auth_data = token(role).encode()
        client.send(frame(response))
        if goes_on:
            assert looked_up(client, "both")
        else:
            assert client.hears_nothing_more()


def test_a_grant_that_is_taken_away_counts_at_once(house: BrokerProcess) -> None:
    ask(house.data, "grant", target="both", role="carl", actions=["consume"])
    with Raw(house, connect=False) as client:
        client.ask(hello("gate", "carl"))
        assert looked_up(client, "both")
        ask(house.data, "revoke", target="both", role="carl")
        assert not looked_up(client, "both")


def test_a_new_proof_is_the_same_proxys(house: BrokerProcess) -> None:
    """When the proxy's token ends it shows another one, and it asks for the same client as before."""
    for role, goes_on in (("gate", True), ("door", False), ("bob", False)):
        with Raw(house, connect=False) as client:
            assert client.ask(hello("gate", "bob", expiring(3, "gate"))).type == BaseCommand.CONNECTED
            client.patience(60)
            while (said := client.hear()[0]).type == BaseCommand.PING:
                pass
            assert said.type == BaseCommand.AUTH_CHALLENGE
            response = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
            response.authResponse.response.auth_method_name = "token"
            response.authResponse.response.auth_data = token(role).encode()
            if goes_on:
                client.send(frame(response))
                assert looked_up(client, "both")
                assert not looked_up(client, "hers")
            else:
                client.send(frame(response))
                assert client.hears_nothing_more()


def test_without_authorization_names_mean_nothing(tmp_path: Path) -> None:
    with started(tmp_path / "data", "authorization.enabled=false") as house:
        for role, original in REFUSED:
            with Raw(house, connect=False) as client:
                assert client.ask(hello(role, original)).type == BaseCommand.CONNECTED
