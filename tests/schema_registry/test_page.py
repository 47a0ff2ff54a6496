"""The example of the page runs as it stands, but for the ports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.process import BrokerProcess
from tests.schema_registry.conftest import registry_url

PAGE = Path(__file__).parents[2] / "docs" / "schema-registry.md"


def test_the_example(broker: BrokerProcess) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    code = found[1].replace("127.0.0.1:9092", broker.address)
    code = code.replace("http://127.0.0.1:8081", registry_url(broker))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "{'row': 7}\n", done.stderr
