"""Where leader epochs began, as a log's list of ledgers has it."""

from __future__ import annotations

import pytest

from magnetar.ledger.epoch_starts import EpochStart, LeaderEpochs, begun


@pytest.mark.parametrize(
    ("text", "last", "epoch", "offset", "said"),
    [
        (None, 0, 4, 0, "4 0"),  # a new log
        ("2 0", 2, 4, 0, "4 0"),  # nothing was written in it
        ("2 0", 2, 4, 7, "2 0\n4 7"),
        ("2 0\n4 7", 4, 4, 9, "2 0\n4 7"),  # opened again under the same one
        ("2 0\n4 7", 4, 5, 7, "2 0\n5 7"),  # nothing was written in the one before
        (None, 3, 4, 7, None),  # a broker has had it that stored them elsewhere
        ("2 0", 3, 4, 7, None),
        ("", 0, 4, 7, None),
        ("2", 2, 4, 7, None),
        ("2 0 1", 2, 4, 7, None),
        ("two 0", 2, 4, 7, None),
    ],
)
def test_an_epoch_begins(text: str | None, last: int, epoch: int, offset: int, said: str | None) -> None:
    assert begun(text, last, epoch, offset) == said


def test_what_is_written_is_read() -> None:
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 12)])
    assert LeaderEpochs.decode(epochs.encode()).starts == epochs.starts
