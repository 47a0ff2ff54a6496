"""Configurations as Kafka's tools ask for them: what there is, where it comes from, how it changes."""
