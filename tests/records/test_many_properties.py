"""A message with very many properties, each of which costs a few microseconds on the event loop."""

from __future__ import annotations

import pytest

from benchmarks.attacks.wires import entry
from magnetar.records.errors import RecordsError
from magnetar.records.pulsar_entries import MAX_FIELDS, open_send

HEAD = 3  # the producer's name, sequence id and time


def test_very_many_properties_are_refused_before_they_are_read() -> None:
    most = MAX_FIELDS - HEAD - 1
    sent = open_send(entry(b"x", properties=[{"key": "k", "value": "v"}] * most))
    assert len(sent.metadata.properties) == most
    with pytest.raises(RecordsError, match="fields or more"):
        open_send(entry(b"x", properties=[{"key": "k", "value": "v"}] * (most + 1)))
