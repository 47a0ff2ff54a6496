"""Bytewax, at least once: it keeps offsets in snapshots of its own."""

import sys
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

bootstrap, source, target, state = sys.argv[1:]
snapshots = Path(state)
if not any(snapshots.glob("*.sqlite3")):
    snapshots.mkdir(parents=True, exist_ok=True)
    init_db_dir(snapshots, 1)
flow = Dataflow("doubling")
read = kop.input("read", flow, brokers=[bootstrap], topics=[source])
doubled = op.map("double", read.oks, lambda each: KafkaSinkMessage(None, b"%-200d" % (2 * int(each.value))))
kop.output("write", doubled, brokers=[bootstrap], topic=target, add_config={"compression.type": "gzip"})
cli_main(
    flow, epoch_interval=timedelta(seconds=0.5), recovery_config=RecoveryConfig(str(snapshots), timedelta(0))
)
