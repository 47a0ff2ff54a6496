"""A classic group that is read from its log has the leader that it had; if that is no member any more, the first."""

from __future__ import annotations

import pytest

from magnetar.kafka.coordinators.group import from_value
from magnetar.wire.kafka.messages.group_metadata_value import GroupMetadataValue, MemberMetadata


@pytest.mark.parametrize("members", [("a",), ("a", "b")])
@pytest.mark.parametrize("leader", ["a", "gone"])
def test_the_leader_is_a_member(members: tuple[str, ...], leader: str) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader=leader,
        current_state_timestamp=1,
        members=[
            MemberMetadata(
                member_id=name, client_id="c", client_host="h", rebalance_timeout=1, session_timeout=1,
                subscription=b"", assignment=b"",
            )
            for name in members
        ],
    )  # fmt: skip
    assert from_value("g", value).leader == "a"
