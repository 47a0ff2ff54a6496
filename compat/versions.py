"""What a run was with, to stand beside its results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.peers.jars import KAFKA_VERSION
from benchmarks.peers.pulsar import PULSAR_VERSION

_ROOT = Path(__file__).resolve().parent.parent
OURS = ("magnetar", "cluster", "proxy")
"""The columns of results that are ours: what `places` has."""


def version(broker: str) -> str:
    """Of ours this tree's commit, with a plus where its sources were changed since; of a peer, its version."""
    peers = {"kafka": KAFKA_VERSION, "pulsar": PULSAR_VERSION}
    if broker not in OURS:
        return peers.get(broker, broker)
    git = ["git", "-C", str(_ROOT)]
    told = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    if told.returncode:
        return ""  # not a checkout
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src"])
    return told.stdout.strip() + ("+" if changed.returncode else "")
