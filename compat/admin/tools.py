"""Pulsar's administration tools as one function each: a command goes in, what it printed comes out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from processes import let_go
from run import HERE, HOME

sys.path.insert(0, str(HERE.parent))

from benchmarks.peers.pulsar import PULSAR_VERSION, pulsar_home

SECONDS = 60


class Refused(Exception):
    """The tool ended with an error; the text is what it printed."""


class PulsarAdmin:
    """``pulsar-admin`` of Pulsar's release, in one JVM for the whole run."""

    name = "pulsar-admin"
    version = PULSAR_VERSION

    def __init__(self, url: str) -> None:
        self._url = url
        jars = f"{pulsar_home()}/lib/*"
        command = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-cp", jars, "clients/PulsarAdmin.java", url]
        self._process = subprocess.Popen(
            command,
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, *command: str) -> str:
        """Run one command; raise `Refused` if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"ok"'):
                answer = json.loads(line)
                if not answer["ok"]:
                    raise Refused(f"{' '.join(command)}: {answer['out'].strip()[-300:]}")
                return str(answer["out"]).strip()
        raise Refused(f"{' '.join(command)}: the tool ended")

    def close(self) -> None:
        """End the JVM."""
        let_go(self._process)


class Pulsarctl:
    """StreamNative's ``pulsarctl``, in Go."""

    name = "pulsarctl"
    executable = HOME / "bin" / "pulsarctl"

    def __init__(self, url: str) -> None:
        self._url = url
        self.version = "master"

    def __call__(self, *command: str) -> str:
        """Run one command; raise `Refused` if it fails."""
        full = [str(self.executable), "--admin-service-url", self._url, *command]
        done = subprocess.run(full, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            raise Refused(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()[-300:]}")
        return done.stdout.strip()

    def close(self) -> None:
        """Nothing runs between commands."""


def parsed(text: str) -> Any:
    """The JSON that a tool printed, whatever it printed before."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    return json.loads(text[min(starts) :]) if starts else text


def is_there(tool: str) -> bool:
    """Whether a tool that is not fetched by itself was installed."""
    return tool == "pulsar-admin" or Path(Pulsarctl.executable).exists()
