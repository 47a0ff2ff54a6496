"""One address in front of a cluster: clients that cannot reach brokers talk to this process, and it to them."""
