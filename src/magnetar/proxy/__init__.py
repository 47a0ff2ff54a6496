"""One address in front of a cluster: clients that cannot reach brokers talk to this process, and it to them.

It stores nothing. `kafka/` carries Kafka's requests to the brokers that own their rows and joins the answers, `pulsar/`
Pulsar's connections, `web` HTTP.

May import: `kafka` (its routes and handlers of sockets), `serving`, `client`, and below.
"""
