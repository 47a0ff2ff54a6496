"""MQTT 5 for Magnetar: what MQTT's clients publish Kafka's and Pulsar's consumers read, and the other way round."""
