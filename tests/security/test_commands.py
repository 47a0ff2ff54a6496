"""``magnetar token`` and ``magnetar permission`` as an operator types them."""

from __future__ import annotations

import json
import stat
import uuid
from pathlib import Path

import jwt
import pytest

from magnetar.cli.app import run_app
from tests.cli.operator import Operator
from tests.security.conftest import Secured
from tests.security.signing import SECRET, token


@pytest.fixture
def magnetar(capsys: pytest.CaptureFixture[str]) -> object:
    """Run a command in this process; give its status and what it wrote."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = run_app([str(each) for each in arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
def test_a_secret_key_signs_and_checks(magnetar, tmp_path: Path, algorithm: str) -> None:  # type: ignore[no-untyped-def]
    key = tmp_path / "secret.key"
    assert magnetar("token", "create-secret-key", "-o", key, "-a", algorithm)[0] == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    status, made, _ = magnetar(
        "token", "create", "-sk", f"file://{key}", "-s", "alice", "-a", algorithm, "-e", "1h"
    )
    assert status == 0
    claims = jwt.decode(made.strip(), key.read_bytes(), [algorithm])
    assert claims["sub"] == "alice"
    assert magnetar("token", "validate", made.strip(), "-sk", key)[0] == 0
    assert '"alg": "HS' in magnetar("token", "show", made.strip())[1]


def test_a_key_in_the_place_of_a_file_is_its_owners_alone(magnetar, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    secret, private, link = tmp_path / "secret.key", tmp_path / "private.key", tmp_path / "link"
    for file in (secret, private):
        file.write_text("old")
        file.chmod(0o666)
    link.symlink_to(secret)
    with secret.open("rb") as opened:
        assert magnetar("token", "create-secret-key", "-o", link)[0] == 0
        assert opened.read() == b"old", "who has the old one open does not come by the new one"
    pair = ("--output-private-key", private, "--output-public-key", tmp_path / "public.key")
    assert magnetar("token", "create-key-pair", *pair)[0] == 0
    assert link.is_symlink()
    for file in (secret, private):
        assert file.read_bytes() != b"old"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {"secret.key", "private.key", "public.key", "link"}


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES256", "ES384", "ES512"])
def test_a_key_pair_signs_and_checks(magnetar, tmp_path: Path, algorithm: str) -> None:  # type: ignore[no-untyped-def]
    private, public = tmp_path / "private.key", tmp_path / "public.key"
    files = ("--output-private-key", private, "--output-public-key", public)
    assert magnetar("token", "create-key-pair", *files, "-a", algorithm)[0] == 0
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    made = magnetar("token", "create", "-pk", private, "-s", "bob", "-a", algorithm, "--claim", "aud=here")[
        1
    ].strip()
    status, said, _ = magnetar("token", "validate", made, "-pk", public, "--audience", "here")
    assert (status, '"sub": "bob"' in said) == (0, True)
    status, _, why = magnetar("token", "validate", made, "-pk", public, "--audience", "there")
    assert (status, "Audience doesn't match" in why) == (1, True)


def test_what_is_no_good_is_said(magnetar, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    key = tmp_path / "secret.key"
    key.write_bytes(SECRET)
    old = jwt.encode({"sub": "alice", "exp": 1}, SECRET, "HS256")
    for arguments, status, why in (
        (("validate", old, "-sk", key), 1, "expired"),
        (("validate", old + "x", "-sk", key), 1, "Signature"),
        (("validate", "nonsense", "-sk", key), 1, "no JSON Web Token"),
        (("validate", old), 2, "--secret-key"),
        (("show", "nonsense"), 2, "no token"),
        (("create", "-s", "alice"), 2, "--secret-key or --private-key"),
        (("create", "-s", "alice", "-sk", key, "-a", "RS256"), 2, "not for RS256"),
        (("create", "-s", "alice", "-sk", key, "-e", "soon"), 2, "30d"),
        (("create", "-s", "alice", "-pk", key), 2, "no private key"),
        (("create", "-s", "alice", "-sk", tmp_path / "none"), 2, "cannot be read"),
        (("create-secret-key", "-a", "RS256"), 2, "HS256"),
    ):
        given, _, said = magnetar("token", *arguments)
        assert (given, why in said) == (status, True), (arguments, said)


def test_a_token_may_be_piped_in(tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    key.write_bytes(SECRET)
    made = jwt.encode({"sub": "alice"}, SECRET, "HS256")
    told = Operator("127.0.0.1:1").run("token", "validate", "-sk", key, "--json", stdin=f"token:{made}\n")
    assert told.value == {"sub": "alice"}


def test_grants_are_shown_and_changed(secured: Secured, magnetar) -> None:  # type: ignore[no-untyped-def]
    data = ("--data", secured.process.data)
    role = f"role-{uuid.uuid4().hex[:8]}"

    def permission(*arguments: str) -> dict:  # type: ignore[type-arg]
        status, said, why = magnetar("permission", *arguments, *data, "--json")
        assert status == 0, why
        return json.loads(said)  # type: ignore[no-any-return]

    told = permission("grant", "public/default", "-r", role, "-a", "consume, produce")
    assert told["roles"][role] == ["consume", "produce"]
    topic = f"persistent://public/default/{role}"
    told = permission("grant", role, "--role", role, "--actions", "functions")
    assert (told["target"], told["roles"][role]) == (topic, ["consume", "functions", "produce"])
    assert permission("list")["topics"][topic] == {role: ["functions"]}
    assert role in permission("subscription", "public/default", role, "-r", role)["subscriptions"][role]
    assert role not in permission("subscription", "public/default", role)["subscriptions"]
    assert role in magnetar("permission", "list", topic, *data)[1]
    permission("revoke", topic, "-r", role)
    assert role not in permission("revoke", "public/default", "-r", role)["roles"]
    status, _, why = magnetar("permission", "revoke", "public/default", "-r", role, *data)
    assert (status, "has no grant" in why) == (1, True)
    assert permission("admins", "public", "-r", role) == [role]
    assert permission("admins", "public", "--nobody") == []


def test_wrong_grants_are_refused(secured: Secured, magnetar) -> None:  # type: ignore[no-untyped-def]
    for arguments, status, why in (
        (("grant", "public/default", "-r", "a", "-a", "write"), 2, "one of produce, consume"),
        (("grant", "public/default", "-r", "a", "-a", ""), 2, "at least one action"),
        (("grant", "no/where", "-r", "a", "-a", "produce"), 1, "does not exist"),
        (("grant", "a/b/c/d", "-r", "a", "-a", "produce"), 2, "neither a namespace nor a topic"),
        (("admins", "nowhere", "-r", "a"), 1, "no tenant"),
        (("admins", "public"), 2, "who?"),
    ):
        given, _, said = magnetar("permission", *arguments, "--data", secured.process.data)
        assert (given, why in said) == (status, True), (arguments, said)


def test_the_command_line_speaks_to_a_secured_broker(  # type: ignore[no-untyped-def]
    secured: Secured, magnetar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same file that Kafka's own tools take."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="public" password="token:{token("root")}";'
    certificate, key = secured.authority.sign("root")
    both = tmp_path / "root.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={secured.authority.file}\n"
    ways = {
        "SASL_PLAINTEXT": f"sasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n",
        "SSL": f"{trust}ssl.keystore.type=PEM\nssl.keystore.location={both}\n",
        "SASL_SSL": f"{trust}sasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n",
    }
    for listener, lines in ways.items():
        config = tmp_path / f"{listener}.properties"
        config.write_text(f"security.protocol={listener}\n{lines}")
        monkeypatch.setenv("MAGNETAR_COMMAND_CONFIG", str(config))
        address = secured.address(listener).replace("127.0.0.1", "localhost")
        status, _, why = magnetar("topic", "create", f"cli-{listener.lower()}", "-b", address)
        assert status == 0, why
    operator = Operator(address)
    operator.ok("produce", "cli-sasl_ssl", stdin="hello\n")
    assert "hello" in operator.ok("consume", "cli-sasl_ssl", "-o", "beginning", "-c", "1")
    for given in (str(tmp_path / "none"), ""):
        monkeypatch.setenv("MAGNETAR_COMMAND_CONFIG", given)
        status, _, why = magnetar("topic", "list", "-b", address)
        assert (status, "MAGNETAR_COMMAND_CONFIG" in why) == (2 if given else 1, True)
