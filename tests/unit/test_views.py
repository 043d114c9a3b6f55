"""What operations return: frozen, with the keys of contract 8.7, and JSON that is JSON (contract 4.3, 8.5, 8.7, 9.4)."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from wfctl.core.instants import format_instant
from wfctl.core.model import Status
from wfctl.operations import views
from wfctl.operations.views import OccurrenceView, Page, ReloadView, SpanView, StatusView, View, from_json, plain

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)

#: At least these keys, always present (contract 8.7).
KEYS = {
    "OccurrenceView": "schedule_id instant status run_id revision lateness_s reason span recorded_at",
    "SpanView": "first last count",
    "RunView": "run_id kind schedule_id instant revision deployment_id deployment_revision status attempt started_at ended_at"
    " exit_status signal reason max_run_s overdue input output checkpoint interrupt trace",
    "ExecutionView": "k step attempt started_at ended_at exit_status signal cpu_s max_rss_bytes left_behind",
    "ScheduleView": "id state diagnostic revision effective_from next_instant candidate active_runs definition",
    "DeploymentView": "id state diagnostic revision definition",
}


@pytest.mark.parametrize("name", sorted(KEYS))
def test_8_7_the_keys_of_the_contract_are_there(name: str) -> None:
    assert set(KEYS[name].split()) <= {field.name for field in dataclasses.fields(getattr(views, name))}


@pytest.mark.parametrize("kind", View.__subclasses__())
def test_9_4_results_are_frozen(kind: Any) -> None:
    assert kind.__dataclass_params__.frozen


def occurrence(**changes: Any) -> OccurrenceView:
    fields: dict[str, Any] = {
        "schedule_id": "s", "instant": NOON, "status": "completed", "run_id": "run-000001", "revision": 1, "lateness_s": 0.5,
        "reason": None, "span": None, "recorded_at": NOON + timedelta(microseconds=1),
    }  # fmt: skip
    return OccurrenceView(**{**fields, **changes})


def test_8_7_null_where_unknown_and_every_key_there() -> None:
    assert occurrence(run_id=None).to_json() == {
        "schema": "wfctl/occurrence.v1", "schedule_id": "s", "instant": "2027-03-01T12:00:00Z", "status": "completed",
        "run_id": None, "revision": 1, "lateness_s": 0.5, "reason": None, "span": None,
        "recorded_at": "2027-03-01T12:00:00.000001Z",
    }  # fmt: skip


def test_a_view_within_a_view_and_data_within_data() -> None:
    row = occurrence(span=SpanView(first=NOON, last=NOON, count=None), reason={"code": "overlap", "runs": ("run-000001",)})
    shown = row.to_json()
    assert shown["span"] == {"first": "2027-03-01T12:00:00Z", "last": "2027-03-01T12:00:00Z", "count": None}
    assert shown["reason"] == {"code": "overlap", "runs": ["run-000001"]}
    assert json.loads(json.dumps(shown)) == shown


def test_8_7_a_list_has_schema_items_and_cursor() -> None:
    page = Page((occurrence(),), None, "wfctl/occurrences.v1")
    shown = page.to_json()
    assert list(shown) == ["schema", "items", "next_cursor"] and shown["schema"] == "wfctl/occurrences.v1"
    assert "schema" not in shown["items"][0]
    assert list(page) == list(page.items) and len(page) == 1


def test_4_3_instants_are_shown_in_utc() -> None:
    budapest = timezone(timedelta(hours=1))
    assert plain(NOON.astimezone(budapest)) == "2027-03-01T12:00:00Z"
    assert plain([{"at": NOON}]) == [{"at": format_instant(NOON)}]


def test_an_enum_is_its_word() -> None:
    assert type(plain(Status.ADMITTED)) is str and plain(Status.ADMITTED) == "admitted"


def test_9_status_and_reload_come_back_over_the_wire_as_they_were() -> None:
    words: dict[str, Any] = dict.fromkeys(("state", "host", "version", "store"), "x")
    status = StatusView(
        **words, pid=1, slots_used=0, slots_total=4, next_schedule_id=None, started_at=NOON, next_instant=NOON,
        schedules={"active": 1}, blocked=({"id": "x"},), waiting=({"id": "x", "until": NOON},), problems=({"kind": "disk"},),
    )  # fmt: skip
    assert from_json(StatusView, json.loads(json.dumps(status.to_json()))) == status
    reload = ReloadView(changed=1, blocked=2, problems=({"message": "x"},))
    assert from_json(ReloadView, json.loads(json.dumps(reload.to_json()))) == reload


def test_9_pages_and_views_within_views_come_back_over_the_wire_as_they_were() -> None:
    span = SpanView(first=NOON, last=NOON, count=None)
    page = Page((occurrence(span=span), occurrence()), "more", "wfctl/occurrences.v1")
    assert from_json(Page[OccurrenceView], json.loads(json.dumps(page.to_json()))) == page


@pytest.mark.parametrize(
    ("change", "where"),
    [
        pytest.param({"schedule_id": None}, "result.schedule_id cannot be NoneType", id="null where something must be"),
        pytest.param({"revision": True}, "result.revision cannot be bool", id="true is no number"),
        pytest.param({"instant": "noon"}, "'noon' is not an instant", id="no instant"),
        pytest.param({"span": {"first": "2027-03-01T12:00:00Z"}}, "result.span.last cannot be NoneType", id="a key is missing"),
    ],
)
def test_9_what_is_no_such_view_is_refused(change: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError, match=where):
        from_json(OccurrenceView, {**occurrence().to_json(), **change})


def test_8_7_keys_of_a_newer_version_are_passed_over() -> None:
    assert from_json(OccurrenceView, {**occurrence().to_json(), "colour": "red"}) == occurrence()
