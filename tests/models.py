"""That a model of a state machine notices a defect: what its own test cannot show."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def assert_noticed(machine: type[RuleBasedStateMachine], examples: settings) -> None:
    """Run a model whose machine has been given a defect, always the same way: some run must fail by an assertion."""
    looking = settings(
        examples,
        max_examples=400,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=looking)
