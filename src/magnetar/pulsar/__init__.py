"""The protocol handler "pulsar": Pulsar's binary protocol on the topics that Kafka's clients use."""
