"""What a record that was sent again carries, so that nobody takes it for a new one."""

REPLAY_HEADER = "magnetar.replay.of"
"""The header of a record sent again; its value is ``partition:offset`` of the first one."""
