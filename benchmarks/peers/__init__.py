"""The servers that are compared: each on loopback, on fresh data, with the values it ships with."""
