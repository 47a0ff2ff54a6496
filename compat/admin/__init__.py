"""What administrators do with Pulsar's own tools, with the outcome checked."""
