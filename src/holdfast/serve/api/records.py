"""Records: the deduplicated output of jobs. They belong to no queue, so a token that is limited to queues has no part
in them: nothing about a record says from which queue it came."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from holdfast.domain.names import MAX_NAME
from holdfast.domain.record import MAX_KEY
from holdfast.ports import Store
from holdfast.serve.api.access import Client, Reader, check_whole_fleet
from holdfast.serve.api.parameters import AskingRoute
from holdfast.serve.api.values import Moment, View, answer
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import problems

MOST_LISTED = 1_000
UUID = {"format": "uuid"}

router = APIRouter(prefix="/records", tags=["records"], route_class=AskingRoute)

Source = Annotated[str | None, Query(max_length=MAX_NAME)]


class RecordView(View):
    id: str
    scope: str
    source: str
    dedupe_key: str
    external_id: str | None
    strength: float
    data: Any
    job_id: Annotated[str | None, Field(description="who wrote what is there now; null: nobody under a lease")]
    attempt: int | None
    created_at: Moment
    updated_at: Moment


class RecordsView(View):
    records: list[RecordView]
    after: Annotated[str | None, Field(description="continues the list; null at its end")]


class DeletedView(View):
    deleted: int


@router.get("", response_model=RecordsView)
async def list_records(
    plane: PlaneDep,
    identity: Reader,
    scope: Annotated[str | None, Query(max_length=MAX_NAME)] = None,
    source: Source = None,
    job_id: Annotated[str | None, Query(json_schema_extra=UUID)] = None,
    dedupe_key: Annotated[
        str | None, Query(max_length=MAX_KEY, description="only together with `scope` or `job_id`")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
    after: Annotated[str | None, Query(description="`after` of the page before")] = None,
) -> Response:
    """Records, the newest first, page by page. A page may hold fewer than asked for, if they are large."""
    check_whole_fleet(identity, "a record")

    def read(store: Store) -> Response:
        page = store.records(scope=scope, source=source, job_id=job_id, dedupe_key=dedupe_key, limit=limit, after=after)
        return answer(RecordsView(records=[RecordView.model_validate(item) for item in page.items], after=page.after))

    return await plane.reads.call(read)


@router.get("/{record_id}", response_model=RecordView, responses=problems(404))
async def get_record(
    plane: PlaneDep, identity: Reader, record_id: Annotated[str, Path(json_schema_extra=UUID)]
) -> Response:
    """One record."""
    check_whole_fleet(identity, "a record")
    return await plane.reads.call(lambda store: answer(RecordView.model_validate(store.record(record_id))))


@router.delete("")
async def delete_records(
    plane: PlaneDep,
    identity: Client,
    scope: Annotated[str, Query(min_length=1, max_length=MAX_NAME)],
    source: Source = None,
    dedupe_key: Annotated[str | None, Query(max_length=MAX_KEY)] = None,
) -> DeletedView:
    """Delete the records of a scope, or those of one source or key in it."""
    check_whole_fleet(identity, "a record")
    deleted = await plane.writes.call(lambda store: store.delete_records(scope, source, dedupe_key))
    return DeletedView(deleted=deleted)
