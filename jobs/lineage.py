"""Lineage events of a job: told where a transport is configured, never at the job's expense."""

from __future__ import annotations

import datetime as dt
import logging
import os
import threading
import uuid
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from jobs.started_by import AirflowTask, airflow_task
from pipeline.data_flow import DataFlow, Parent, StepRun
from schemas.errors import NightmillError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.data_flow import EventKind
    from pipeline.engines.open_lineage import OpenLineage
    from schemas.home import Home

NAMESPACE = "nightmill"
NAMESPACE_VARIABLE = "OPENLINEAGE_NAMESPACE"
_SWITCHES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_TRANSPORT_PREFIX = "OPENLINEAGE__TRANSPORT"
_OFF_VARIABLE = "OPENLINEAGE_DISABLED"
_AIRFLOWS_NAMESPACE = "default"  # of its provider, where none is set
_LAST_WAIT_S = 10.0  # for a server that does not answer; then the job ends without it
log = logging.getLogger(__name__)


class Step:
    """One run of a step, from its start to its one end. Its methods never raise."""

    def __init__(self, journal: Journal | None, run: StepRun) -> None:
        self._journal, self._run = journal, run

    def start(self) -> Step:
        """Tells the start."""
        if self._journal is not None:
            self._journal.start(self._run)
        return self

    def complete(self, facts: Callable[[], DataFlow]) -> None:
        """Tells the end; `facts` is asked only where events are wanted, and may fail."""
        if self._journal is not None:
            self._journal.end("COMPLETE", self._run, facts=facts)

    def fail(self, error: BaseException | str, facts: Callable[[], DataFlow] = DataFlow) -> None:
        """Tells that it failed; of an error that is not ours only the kind, for what is in it."""
        if self._journal is not None:
            self._journal.end("FAIL", self._run, facts=facts, error=_words(error))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Tells of an error that ends the block, and passes it on."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise


class Journal:
    """The events of one job. A thread sends them, so that the job waits for nobody."""

    def __init__(self, client: OpenLineage, *, namespace: str, parent: Parent | None) -> None:
        self.namespace = namespace
        self._client, self._parent = client, parent
        self._open: dict[str, StepRun] = {}
        self._events: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._warned = False
        self._sender = threading.Thread(target=self._send, name="lineage", daemon=True)
        self._sender.start()

    def start(self, run: StepRun) -> None:
        """Tells the start of a run."""
        self._open[run.run_id] = run
        self._tell("START", run, DataFlow())

    def end(
        self,
        kind: EventKind,
        run: StepRun,
        *,
        facts: Callable[[], DataFlow],
        error: str = "",
    ) -> None:
        """Tells the end of a run, with what went in and came out of it."""
        self._open.pop(run.run_id, None)
        try:
            flow = facts()
        except Exception as trouble:  # noqa: BLE001 - an event is not worth a night
            self._warn(trouble)
            flow = DataFlow()
        self._tell(kind, run, flow, error=error)

    def fail_open(self, error: BaseException) -> None:
        """Tells of all runs that have no end yet that they failed."""
        for run in tuple(self._open.values()):
            self.end("FAIL", run, facts=DataFlow, error=_words(error))

    def close(self) -> None:
        """Waits a little for what is still to be sent."""
        self._events.put(None)
        self._sender.join(_LAST_WAIT_S)
        if self._sender.is_alive():
            self._warn(TimeoutError(f"the last events were not taken within {_LAST_WAIT_S:.0f} s"))

    def _tell(
        self,
        kind: EventKind,
        run: StepRun,
        flow: DataFlow,
        *,
        error: str = "",
    ) -> None:
        moment = flow.at or dt.datetime.now(dt.UTC)
        self._events.put(
            partial(
                self._client.emit, kind, run,
                at=moment, flow=flow, parent=self._parent, error=error,
            )
        )  # fmt: skip

    def _send(self) -> None:
        while (emit := self._events.get()) is not None:
            try:
                emit()
            except Exception as error:  # noqa: BLE001 - whatever a transport raises
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "lineage events are not told (%s: %s); the job goes on",
                type(error).__name__, str(error)[:500],
            )  # fmt: skip


_JOURNAL: ContextVar[Journal | None] = ContextVar("journal", default=None)


@contextmanager
def lineage_told() -> Iterator[None]:
    """Lets the steps within tell their events; those that an error leaves open have failed."""
    journal = _journal() if _is_asked_for() else None
    if journal is None:
        yield
        return
    token = _JOURNAL.set(journal)
    try:
        yield
    except BaseException as error:
        journal.fail_open(error)
        raise
    finally:
        _JOURNAL.reset(token)
        journal.close()


def step(name: str, task: str, *, home: Home, identity: str, date: str = "") -> Step:
    """A step that may tell its start and end. Work of equal `identity` has the same run id."""
    journal = _JOURNAL.get()
    namespace = NAMESPACE if journal is None else journal.namespace
    named = "/".join((namespace, f"{task}.{name}", str(home.root), identity))
    run_id = str(uuid.uuid5(uuid.NAMESPACE_URL, named))
    return Step(journal, StepRun(name, task, run_id, date))


def this_try() -> str:
    """An identity for work that is done anew each time: Airflow's try, else a new one."""
    if (started_by := airflow_task()) is None:
        return str(uuid.uuid4())
    return "/".join(started_by.fields.values())


def _is_asked_for() -> bool:
    if os.environ.get(_OFF_VARIABLE, "").strip().lower() == "true":
        return False
    named = any(os.environ.get(name) for name in _SWITCHES)
    return named or any(name.startswith(_TRANSPORT_PREFIX) for name in os.environ)


def _journal() -> Journal | None:
    try:
        # Only who asks for events waits for their library.
        from pipeline.engines.open_lineage import (  # noqa: PLC0415
            OpenLineage,
            task_instance_run_id,
        )

        namespace = os.environ.get(NAMESPACE_VARIABLE) or NAMESPACE
        started_by = airflow_task()
        parent = None if started_by is None else _parent(started_by, task_instance_run_id)
        return Journal(OpenLineage(namespace=namespace), namespace=namespace, parent=parent)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the settings
        log.warning(
            "lineage events cannot be told (%s: %s); mend OPENLINEAGE_*",
            type(error).__name__, str(error)[:500],
        )  # fmt: skip
        return None


def _parent(task: AirflowTask, run_id_of: Callable[[dt.datetime, str], str]) -> Parent:
    """The task's own run, under the id by which Airflow's provider tells of it.

    A DAG run without a logical date has another one there, which a job cannot know.
    """
    namespace = os.environ.get(NAMESPACE_VARIABLE) or _AIRFLOWS_NAMESPACE
    name = f"{task.dag}.{task.task}"
    if task.logical_date:
        moment = dt.datetime.fromisoformat(task.logical_date)
        run_id = run_id_of(moment, f"{namespace}.{name}.{task.try_number}.-1")
    else:
        run_id = str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join((namespace, *task.fields.values()))))
    return Parent(run_id, namespace, name)


def _words(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, NightmillError) else kind
