"""Where aiokafka's tests have Docker run Kafka: a process of this machine's at the same ports, ended with them.

MAGNETAR_SUITE is the command that starts it, and MAGNETAR_SUITE_TOOLS that of Kafka's tools.
"""

import json
import os
import shlex
import subprocess

from . import models  # noqa: F401 - the suite names a class of it

KEPT = {"--zookeeper", "--authorizer-properties"}


class Container:
    """What the suite does with a container: run something in it, and stop it."""

    def __init__(self, volumes, environment):
        self._volumes = volumes
        self._process = None
        if environment:
            (certificates,) = volumes
            self._address = f"127.0.0.1:{environment['ADVERTISED_PORT']}"
            command = [
                *shlex.split(os.environ["MAGNETAR_SUITE"]),
                json.dumps({**environment, "SSL": certificates}),
            ]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            if self._process.stdout.readline().strip() != "ready":
                raise RuntimeError("the broker did not become ready")

    def exec_run(self, command, user=None):
        if isinstance(command, list):  # it makes certificates, in the one volume that is written to
            script = next(path for path, kept in self._volumes.items() if kept["bind"] == command[-1])
            directory = next(path for path, kept in self._volumes.items() if kept["bind"] == "/ssl_cert")
            done = subprocess.run(["bash", str(script)], cwd=str(directory), capture_output=True)
            return done.returncode, done.stdout + done.stderr
        words = shlex.split(command)
        tool = words[0].rsplit("/kafka-", 1)[1].removesuffix(".sh")
        arguments, skips = [], False
        for word in words[1:]:
            if not skips and word not in KEPT:
                arguments.append(word)
            skips = word in KEPT  # where ZooKeeper is stands behind it
        for part in _one_by_one(arguments):
            tools = shlex.split(os.environ["MAGNETAR_SUITE_TOOLS"])
            done = subprocess.run(
                [*tools, tool, "--bootstrap-server", self._address, *part], capture_output=True
            )
            if done.returncode:
                break
        return done.returncode, done.stdout + done.stderr

    def stop(self):
        if self._process is not None:
            self._process.communicate()


def _one_by_one(arguments):
    """Give a user's credentials to the tool one after the other: Kafka since KRaft takes no two in one request."""
    if "--add-config" not in arguments:
        return [arguments]
    at = arguments.index("--add-config") + 1
    return [[*arguments[:at], each, *arguments[at + 1 :]] for each in arguments[at].split(",")]


class _Containers:
    def run(self, image, volumes, environment=None, **how):
        return Container(volumes, environment)


class _Images:
    def pull(self, image):
        pass


class _Client:
    containers = _Containers()
    images = _Images()

    def close(self):
        pass


def from_env():
    return _Client()
