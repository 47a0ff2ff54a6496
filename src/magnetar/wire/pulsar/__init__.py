"""Pulsar's frames and commands: bytes in, values out. Nothing here sees a socket."""
