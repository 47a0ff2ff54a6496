"""``magnetar broker``: one broker of a cluster, whose file is in Pulsar's words."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from magnetar.base.errors import BrokerError
from magnetar.node import setting_sources
from magnetar.node.image_environment import image_settings

_URLS = ("metadataStoreUrl", "zookeeperServers", "zkServers")


def run(config: Path, overrides: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; give the exit status. Prints one line once clients may connect."""
    from magnetar.cli import standalone

    try:
        named = {**setting_sources.read_properties(config), **image_settings(os.environ)[0]}
    except BrokerError as error:
        print(f"magnetar: {error}", file=sys.stderr)
        return 2
    given = cluster_of(named)
    if not given and not any(each.startswith("metadata.url=zk:") for each in overrides):
        print(f"magnetar: {config} names no cluster", file=sys.stderr)
        print(
            "  -> Set metadataStoreUrl=zk:HOST:PORT/PATH there; 'magnetar standalone' needs none.",
            file=sys.stderr,
        )
        return 2
    return standalone.run(None, None, None, None, None, config, [*given, *overrides], _URLS)


def cluster_of(named: dict[str, str]) -> list[str]:
    """Return the settings that make a broker one of a cluster; none where the file names none."""
    if "metadata.url" in named:
        return [] if "storage.url" in named else ["storage.url=bookkeeper:"]
    url = next((named[name] for name in _URLS if named.get(name)), "")
    if not url:
        return []
    url = url if url.startswith("zk:") else f"zk:{url}"
    return [f"metadata.url={url}", "storage.url=bookkeeper:"]
