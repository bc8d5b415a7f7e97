"""When a task's nights run and with what right: the section `schedule` of a task file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from schemas.section import Section

MAX_RESCORE_DAYS = 31
LatePolicy = Literal["fail", "skip", "score_what_is_there"]


class LateConfig(Section):
    """What a night does whose input is not there yet, and what becomes of input that comes after.

    Every `poll_minutes`, for at most `wait_minutes`, the night looks for `marker`, an address that
    may hold `{date}`; without one any file of `data.incoming` will do. Between two looks it holds
    no worker. `then` says what follows in vain: the run fails, is skipped, or goes on with the
    files that are there. With 0 minutes and no marker nobody waits, and a night without input ends
    as a broken contract.

    Dates whose files have changed since they were scored are scored again by the DAG `monitor`, as
    far back as `rescore_days` before its own date.
    """

    wait_minutes: Annotated[float, Field(ge=0)] = 0.0
    poll_minutes: Annotated[float, Field(gt=0)] = 5.0
    marker: str | None = None
    then: LatePolicy = "fail"
    rescore_days: Annotated[int, Field(ge=0, le=MAX_RESCORE_DAYS)] = 0

    @property
    def waits(self) -> bool:
        """Whether there is anything to wait for before the input is checked."""
        return self.wait_minutes > 0 or self.marker is not None


class ScheduleConfig(Section):
    """When nights run; a plain string is its `cron`, and null in its place is no schedule at all.

    `by: interval` scores the date on which the interval between two fires of `cron` begins: at 2 in
    the morning that of the day that has ended. `by: partition` names the date by a partition key,
    `run_offset` fires of `cron` away from the run. With `asset`, the name or address of the
    arriving data, there is no cron: an event of that asset starts the run, and its extra has the
    `date`; with `by: partition` the event's partition key is the date. Dates are those of
    `timezone`.

    `pool`, `pool_slots` and `priority_weight` are Airflow's, for the step that scores. Every step
    ends after `execution_timeout_minutes`. A run that is not done `deadline_minutes` after it was
    queued is told about. Notices go to the log and, with `notify`, as JSON to the address of that
    Airflow connection.
    """

    cron: str | None = "0 2 * * *"
    timezone: str = "UTC"
    by: Literal["interval", "partition"] = "interval"
    run_offset: int = -1
    asset: str | None = None
    max_active_runs: Annotated[int, Field(ge=1)] = 1
    pool: str = "default_pool"
    pool_slots: Annotated[int, Field(ge=1)] = 1
    priority_weight: Annotated[int, Field(ge=1)] = 1
    execution_timeout_minutes: Annotated[float, Field(gt=0)] | None = None
    deadline_minutes: Annotated[float, Field(gt=0)] | None = None
    late: LateConfig = LateConfig()
    notify: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _what_is_said_replaces_the_default_cron(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"cron": value}
        if isinstance(value, dict) and value.get("asset") is not None:
            return {"cron": None} | value
        return value

    @field_validator("timezone")
    @classmethod
    def _timezone_is_known(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (ValueError, OSError, KeyError):
            raise ValueError("not the name of a time zone, such as Europe/Berlin") from None
        return timezone

    @model_validator(mode="after")
    def _starts_in_one_way(self) -> Self:
        if self.asset is not None and self.cron is not None:
            raise ValueError("cron and asset are both set; a night starts by one of them")
        return self
