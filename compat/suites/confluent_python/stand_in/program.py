"""Call functions of the suite's older tests one after the other: program.py TOPIC FUNCTION...

In the suite a script does so, which ends at its first line: it takes ``confluent_kafka.version()`` for a tuple.
"""

import json
import os
import sys

from tests.integration import integration_test

places = json.loads(os.environ["MAGNETAR_SUITE_PLACES"])
integration_test.bootstrap_servers = places["broker"]
integration_test.schema_registry_url = places["registry"]
integration_test.topic, *functions = sys.argv[1:]
for function in functions:
    getattr(integration_test, function)()
