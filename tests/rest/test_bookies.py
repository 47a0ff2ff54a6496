"""``pulsar-admin bookies``: racks are set, listed and forgotten, and what says no rack is refused."""

from __future__ import annotations

import httpx

ROOT = "/admin/v2/bookies"
RACKS = f"{ROOT}/racks-info"


def test_racks_are_set_listed_and_forgotten(http: httpx.Client) -> None:
    assert http.get(RACKS).json() == {}
    assert http.get(f"{ROOT}/all").json() == {"bookies": []}  # one broker on one disk has none
    one = {"rack": "/east/rack-1", "hostname": "bookie-1"}
    set_one = http.post(f"{RACKS}/bookie-1:3181", params={"group": "default"}, json=one)
    assert set_one.status_code == 204
    assert http.get(RACKS).json() == {"default": {"bookie-1:3181": one}}
    assert http.get(f"{RACKS}/bookie-1:3181").json() == one
    # A bookie is of one group.
    other = {"rack": "/east/rack-2"}
    assert http.post(f"{RACKS}/bookie-1:3181", params={"group": "g"}, json=other).status_code == 204
    assert http.get(RACKS).json() == {"g": {"bookie-1:3181": {"rack": "/east/rack-2", "hostname": ""}}}
    assert http.delete(f"{RACKS}/bookie-1:3181").status_code == 204
    assert http.get(RACKS).json() == {}


def test_what_names_no_bookie_no_group_or_no_rack_is_refused(http: httpx.Client) -> None:
    for answer in (http.get(f"{RACKS}/none:1"), http.delete(f"{RACKS}/none:1")):
        assert answer.status_code == 404
        assert answer.json()["reason"] == "Bookie address not found: none:1"
    where = f"{RACKS}/bookie-1:3181"
    assert http.post(where, json={"rack": "/r"}).status_code == 412
    for told in ({}, {"rack": ""}, {"rack": "/"}, {"rack": 7}, {"rack": "/r", "hostname": 7}, ["/r"], None):
        answer = http.post(where, params={"group": "g"}, json=told)
        assert answer.status_code == 412, (told, answer.text)
    assert http.post(where, params={"group": "g"}, content=b"{").status_code == 400
    assert http.get(RACKS).json() == {}
