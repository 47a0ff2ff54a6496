"""What is deployed is what its tools take: the chart, the compose file, the units; and what they set, our settings.

`deploy/check` is Helm's engine, Kubernetes' strict decoder and Compose's loader in one program, built once by Go.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from magnetar.cli.broker import cluster_of
from magnetar.node import setting_sources
from magnetar.proxy.settings import ProxySettings

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
CHART, COMPOSE = DEPLOY / "helm" / "magnetar", DEPLOY / "compose" / "compose.yaml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MAGNETAR = Path(sys.executable).with_name("magnetar")


@pytest.fixture(scope="session")
def checker() -> Path:
    """Return the program, which is kept in the user's cache."""
    if shutil.which("go") is None:
        pytest.skip("there is no Go here to build deploy/check with")
    sources = sorted((DEPLOY / "check").iterdir())
    version = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar"
    made = cache / f"deploy-check-{version}"
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        scratch = cache / f".deploy-check-{os.getpid()}"
        build = ["go", "build", "-o", str(scratch), "."]
        built = subprocess.run(build, cwd=DEPLOY / "check", capture_output=True, text=True)
        if built.returncode and go_here() < go_wanted():  # Debian 12's brings no newer one by itself
            wanted, here = (".".join(map(str, version)) for version in (go_wanted(), go_here()))
            pytest.skip(f"deploy/check needs Go {wanted}; {here} is here")
        assert built.returncode == 0, built.stderr
        scratch.replace(made)
    return made


def go_here() -> tuple[int, ...]:
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.findall(r"\d+", said)[:2]))


def go_wanted() -> tuple[int, ...]:
    (version,) = re.findall(r"^go (\d+\.\d+)", (DEPLOY / "check" / "go.mod").read_text(), re.MULTILINE)
    return tuple(map(int, version.split(".")))


def run(checker: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(checker), *map(str, arguments)], capture_output=True, text=True)


