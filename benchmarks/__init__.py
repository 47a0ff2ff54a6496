"""Side by side with Apache Kafka on this machine: speed, latency, memory, start-up, recovery."""
