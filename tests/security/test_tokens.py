"""Tokens: the good ones tell who somebody is, and each way of cheating is refused."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from magnetar.auth import Authentication, AuthenticationFailed
from magnetar.auth.jwks import KeySet
from magnetar.base.errors import InvalidConfig
from magnetar.settings.settings import Settings
from tests.security.signing import (
    OTHER_SECRET,
    SECRET,
    SECRET_URL,
    confused,
    curve_key,
    data_url,
    expiring,
    public_bytes,
    rsa_key,
    token,
    unsigned,
)

P384, P521 = ec.SECP384R1, ec.SECP521R1


def authentication(**settings: str) -> Authentication:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    told = Settings().with_values({"authentication.enabled": "true"} | texts)
    return Authentication(told.security, told.given)


def by_secret(**settings: str) -> Authentication:
    return authentication(token_secret_key=SECRET_URL, **settings)


def refused(who: Authentication, text: str, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        who.authenticate("token", text)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_keys_token_tells_the_role(algorithm: str) -> None:
    principal = by_secret().authenticate("token", token("alice", algorithm=algorithm))
    assert (principal.role, principal.method, principal.expires_at_s) == ("alice", "token", None)


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        *[(name, rsa_key()) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")],
        ("ES256", curve_key()),
        ("ES384", curve_key(P384)),
        ("ES512", curve_key(P521)),
    ],
)
def test_a_public_key_verifies_its_tokens(algorithm: str, key: Any, encoding: Encoding) -> None:
    who = authentication(token_public_key=data_url(public_bytes(key, encoding)))
    assert who.authenticate("token", token("bob", key, algorithm).encode()).role == "bob"


@pytest.mark.parametrize(
    "given",
    ["file:{}", "{}", "data:;base64," + base64.b64encode(SECRET).decode(), base64.b64encode(SECRET).decode()],
)
def test_a_key_is_given_as_pulsar_takes_it(given: str, tmp_path: Path) -> None:
    (tmp_path / "secret.key").write_bytes(SECRET)
    who = authentication(token_secret_key=given.format(tmp_path / "secret.key"))
    assert who.authenticate("token", token()).role == "alice"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (token(key=OTHER_SECRET), "Signature verification failed"),
        (token()[:-6] + "AAAAAA", "Signature verification failed"),
        (token().replace(".", ".e30", 1), "."),
        (expiring(-1), "expired"),
        (token(nbf=time.time() + 86400), "not yet valid"),
        (unsigned(algorithm="none"), "alg value is not allowed"),
        (unsigned(algorithm="None"), "alg value is not allowed"),
        (unsigned(algorithm="nOnE", signature=b"x"), "alg value is not allowed"),
        (token("alice", rsa_key(), "RS256"), "alg value is not allowed"),
        (token(None), "holds no role"),
        (token(""), "holds no role"),
        ("", "no JSON Web Token"),
        ("a.b.c", "no JSON Web Token"),
        ("." * 100, "no JSON Web Token"),
        ("x" * 70_000, "too long"),
        (token(exp="soon"), "exp"),
        (token(exp=1e400), "."),
    ],
)
def test_a_token_that_proves_nothing_is_refused(text: str, why: str) -> None:
    refused(by_secret(), text, why)


def test_no_unsigned_token_with_another_key_kind_passes_for_any_configured_key() -> None:
    public = public_bytes(rsa_key())
    who = authentication(token_public_key=data_url(public))
    refused(who, confused(public), "alg value is not allowed")
    refused(who, confused(public.strip()), "alg value is not allowed")
    refused(who, confused(public_bytes(rsa_key(), Encoding.DER)), "alg value is not allowed")
    both = authentication(token_public_key=data_url(public), token_secret_key=SECRET_URL)
    refused(both, confused(public), "Signature verification failed")
    assert both.authenticate("token", token("carol", rsa_key(), "RS256")).role == "carol"
    assert both.authenticate("token", token("carol")).role == "carol"


def test_another_curve_or_key_is_refused() -> None:
    who = authentication(token_public_key=data_url(public_bytes(curve_key())))
    refused(who, token("alice", curve_key(P384), "ES384"), "alg value is not allowed")
    refused(
        authentication(token_public_key=data_url(public_bytes(rsa_key()))),
        token("alice", rsa_key(1), "RS256"),
        "Signature verification failed",
    )


def test_the_audience_must_be_ours() -> None:
    who = by_secret(token_audience_claim="aud", token_audience="magnetar")
    assert who.authenticate("token", token(aud="magnetar")).role == "alice"
    assert who.authenticate("token", token(aud=["other", "magnetar"])).role == "alice"
    refused(who, token(aud="other"), "Audience")
    refused(who, token(aud=["other"]), "Audience")
    refused(who, token(aud={"magnetar": 1}), "Audience")
    refused(who, token(), "missing")
    assert by_secret().authenticate("token", token(aud="anything")).role == "alice"


def test_the_role_may_lie_in_another_claim() -> None:
    who = by_secret(token_auth_claim="client")
    assert who.authenticate("token", token(client="svc")).role == "svc"
    assert who.authenticate("token", token(client=["svc", "more"])).role == "svc"
    refused(who, token(), "holds no role")
    refused(who, token(client=[]), "holds no role")
    refused(who, token(client={"a": 1}), "holds no role")


def test_clocks_may_differ_by_what_settings_allow() -> None:
    who = by_secret(token_allowed_clock_skew_seconds="60")
    principal = who.authenticate("token", expiring(-10))
    assert principal.expires_at_s is not None
    assert principal.expires_at_s > time.time()
    refused(who, expiring(-70), "expired")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"token_secret_key": data_url(b"short")}, "at least 32 bytes"),
        ({"token_secret_key": "/no/such/file"}, "cannot be read"),
        ({"token_secret_key": "file:///no/such/file"}, "cannot be read"),
        ({"token_secret_key": data_url(public_bytes(rsa_key()))}, "not a secret"),
        ({"token_public_key": data_url(SECRET)}, "no public key"),
        ({"token_public_key": data_url(public_bytes(rsa.generate_private_key(65537, 1024)))}, "2048"),
        (
            {"token_public_key": data_url(public_bytes(rsa_key())), "token_public_alg": "ES256"},
            "token.public.alg",
        ),
        ({"token_secret_key": SECRET_URL, "token_audience": "me"}, "together"),
        ({}, "a way to authenticate"),
        ({"authentication_providers": "token"}, "no key"),
        ({"token_secret_key": SECRET_URL, "authentication_providers": "a.B"}, "a.B"),
        ({"token_jwks": data_url(b"{}")}, "Key Set"),
        (
            {"token_jwks": data_url(json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}]}).encode())},
            "secret key",
        ),
    ],
)
def test_wrong_keys_end_the_start(settings: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why) as failure:
        authentication(**settings)
    assert SECRET_URL not in str(failure.value)


def test_a_secret_is_never_in_an_error() -> None:
    secret = "not-base64-but-secret!" * 3
    with pytest.raises(InvalidConfig) as failure:
        authentication(token_secret_key=secret)
    assert "secret!" not in str(failure.value)


def test_who_says_nothing_is_let_in_only_as_the_anonymous_role() -> None:
    with pytest.raises(AuthenticationFailed, match="does not say"):
        by_secret().authenticate("none", b"")
    assert by_secret(anonymous_user_role="guest").authenticate("", b"").role == "guest"
    with pytest.raises(AuthenticationFailed, match="'basic' is not served"):
        by_secret().authenticate("basic", b"u:p")


# Key sets.


def key_set(**keys: Any) -> bytes:
    rows = []
    for key_id, key in keys.items():
        kind = (
            jwt.algorithms.ECAlgorithm
            if isinstance(key, ec.EllipticCurvePrivateKey)
            else jwt.algorithms.RSAAlgorithm
        )
        rows.append(kind.to_jwk(key.public_key(), as_dict=True) | {"kid": key_id, "use": "sig"})
    return json.dumps({"keys": rows}).encode()


def test_a_key_set_finds_the_key_by_its_id() -> None:
    who = authentication(token_jwks=data_url(key_set(first=rsa_key(), second=curve_key())))
    assert who.authenticate("token", token("a", rsa_key(), "RS256", key_id="first")).role == "a"
    assert who.authenticate("token", token("b", curve_key(), "ES256", key_id="second")).role == "b"
    assert who.authenticate("token", token("c", curve_key(), "ES256", iat=1, exp=1 << 40)).role == "c"
    refused(who, token("c", curve_key(), "ES256", iat=1), "'exp' is missing")
    refused(who, token("c", curve_key(), "ES256", exp=1 << 40), "'iat' is missing")
    refused(who, token("a", rsa_key(1), "RS256", key_id="first"), "Signature")
    refused(who, token("a", rsa_key(), "RS256", key_id="second"), "alg value is not allowed")
    refused(who, token("a", rsa_key(), "RS256", key_id="third"), "no key")
    refused(who, confused(public_bytes(rsa_key())), "alg value is not allowed")
    refused(who, unsigned(), "alg value is not allowed")


def test_a_key_sets_file_is_read_anew_and_a_broken_one_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(first=rsa_key()))
    who = authentication(token_jwks=str(file))
    new = token("a", rsa_key(1), "RS256", key_id="second")
    refused(who, new, "no key")
    file.write_bytes(key_set(first=rsa_key(), second=rsa_key(1)))
    assert who.authenticate("token", new).role == "a"
    file.write_text("half a fi")
    assert who.authenticate("token", new).role == "a"


@pytest.fixture
def provider() -> Iterator[tuple[str, list[bytes]]]:
    """An identity provider: its address, and the answers that it gives, the last one for good."""
    answers: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/jwks", answers
        server.shutdown()


def test_a_providers_new_keys_are_fetched_once_a_token_names_one(provider: tuple[str, list[bytes]]) -> None:
    address, answers = provider
    answers += [key_set(first=rsa_key()), b"<html>", key_set(first=rsa_key(), second=rsa_key(1))]
    now = 1000.0
    keys = KeySet(address, clock=lambda: now)
    asyncio.run(keys.wait())
    assert len(keys.candidates("first")) == 1
    assert not keys.candidates("second")
    asyncio.run(keys.wait())
    assert len(answers) == 2, "a stranger's key ids do not have the provider asked again at once"
    for _ in range(2):  # the first answer is no key set, and the old keys stay
        now += 31
        keys.candidates("second")
        asyncio.run(keys.wait())
        assert len(keys.candidates("first")) == 1
    assert len(keys.candidates("second")) == 1


@pytest.mark.parametrize(
    "exp", [253_402_300_800, 10**18, 10**4000, 1e300], ids=["10000", "far", "digits", "float"]
)
def test_what_ends_after_all_calendars_never_ends(exp: float) -> None:
    principal = by_secret().authenticate("token", token("alice", exp=exp))
    assert (principal.role, principal.expires_at_s) == ("alice", None)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": -(10**4000)},
        {"exp": "soon"},
        {"exp": [1]},
        {"exp": {}},
        {"nbf": 10**4000},
        {"nbf": float("inf")},
        {"nbf": float("nan")},
        {"nbf": "9" * 4000},
        {"nbf": [0]},
    ],
    ids=lambda claims: repr(claims)[:14],
)
def test_times_that_cannot_be_are_refused(claims: dict[str, Any]) -> None:
    refused(by_secret(), token("alice", **claims), "invalid token")


@pytest.mark.parametrize(
    "iat", [10**4000, float("inf"), float("nan"), -1], ids=["digits", "inf", "nan", "old"]
)
def test_when_it_was_made_opens_and_closes_nothing(iat: float) -> None:
    assert by_secret().authenticate("token", token("alice", iat=iat)).role == "alice"
