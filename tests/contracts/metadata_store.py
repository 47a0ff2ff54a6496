"""What every metadata store must do. A store joins by subclassing and giving the ``store`` fixture."""

from __future__ import annotations

import pytest

from magnetar.metadata import MUST_NOT_EXIST, BadVersion, InvalidPath, MetadataStore, NotFound


class MetadataStoreContract:
    def test_a_value_comes_back_with_its_version(self, store: MetadataStore) -> None:
        assert store.get("/a") is None
        assert store.put("/a", b"one") == 0
        assert store.put("/a", b"two") == 1
        assert store.get("/a") == (b"two", 1)

    def test_a_write_must_expect_the_right_version(self, store: MetadataStore) -> None:
        with pytest.raises(BadVersion) as missing:
            store.put("/a", b"", expected_version=0)
        assert missing.value.actual == -1
        store.put("/a", b"", MUST_NOT_EXIST)
        with pytest.raises(BadVersion):
            store.put("/a", b"", MUST_NOT_EXIST)
        assert store.put("/a", b"x", expected_version=0) == 1

    def test_delete_removes_one_node_only(self, store: MetadataStore) -> None:
        store.put("/a", b"")
        store.put("/a/b", b"")
        store.delete("/a")
        assert store.get("/a") is None
        assert store.get("/a/b") == (b"", 0)
        with pytest.raises(NotFound):
            store.delete("/a")

    def test_delete_can_expect_a_version(self, store: MetadataStore) -> None:
        store.put("/a", b"")
        with pytest.raises(BadVersion):
            store.delete("/a", expected_version=3)
        store.delete("/a", expected_version=0)
        assert store.put("/a", b"again") == 0

    def test_children_include_nodes_that_only_have_nodes_below(self, store: MetadataStore) -> None:
        for path in ("/t/b/x", "/t/b/y", "/t/a", "/t-else/z", "/t"):
            store.put(path, b"")
        assert store.children("/t") == ["a", "b"]
        assert store.children("/t/b") == ["x", "y"]
        assert store.children("/t/a") == []
        assert store.children("/") == ["t", "t-else"]

    def test_scan_is_sorted_and_by_text(self, store: MetadataStore) -> None:
        for path in ("/t/b", "/t/a", "/t/a/deep", "/u", "/t/é"):
            store.put(path, path.encode())
        assert [path for path, _ in store.scan("/t/")] == ["/t/a", "/t/a/deep", "/t/b", "/t/é"]
        assert [stored.value for _, stored in store.scan("/t/a")] == [b"/t/a", b"/t/a/deep"]

    def test_scan_does_not_see_later_writes(self, store: MetadataStore) -> None:
        store.put("/a", b"")
        rows = store.scan("/")
        store.put("/b", b"")
        assert [path for path, _ in rows] == ["/a"]

    def test_a_transaction_keeps_all(self, store: MetadataStore) -> None:
        with store.transaction():
            store.put("/a", b"1")
            with store.transaction():
                store.put("/b", b"2")
            assert store.get("/b") == (b"2", 0)
        assert [path for path, _ in store.scan("/")] == ["/a", "/b"]

    def test_a_transaction_that_raises_keeps_nothing(self, store: MetadataStore) -> None:
        def fail_in_the_end() -> None:
            with store.transaction():
                store.put("/a", b"after")
                store.put("/b", b"")
                store.put("/b", b"", MUST_NOT_EXIST)

        store.put("/a", b"before")
        with pytest.raises(BadVersion):
            fail_in_the_end()
        assert store.get("/a") == (b"before", 0)
        assert store.get("/b") is None
        store.put("/b", b"works again")

    def test_a_node_deleted_in_a_failed_transaction_is_back(self, store: MetadataStore) -> None:
        def fail_in_the_end() -> None:
            with store.transaction():
                store.delete("/a")
                store.delete("/nowhere")

        store.put("/a", b"kept")
        with pytest.raises(NotFound):
            fail_in_the_end()
        assert store.get("/a") == (b"kept", 0)

    @pytest.mark.parametrize("path", ["", "a", "/", "/a/", "//a", "/a//b", "/a\0"])
    def test_malformed_paths_are_refused(self, store: MetadataStore, path: str) -> None:
        with pytest.raises(InvalidPath):
            store.put(path, b"")
        with pytest.raises(InvalidPath):
            store.get(path)

    def test_closing_twice_is_harmless(self, store: MetadataStore) -> None:
        store.close()
        store.close()
