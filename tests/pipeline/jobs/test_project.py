"""What a new project looks like, by who writes its tables, and in which passes a run goes through it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from magnetar.pipeline.jobs.passes import Pass, empty, passes, registry_of
from magnetar.pipeline.jobs.project import _DELTA, create
from magnetar.pipeline.jobs.spec import ProjectSpec, load_spec
from magnetar.pipeline.jobs.tables import direct_table, place_of

ROOT = Path(__file__).parents[3]


def project(place: Path, **options: str) -> ProjectSpec:
    create(place, "t", place, schema="id int", **options)  # type: ignore[arg-type]
    return load_spec(place)


def by_magnetar(spec: ProjectSpec) -> set[str]:
    """Return the tables that the project's file makes sinks of."""
    code = (spec.directory / "transformations" / "t.py").read_text()
    compile(code, "t.py", "exec")
    return {name for name in spec.topic("t").tables if f'create_sink("{name}"' in code}


@pytest.mark.parametrize(
    ("options", "sinks", "current"),
    [
        ({}, {"t_bronze"}, "rebuild"),
        ({"current": "upsert"}, {"t_bronze", "t_current"}, "upsert"),
        ({"writer": "spark"}, set(), "rebuild"),
        ({"writer": "spark", "table_format": "delta"}, set(), "rebuild"),
        ({"table_format": "delta"}, {"t_bronze", "t_decoded", "t_dead_letters", "t_current"}, "upsert"),
        ({"table_format": "iceberg", "current": "none"}, {"t_bronze", "t_decoded", "t_dead_letters"}, "none"),
    ],
)
def test_the_file_says_who_writes(
    tmp_path: Path, options: dict[str, str], sinks: set[str], current: str
) -> None:
    spec = project(tmp_path, **options)
    assert by_magnetar(spec) == sinks == {name for name in spec.topic("t").tables if spec.is_direct(name)}
    assert spec.topic("t").current == current
    jars = "spark.jars.packages" in (tmp_path / "conf" / "spark-defaults.conf").read_text()
    assert jars == (options == {"writer": "spark", "table_format": "delta"})


@pytest.mark.parametrize("options", [{}, {"table_format": "iceberg"}, {"writer": "spark"}])
def test_every_table_is_in_one_pass_behind_what_it_is_made_of(
    tmp_path: Path, options: dict[str, str]
) -> None:
    spec = project(tmp_path, **options)
    names = [*spec.topic("t").tables, "somebody's own"]
    order = [[name for name in names if each.has(name)] for each in passes(spec, (), (), False, dry=False)]
    assert sorted(name for part in order for name in part) == sorted(names)
    assert order[0] == ["t_bronze"]
    assert "t_decoded" in order[1]
    assert "somebody's own" in order[2]


def test_a_pass_that_nothing_belongs_to_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.pipelines import spark_connect_graph_element_registry as theirs

    class Registry:
        def __init__(self, *_: object) -> None: ...

        def register_output(self, output: object) -> None: ...

        def register_flow(self, flow: object) -> None: ...

    monkeypatch.setattr(theirs, "SparkConnectGraphElementRegistry", Registry)
    registry = registry_of(None, "graph", Pass(without=["t_bronze"]))  # type: ignore[arg-type]
    registry.register_output(SimpleNamespace(name="t_bronze"))
    assert registry.is_empty
    registry.register_output(SimpleNamespace(name="mine"))
    assert not registry.is_empty


def test_a_selection_is_all_that_is_worked_on(tmp_path: Path) -> None:
    spec = project(tmp_path)
    parts = list(passes(spec, ("t_decoded",), ("t_bronze", "t_current"), False, dry=False))
    assert [(list(each.tables or ()), list(each.anew)) for each in parts] == [
        (["t_bronze"], []),
        (["t_decoded", "t_current"], ["t_current"]),
    ]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_that_is_emptied_is_gone_with_its_checkpoint(tmp_path: Path, kind: str) -> None:
    from magnetar.pipeline import tables

    spec = project(tmp_path, table_format=kind)
    tables.open(place_of(spec, "t_bronze"), kind)
    checkpoint = tmp_path / "storage" / "_checkpoints" / "t_bronze" / "t_bronze" / "0"
    checkpoint.mkdir(parents=True)
    assert direct_table(spec, "t_bronze") is not None
    empty(spec, ["t_bronze", "t_decoded"])
    assert direct_table(spec, "t_bronze") is None
    assert not checkpoint.exists()
    tables.open(place_of(spec, "t_bronze"), kind)


def test_the_extra_installs_a_spark_that_the_named_jars_are_made_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (spark,) = (Requirement(each) for each in extras["spark"] if each.startswith("pyspark"))
    made_for = re.search(r"delta-spark_(\d+)\.(\d+)_", _DELTA)
    assert made_for is not None
    major, minor = map(int, made_for.groups())
    assert spark.specifier.contains(f"{major}.{minor}.0")
    assert spark.specifier.contains(f"{major}.{minor}.9")
    assert not spark.specifier.contains(f"{major}.{minor + 1}.0")


def test_streams_wait_for_their_python_on_a_busy_machine(tmp_path: Path) -> None:
    project(tmp_path)
    defaults = (tmp_path / "conf" / "spark-defaults.conf").read_text()
    assert "spark.python.authenticate.socketTimeout         120s" in defaults
