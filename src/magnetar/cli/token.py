"""``magnetar token``: keys and tokens, with the options of Pulsar's ``bin/pulsar tokens``."""

from __future__ import annotations

import json as json_
import os
import sys
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.admin import tokens
from magnetar.admin.errors import Invalid
from magnetar.cli.options import Json
from magnetar.cli.output import give

if TYPE_CHECKING:
    from magnetar.admin.tokens import Shown

app = typer.Typer(help="Make and check tokens and their keys; no broker is asked.", no_args_is_help=True)

Algorithm = Annotated[
    str | None, typer.Option("--signature-algorithm", "-a", help="HS256, RS256, ES256, ...")
]
Base64 = Annotated[bool, typer.Option("--base64", "-b", help="Write the key in base64.")]
SecretKey = Annotated[
    str | None,
    typer.Option(
        "--secret-key", "-sk", metavar="KEY", help="file:///path, data:;base64,..., a path, or base64."
    ),
]
Token = Annotated[str | None, typer.Argument(metavar="TOKEN", help="Else it is read from standard input.")]
TokenFile = Annotated[Path | None, typer.Option("--token-file", "-f", help="File that holds the token.")]


@app.command(name="create-secret-key")
def create_secret_key(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File; else standard output.")] = None,
    signature_algorithm: Algorithm = None,
    base64: Base64 = False,
    json: Json = False,
) -> None:
    """Make a secret key, which signs and checks tokens."""
    key = tokens.new_secret(signature_algorithm or "HS256")
    text = tokens.encoded(key, base64_text=base64 or (json and output is None))
    if output is not None:
        _write(output, text, private=True)
        told = {"file": str(output)}
    else:
        told = {"key": text.decode("ascii", "replace")}
    if json:
        give(told, lambda _: (), as_json=True)
    elif output is None:
        if sys.stdout.isatty() and not base64:
            raise Invalid("a terminal cannot show the bytes of a key", "Give -o FILE, or -b for base64.")
        sys.stdout.buffer.write(text)


@app.command(name="create-key-pair")
def create_key_pair(
    output_private_key: Annotated[
        Path, typer.Option("--output-private-key", help="File to sign tokens with.")
    ],
    output_public_key: Annotated[
        Path, typer.Option("--output-public-key", help="File to check tokens with.")
    ],
    signature_algorithm: Algorithm = None,
    json: Json = False,
) -> None:
    """Make a key pair: one key signs tokens, the other only checks them."""
    private, public = tokens.new_key_pair(signature_algorithm or "RS256")
    _write(output_private_key, private, private=True)
    _write(output_public_key, public, private=False)
    files = {"private_key": str(output_private_key), "public_key": str(output_public_key)}
    give(files, lambda _: (), as_json=json)


@app.command()
def create(
    subject: Annotated[str, typer.Option("--subject", "-s", help="The role.")],
    secret_key: SecretKey = None,
    private_key: Annotated[
        str | None, typer.Option("--private-key", "-pk", metavar="KEY", help="As --secret-key; PEM or DER.")
    ] = None,
    expiry_time: Annotated[
        str | None, typer.Option("--expiry-time", "-e", help="How long it is good: 30s, 10m, 2h, 7d, 4w, 1y.")
    ] = None,
    signature_algorithm: Algorithm = None,
    claim: Annotated[
        list[str] | None, typer.Option("--claim", metavar="NAME=VALUE", help="A claim more; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a token and print it."""
    made = tokens.create(
        subject,
        secret_key,
        private_key,
        algorithm=signature_algorithm,
        lives_s=None if expiry_time is None else tokens.duration_s(expiry_time),
        claims=dict(map(_claim, claim or [])),
    )
    if json:
        give({"token": made}, lambda _: (), as_json=True)
    else:
        print(made)  # a table would break it


@app.command()
def show(token: Token = None, token_file: TokenFile = None, json: Json = False) -> None:
    """Show what is written in a token, true or not."""
    give(tokens.show(_token(token, token_file)), _shown, as_json=json)


@app.command()
def validate(
    token: Token = None,
    token_file: TokenFile = None,
    secret_key: SecretKey = None,
    public_key: Annotated[
        str | None, typer.Option("--public-key", "-pk", metavar="KEY", help="As --secret-key; PEM or DER.")
    ] = None,
    jwks: Annotated[
        str | None,
        typer.Option("--jwks", metavar="KEYS", help="A key set: file:///path, data:... or a path."),
    ] = None,
    audience: Annotated[
        str | None, typer.Option("--audience", help="For whom it must be (claim aud).")
    ] = None,
    json: Json = False,
) -> None:
    """Say whether a broker with this key would take a token; the exit status tells, too."""
    given = {"token.secret.key": secret_key, "token.public.key": public_key, "token.jwks": jwks}
    settings = {name: text for name, text in given.items() if text}
    if audience:
        settings |= {"token.audience.claim": "aud", "token.audience": audience}
    claims = tokens.validate(_token(token, token_file), settings)
    give(claims, lambda each: [json_.dumps(each, ensure_ascii=False)], as_json=json)


def _token(given: str | None, file: Path | None) -> str:
    wants_pipe = given is None and file is None and not sys.stdin.isatty()
    return tokens.read_token(given, file, sys.stdin.read() if wants_pipe else "")


def _claim(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise Invalid(f"--claim {text}: expected NAME=VALUE")
    return name, value


def _write(file: Path, content: bytes, *, private: bool) -> None:
    try:
        if private and file.is_file():
            _put_in_place(file.resolve(), content)
            return
        # A private key is for its owner alone from the first byte on.
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o644)
        with os.fdopen(number, "wb") as opened:
            opened.write(content)
    except OSError as error:
        raise Invalid(
            f"{file} cannot be written: {error.strerror}", "Give a path that you may write."
        ) from None


def _put_in_place(file: Path, content: bytes) -> None:
    """Put a private file in the place of one that is there: others might read that, or have it open."""
    number, draft = mkstemp(prefix=f".{file.name}.", dir=file.parent)  # for its owner alone
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(content)
        os.replace(draft, file)
    except OSError:
        os.unlink(draft)
        raise


def _shown(token: Shown) -> Any:
    yield json_.dumps(token.header, ensure_ascii=False)
    yield "---"
    yield json_.dumps(token.claims, ensure_ascii=False)
