"""Engine "bookkeeper": managed ledgers in Apache BookKeeper, kept by Pulsar's own library in a JVM of this process."""
