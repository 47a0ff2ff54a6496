"""What comes with Kafka and is built on its protocol, at work."""
