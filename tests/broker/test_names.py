"""Three forms of a name, one topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import InvalidTopic
from magnetar.metadata.segments import decoded, encoded
from magnetar.topics.names import CONSUMER_OFFSETS, Naming, TopicName


@pytest.mark.parametrize("text", ["t", "public/default/t", "persistent://public/default/t"])
def test_all_forms_mean_the_same_topic(text: str) -> None:
    naming = Naming()
    assert naming.parse(text) == TopicName("public", "default", "t")
    assert naming.kafka_name(naming.parse(text)) == "t"


def test_other_tenants_and_namespaces_are_told_in_full() -> None:
    naming = Naming("acme", "shop")
    assert str(naming.parse("orders")) == "persistent://acme/shop/orders"
    assert naming.kafka_name(naming.parse("public/default/orders")) == "public/default/orders"
    assert naming.parse(CONSUMER_OFFSETS) == TopicName("public", "__kafka", CONSUMER_OFFSETS)
    assert naming.kafka_name(TopicName("acme", "shop", CONSUMER_OFFSETS)) == f"acme/shop/{CONSUMER_OFFSETS}"


def test_a_local_name_that_kafka_would_refuse_is_told_in_full() -> None:
    naming = Naming()
    topic = naming.parse("persistent://public/default/grüße & more")
    assert naming.kafka_name(topic) == "public/default/grüße & more"
    assert topic.ledger_name(3) == "public/default/persistent/gr%C3%BC%C3%9Fe+%26+more-partition-3"
    assert TopicName.from_metadata("public", "default", topic.metadata_name) == topic


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a b",
        "a:b",
        "ä",
        "a" * 250,
        "a/b",
        "a/b/c/d",
        "/b/c",
        "a//c",
        "a/b/",
        "a b/c/d",
        "../ns/t",
        "t/../t",
        "t/n/..",
        "t/n/x\n",
        "t/n/x\u202e",
        "non-persistent://t/n/x",
        "persistent://t/n",
        "persistent:///n/x",
        "t-partition-0",
        "t/n/x-partition-12",
        "t/n/" + "a" * 250,
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidTopic):
        Naming().parse(text)


def test_names_at_the_limit_are_fine() -> None:
    assert Naming().parse("a" * 249).local == "a" * 249
    assert Naming().parse("a-partition-x").local == "a-partition-x"


def test_segments_of_paths_are_those_of_javas_encoder() -> None:
    """What ``java.net.URLEncoder`` of Java 17 makes of them, in UTF-8."""
    for name, segment in {
        "a b": "a+b", "a+b": "a%2Bb", "a/b": "a%2Fb", "50%": "50%25", "a:b": "a%3Ab", "gr\u00fcn": "gr%C3%BCn",
        "~*-_.": "%7E*-_.", "(!')": "%28%21%27%29", "\U0001f600": "%F0%9F%98%80",
    }.items():  # fmt: skip
        assert (encoded(name), decoded(segment)) == (segment, name)


@given(st.text(max_size=300))
def test_every_name_is_either_refused_or_comes_back(text: str) -> None:
    naming = Naming()
    try:
        topic = naming.parse(text)
    except InvalidTopic:
        return
    assert naming.parse(naming.kafka_name(topic)) == topic
    assert naming.parse(str(topic)) == topic or topic.local == CONSUMER_OFFSETS
    assert TopicName.from_metadata(topic.tenant, topic.namespace, topic.metadata_name) == topic
