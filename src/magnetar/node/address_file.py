"""The word that a broker leaves in its data directory, ``broker.json``: who serves it, and where.

    {"pid": 4711, "format": 1, "kafka": ["127.0.0.1:9092"], "http": ["http://127.0.0.1:8080"]}

``format`` is that of what lies in the directory (`magnetar.metadata.formats`).
Of several workers ``pid`` is whoever looks after them, the addresses are those that they share, and ``brokers`` has
where Kafka's clients find each of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from magnetar.metadata.formats import FORMAT
from magnetar.metadata.modes import FILE_MODE

ADDRESS_FILE = "broker.json"


def tell_address(root: Path, served: Mapping[str, object]) -> None:
    """Leave word; who reads it meanwhile finds the old one or the new one."""
    draft = root / (ADDRESS_FILE + ".tmp")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(json.dumps({"pid": os.getpid(), "format": FORMAT, **served}) + "\n")
    draft.rename(root / ADDRESS_FILE)


def forget_address(root: Path) -> None:
    """Take the word back."""
    (root / ADDRESS_FILE).unlink(missing_ok=True)
