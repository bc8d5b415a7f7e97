"""Ray started in the background: it takes seconds, and a job has other things to find out first."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from pipeline.publish import MANIFEST_FILE, Partition
from pipeline.survey import find_inputs
from schemas.errors import NightmillError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from schemas.home import Home
    from schemas.task import ScoreConfig, TaskConfig


def ray_ahead(config: TaskConfig, dates: Sequence[dt.date], *, home: Home) -> RayAhead:
    """The Ray session of a scoring job, begun at once where there is sure to be work for it."""
    session = RayAhead(lambda: _session_of(config.score))
    if _is_sure_of_work(config, dates, home):
        session.begin()
    return session


def _is_sure_of_work(config: TaskConfig, dates: Sequence[dt.date], home: Home) -> bool:
    """Whether Ray can start while the registry, which takes seconds itself, is asked for the model.

    Not where a mistake shows at once, or a published run may turn out to be the one asked for.
    """
    published = (Partition(home, config.name, day).scores / MANIFEST_FILE for day in dates)
    if not config.model_uri.startswith("models:") or any(path.exists() for path in published):
        return False
    try:
        return bool(find_inputs(config.data.incoming, home, date=dates[0]))
    except NightmillError:
        return False  # told in its place


def _session_of(score: ScoreConfig) -> AbstractContextManager[None]:
    # A run that is already published needs none of what Ray takes to import.
    from jobs.cluster import scoring_session  # noqa: PLC0415

    return scoring_session(score)


class RayAhead:
    """A session that may begin before it is known that it is needed, and ends with the block.

    Trouble with it counts only where it is waited for.
    """

    def __init__(self, session: Callable[[], AbstractContextManager[None]]) -> None:
        self._session = session
        self._stack = ExitStack()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray-ahead")
        self._starting: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._starting is not None:
            wait([self._starting])  # a session that is still starting cannot be ended
        # First the session and then the thread: Ray's processes die with the thread that made them.
        self._stack.close()
        self._thread.shutdown()

    def begin(self) -> None:
        """Starts the session in the background."""
        if self._starting is None:
            # Made here: two threads that import at once may find each other's modules half done.
            session = self._session()
            self._starting = self._thread.submit(self._stack.enter_context, session)

    def wait(self) -> None:
        """Returns once the session is there.

        Raises:
            NightmillError: it cannot be started.
        """
        self.begin()
        if self._starting is not None:
            self._starting.result()
