"""The pytest plugin as its users have it: fixtures that are found without an import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TEN_LINES = """
from confluent_kafka import Producer
import pytest

def test_a_broker_of_its_own(magnetar):
    magnetar.produce("t", "v")
    assert [record.value for record in magnetar.records("t")] == [b"v"]

@pytest.mark.magnetar(settings={"num.partitions": 2}, faults=True)
def test_marked(magnetar):
    magnetar.produce("t", "v")
    magnetar.cut()
    assert len(magnetar.records("t")) == 1

@pytest.mark.parametrize("turn", [1, 2])
def test_one_for_all(magnetar_session, turn):
    magnetar_session.reset()
    magnetar_session.produce("t", *["v"] * turn)
    assert len(magnetar_session.records("t")) == turn
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmagnetar_settings =\n    num.partitions=3\n")
    return pytester


@pytest.mark.slow
def test_fixtures_are_found(project: pytest.Pytester) -> None:
    project.makepyfile(TEN_LINES)
    result = project.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers")
    result.assert_outcomes(passed=4)


@pytest.mark.slow
def test_settings_of_the_configuration_hold(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from magnetar.testing import Record

        def test_three(magnetar):
            magnetar.produce("t", *(Record("v", partition=each) for each in range(3)))
            assert len(magnetar.records("t")) == 3
        """
    )
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.slow
def test_nothing_is_imported_for_tests_that_want_no_broker(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys

        def test_none():
            assert not [name for name in sys.modules if name.startswith("magnetar.")]
            assert "uvloop" not in sys.modules
        """
    )
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.slow
def test_unittest(tmp_path: Path, pytester: pytest.Pytester) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(
        """
import unittest
from magnetar.testing import Broker

class OrdersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = cls.enterClassContext(Broker())

    def setUp(self):
        self.broker.reset()

    def test_one(self):
        self.broker.produce("orders", "v")
        self.assertEqual(len(self.broker.records("orders")), 1)

    def test_none(self):
        self.broker.create_topic("orders")
        self.assertEqual(self.broker.records("orders"), [])

unittest.main()
"""
    )
    assert pytester.run(sys.executable, str(path)).ret == 0