def rendered(checker: Path, values: str = "", tmp_path: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the chart's manifests by kind and name."""
    more = []
    if values:
        assert tmp_path is not None
        (tmp_path / "values.yaml").write_text(values)
        more = [tmp_path / "values.yaml"]
    done = run(checker, "chart", CHART, *more)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def check_settings(command: Iterable[str], config: Path | None, *, is_proxy: bool = False) -> None:
    """Hold that a broker, or a proxy, takes all that a file and a command line set."""
    words = list(command)
    given = [each.removeprefix("--set=") for each in words if each.startswith("--set=")]
    given += [after for word, after in pairwise(words) if word == "--set"]
    if words[:1] == ["broker"] and config is not None:
        given += cluster_of(setting_sources.read_properties(config))
    loaded = setting_sources.load(config, given, environment={}, parts=(ProxySettings,) if is_proxy else ())
    assert set(loaded.ignored) <= {"metadataStoreUrl"}  # which `magnetar broker` has taken by then


@pytest.mark.slow
def test_the_chart_has_what_a_cluster_needs(checker: Path, tmp_path: Path) -> None:
    found = rendered(checker)
    assert set(found) == {
        "ConfigMap/east-magnetar",
        "Service/east-magnetar-broker",
        "StatefulSet/east-magnetar-broker",
        "Service/east-magnetar-proxy",
        "Deployment/east-magnetar-proxy",
        "PodDisruptionBudget/east-magnetar-broker",
        "PodDisruptionBudget/east-magnetar-proxy",
        "Job/east-magnetar-metadata",
    }
    brokers = found["StatefulSet/east-magnetar-broker"]["spec"]
    assert brokers["serviceName"] == "east-magnetar-broker"
    for kind in ("StatefulSet/east-magnetar-broker", "Deployment/east-magnetar-proxy"):
        spec = found[kind]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        selectors = [spec["selector"]["matchLabels"]]
        name = kind.partition("/")[2]
        selectors.append(found[f"Service/{name}"]["spec"]["selector"])
        selectors.append(found[f"PodDisruptionBudget/{name}"]["spec"]["selector"]["matchLabels"])
        for each in selectors:
            assert each.items() <= labels.items()
        (container,) = spec["template"]["spec"]["containers"]
        assert {"readinessProbe", "livenessProbe"} <= container.keys()
        ports = {each["name"] for each in container["ports"]}
        assert {each["targetPort"] for each in found[f"Service/{name}"]["spec"]["ports"]} <= ports


@pytest.mark.slow
def test_what_the_chart_sets_is_what_brokers_and_proxies_know(checker: Path, tmp_path: Path) -> None:
    values = (
        "broker: {config: {managedLedgerMaxEntriesPerLedger: 20000}}\nproxy: {config: {proxy.node.id: 7}}\n"
    )
    found = rendered(checker, values, tmp_path)
    files = found["ConfigMap/east-magnetar"]["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert "managedLedgerMaxEntriesPerLedger=20000" in files["broker.conf"]
    (broker,) = found["StatefulSet/east-magnetar-broker"]["spec"]["template"]["spec"]["containers"]
    environment = {"HOSTNAME": "east-magnetar-broker-2"} | {
        each["name"]: each["value"] for each in broker["env"]
    }
    # The shell itself says what the broker is given.
    script = broker["args"][0].replace("exec magnetar", "printf '%s\\n'")
    command = subprocess.run(
        ["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert command[:3] == ["broker", "--config", "/etc/magnetar/broker.conf"]
    assert "node.id=3" in command
    host = "east-magnetar-broker-2.east-magnetar-broker.streams.svc.cluster.local"
    assert f"advertised.listeners=PLAINTEXT://{host}:9092" in command
    check_settings(command, tmp_path / "broker.conf")
    check_settings((), tmp_path / "proxy.conf", is_proxy=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        "broker: {replicas: 0}",
        "metadata: {hosts: zookeeper}",
        "metadata: {path: magnetar}",
        "clusterName: ''",
    ],
)
def test_values_that_cannot_be_are_refused(checker: Path, tmp_path: Path, values: str) -> None:
    (tmp_path / "values.yaml").write_text(values)
    done = run(checker, "chart", CHART, tmp_path / "values.yaml")
    assert done.returncode == 1
    assert values.partition(":")[0] in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"), [("serviceName:", "serviceNames:"), ("replicas: {{", "replicas: x{{")]
)
def test_a_manifest_that_kubernetes_would_not_take_is_noticed(
    checker: Path, tmp_path: Path, right: str, wrong: str
) -> None:
    copied = shutil.copytree(CHART, tmp_path / "magnetar")
    file = copied / "templates" / "broker.yaml"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    done = run(checker, "chart", copied)
    assert done.returncode == 1
    assert "broker.yaml" in done.stderr


@pytest.mark.slow
def test_the_compose_file_is_a_cluster(checker: Path) -> None:
    done = run(checker, "compose", COMPOSE)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    numbers = set()
    for name, each in services.items():
        command = each.get("command") or []
        if command[:1] == ["broker"]:
            check_settings(command, COMPOSE.parent / "broker.conf")
            numbers |= {word for word in command if "node.id=" in word}
            assert f"--set=advertised.address={name}" in command
        elif command[:1] == ["proxy"]:
            check_settings(command, None, is_proxy=True)
    assert len(numbers) == 3
    assert {"zookeeper", "metadata", "bookie-1", "bookie-2", "bookie-3", "proxy"} < set(services)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("stop_grace_period", "stop_grace_periods"), ("zookeeper-log:/datalog", "no-such:/datalog")],
)
def test_a_compose_file_that_compose_would_not_take_is_noticed(
    checker: Path, tmp_path: Path, right: str, wrong: str
) -> None:
    copied = tmp_path / "compose.yaml"
    copied.write_text(COMPOSE.read_text().replace(right, wrong))
    assert run(checker, "compose", copied).returncode == 1


def verified(unit: Path) -> str:
    """Return what systemd has to say against a unit."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    return "\n".join(line for line in done.stderr.splitlines() if unit.name in line)


def exposure(unit: Path) -> float:
    """Return how exposed systemd takes a unit to be, 0 to 10."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
    )
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd looks at units that run only")
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return float(found[1])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_may_do_little_besides_its_work(unit: Path, tmp_path: Path) -> None:
    assert exposure(unit) <= 2.0
    open_to_much = tmp_path / unit.name
    open_to_much.write_text(
        re.sub(r"(?m)^(SystemCallFilter|CapabilityBoundingSet)=.*\n", "", unit.read_text())
    )
    assert exposure(open_to_much) > 2.0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_each_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    installed = re.sub(r"/opt/magnetar/bin/magnetar", str(MAGNETAR), text)
    copied = tmp_path / unit.name
    copied.write_text(installed)
    assert verified(copied) == ""
    copied.write_text(installed.replace("Type=notify", "Type=notifies").replace("Restart=", "Restarts="))
    assert "Restarts" in verified(copied)
    (started,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = shlex.split(started)
    assert words[1] == unit.stem.removeprefix("magnetar-")
    check_settings(words, None, is_proxy=words[1] == "proxy")


def test_a_broker_tells_systemd_when_it_serves(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(120)
        command = [str(MAGNETAR), "standalone", "--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0"]
        environment = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert told.recv(100) == b"READY=1"
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready kafka=")
        finally:
            process.terminate()
            process.wait()
