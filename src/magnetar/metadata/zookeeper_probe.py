"""What listens where ZooKeeper should: asked before a session is tried, which can only say that there is none.

A server is asked ``srvr``, one of ZooKeeper's four-letter words: each of them answers something, if only that the word
is not on its list. What does not answer is looked at once more: a name that is not known, a port that refuses, TLS, or
something else (a bookie, another broker).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import NamedTuple

from magnetar.metadata.errors import MetadataUnreachable
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity, untrusted

PATIENCE_S = 2.0
"""How long servers that are sure to be wrong are asked again: those that begin together need a moment."""
_ANSWER_S = 2.0
_PAUSE_S = 0.25
_WORD = b"srvr"
_log = logging.getLogger("magnetar.metadata")


class ServerTrouble(NamedTuple):
    """What is wrong with one server, and what to do. ``surely``: waiting longer is not known to help."""

    what: str
    next_step: str
    surely: bool = True


async def probe(hosts: str, security: ZooKeeperSecurity, patience_s: float = PATIENCE_S) -> None:
    """Return once a server of ``hosts`` answers, or may do so later; raise `MetadataUnreachable` if none can be right.

    ``hosts`` are ``host:port``, separated by commas.
    """
    loop = asyncio.get_running_loop()
    end, told = loop.time() + patience_s, False
    while True:
        findings = await asyncio.gather(*(_look(each, security) for each in hosts.split(",")))
        wrong = [each for each in findings if each is not None]
        if len(wrong) < len(findings) or not all(each.surely for each in wrong):
            return
        words = "; ".join(dict.fromkeys(each.what for each in wrong))
        if loop.time() >= end:
            steps = " ".join(dict.fromkeys(each.next_step for each in wrong))
            raise MetadataUnreachable(f"ZooKeeper at {hosts} cannot be reached: {words}", steps)
        if not told:
            _log.warning(
                "ZooKeeper at %s cannot be reached: %s; trying again for %g s", hosts, words, patience_s
            )
            told = True
        await asyncio.sleep(_PAUSE_S)


async def _look(server: str, security: ZooKeeperSecurity) -> ServerTrouble | None:
    """Return what is wrong with a server; None if it is ZooKeeper."""
    host, _, port = server.rpartition(":")
    try:
        answer = await _asked(host.strip("[]"), int(port), security.context())
    except socket.gaierror as error:
        return ServerTrouble(
            f"the name {host} is not known ({error.strerror})",
            "Look at the name in metadataStoreUrl (metadata.url), and at DNS or /etc/hosts here.",
        )
    except ssl.SSLError as error:
        return ServerTrouble(untrusted(server, error), "Look at the file that metadataStoreConfigPath names.")
    except ConnectionRefusedError:
        return ServerTrouble(
            f"{server} refuses connections",
            "Start ZooKeeper, or name its clientPort in metadataStoreUrl (metadata.url); "
            "docs/cluster.md shows how to start one.",
        )
    except (TimeoutError, OSError) as error:
        return ServerTrouble(
            f"{server} does not answer ({str(error) or 'no answer in time'})", "", surely=False
        )
    if answer:
        return None
    return await _not_zookeeper(server, host.strip("[]"), int(port), security)


async def _not_zookeeper(server: str, host: str, port: int, security: ZooKeeperSecurity) -> ServerTrouble:
    """Return what it is that ends the connection instead of an answer."""
    if not security.tls and await _speaks_tls(host, port):
        return ServerTrouble(
            f"{server} speaks TLS: does it want TLS (zookeeper.client.secure in metadataStoreConfigPath)?",
            "Name a file of ZooKeeper's client properties by metadataStoreConfigPath, or its port without TLS.",
        )
    if security.tls:
        return ServerTrouble(
            f"{server} does not answer as ZooKeeper does: {security.hint()}",
            "Look at the file that metadataStoreConfigPath names, and at the port in metadataStoreUrl.",
        )
    return ServerTrouble(
        f"what listens at {server} is not ZooKeeper: it ends the connection without an answer",
        "Name ZooKeeper's clientPort in metadataStoreUrl (metadata.url): 2181 by default; a bookie's port (3181) or a "
        "broker's is not it.",
    )


async def _asked(host: str, port: int, context: ssl.SSLContext | None) -> bytes:
    """Return the first bytes of the answer, none if the connection was ended instead."""
    async with asyncio.timeout(_ANSWER_S):
        name = host if context is not None else None
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
        try:
            writer.write(_WORD)
            return await reader.read(100)
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ANSWER_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
            writer.close()
            return True
    return False
