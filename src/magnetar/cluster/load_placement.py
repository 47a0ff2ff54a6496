"""The owner of a bundle that never had one: by the brokers' reports, as in Pulsar's LeastLongTermMessageRate.

A broker's score is the messages a second that it reports, in and out. Bundles that it was given since count as
`NEW_BUNDLE` each: what they bring shows only in later reports, and all new ones would go to the same broker until then.
A broker that uses more than `OVERLOADED` percent of its processor gets none while there is another. A hash has chosen
a broker already; that one gets the bundle unless another's score is lower by more than `MARGIN`, so that among idle
brokers nothing has to be stored. A function of its arguments: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NEW_BUNDLE = 100.0
"""Messages a second that a new bundle counts as: 50 in and 50 out, as in Pulsar."""
OVERLOADED = 85.0
"""Percent of the processor: Pulsar's loadBalancerBrokerOverloadedThresholdPercentage."""
MARGIN = 4 * NEW_BUNDLE


@dataclass(frozen=True, slots=True)
class BrokerScore:
    """The load of a broker, as far as it is known."""

    node_id: int
    messages_per_s: float
    usage: float

    @classmethod
    def of(cls, node_id: int, report: Mapping[str, Any], bundles: int) -> BrokerScore | None:
        """Return the score from a report (Pulsar's ``LocalBrokerData``) and current bundles; None without a report."""
        if "msgRateIn" not in report:
            return None
        unreported = max(0, bundles - int(report.get("numBundles", 0)))
        rates = float(report["msgRateIn"]) + float(report.get("msgRateOut", 0))
        usage = float((report.get("cpu") or {}).get("usage", 0))
        return cls(node_id, rates + NEW_BUNDLE * unreported, usage)


def least_loaded(chosen: int, scores: list[BrokerScore]) -> int:
    """Return the intended owner of a new bundle; ``chosen`` is the broker that the hash selects."""
    mine = next((each for each in scores if each.node_id == chosen), None)
    if mine is None:
        return chosen  # which has reported nothing, so there is no sign that it is overloaded
    fit = [each for each in scores if each.usage <= OVERLOADED]
    if not fit:
        return chosen
    best = min(fit, key=lambda each: (each.messages_per_s, each.node_id))
    if mine in fit and mine.messages_per_s <= best.messages_per_s + MARGIN:
        return chosen
    return best.node_id
