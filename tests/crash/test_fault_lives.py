"""Whatever calls on the data directory fail, nothing acknowledged is lost, and it opens again; see ``fault_lives.py``.

``MAGNETAR_FAULT_LIVES`` says how many brokers live on a disk that fails, ``MAGNETAR_SEED`` which is the first.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import faults
from tests.process import environment

DRIVER = Path(__file__).with_name("fault_lives.py")
TREE = DRIVER.parents[2]
LIVES = int(os.environ.get("MAGNETAR_FAULT_LIVES", "24"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * LIVES)
def test_lives_on_a_disk_that_fails() -> None:
    if faults.compiler() is None:
        pytest.skip("no C compiler to build the disk that fails")
    first = int(os.environ.get("MAGNETAR_SEED", str(random.randrange(1 << 30))))
    with faults.quick_folder() as folder:
        (folder / "data").mkdir()
        plan = faults.Plan(folder / "plan", folder / "data")
        done = subprocess.run(
            [sys.executable, DRIVER, plan.file, plan.root, str(first), str(LIVES)],
            env={
                **environment(),
                "PYTHONPATH": f"{TREE / 'src'}{os.pathsep}{TREE}",  # this one, also where another is installed
                **plan.environment(faults.build(folder)),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    print(done.stdout.splitlines()[-1:])
    assert done.returncode == 0, f"MAGNETAR_SEED={first}: {done.stdout}{done.stderr[-2000:]}"
