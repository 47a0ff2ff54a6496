"""What comes with Kafka and is built on its protocol, each at work while things are killed."""
