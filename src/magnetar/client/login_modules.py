"""``sasl.jaas.config``: the login module that a Java client names, and its options.

org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="secret";
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FLAGS = ("required", "requisite", "sufficient", "optional")
_OPTION = re.compile(r"""([^\s="';]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))\s*""")
_ESCAPED = re.compile(r"\\(.)")
REFUSED = {
    "IAMLoginModule": "AWS_MSK_IAM is Amazon's own mechanism, whose requests only its libraries sign: let the cluster "
    "serve SCRAM-SHA-512 or TLS certificates too, and log in by one of these",
    "Krb5LoginModule": "Kerberos (GSSAPI) takes the JVM's libraries, and is not spoken here",
}
"""Login modules of mechanisms that are not spoken here, and what to do."""


class LoginModule(NamedTuple):
    """A login module's class without its package (clients carry Kafka's under other ones), and its options."""

    name: str
    options: dict[str, str]


def parse_login_module(text: str) -> LoginModule:
    """Read the text of a configuration; raise ``ValueError`` saying what is wrong with it, and never its secrets."""
    words = text.strip().split(None, 2)
    if len(words) < 2 or words[1].rstrip(";").lower() not in _FLAGS:
        raise ValueError(
            'kafka.sasl.jaas.config must be like \'org.apache...LoginModule required username="..." password="...";\''
        )
    rest, at, options = words[2] if len(words) > 2 else ";", 0, {}
    while match := _OPTION.match(rest, at):
        name, double, single, bare = match.groups()
        quoted = double if double is not None else single
        options[name] = _ESCAPED.sub(r"\1", quoted) if quoted is not None else bare
        at = match.end()
    if rest[at:].strip() not in (";", ""):
        raise ValueError(
            f'kafka.sasl.jaas.config cannot be read behind its option {len(options)}: options are NAME="VALUE", '
            "with one ';' at the end"
        )
    return LoginModule(words[0].rpartition(".")[2], options)
