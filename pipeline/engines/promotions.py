"""Who made which version the champion: decisions kept in MLflow beside the models they are about.

Each decision is a run of one experiment: its tags are written as the run is made, in one step, and
its status says whether the aliases were moved (FINISHED) or are still to be (RUNNING). So the
history is the same for a SQLite file and for a server that many hosts use. A process that dies in
between leaves a decision that whoever comes next carries out.
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlflow.exceptions import MlflowException
from pydantic import ValidationError

from pipeline.engines.file_lock import exclusive
from pipeline.engines.mlflow_client import alias_version, is_absent
from pipeline.engines.model_version import CODE_TAG
from schemas.errors import ArtifactError, ConfigError, TransientError
from schemas.promotion import Decision, EvidenceRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from schemas.bundle import BundleSpec
    from schemas.manifest import ModelRef
    from schemas.promotion import Action

CHAMPION, CHALLENGER, PREVIOUS = "champion", "challenger", "previous"
HISTORY_EXPERIMENT = "nightmill-promotions"
_MODEL_TAG = "nightmill.model"
_PIECE_TAG = "nightmill.decision."
# Databases keep 8,000 characters of a tag, and MLflow cuts off what is longer without a word.
_PIECE_CHARS = 4_000
_REASON_CHARS = 1_000
_SETTLED, _OPEN, _VOID = "FINISHED", "RUNNING", "FAILED"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Line:
    """A decision as it stands in the history; settled once the aliases are as it says."""

    run_id: str
    decision: Decision
    is_settled: bool


class Promotions:
    """The history of one registry's decisions, and the aliases that follow from it."""

    def __init__(
        self,
        client: Any,
        *,
        experiment: Callable[[], str],
        spec_of: Callable[[ModelRef], BundleSpec],
        lock: Path,
    ) -> None:
        self._client = client
        self._experiment = experiment
        self._spec_of = spec_of
        self._lock = lock

    def history(self, name: str) -> tuple[Decision, ...]:
        """All decisions about a model, oldest first; one that was left half done is carried out."""
        with exclusive(self._lock):
            try:
                lines = self._settle(name)
            except ConfigError as error:  # of one who may read and not write
                log.warning("a decision about %s is not carried out yet: %s", name, error)
                lines = list(self._lines(name))
        return tuple(line.decision for line in reversed(lines))

    def promote(self, model: ModelRef, *, approver: str, reason: str) -> Decision | None:
        """Makes a version the champion; None where it is already.

        Raises:
            ArtifactError: the version went away meanwhile.
        """
        with exclusive(self._lock):
            lines = self._settle(model.name)
            if alias_version(self._client, model.name, CHAMPION) == model.version:
                return None
            return self._decide(model, "promoted", approver, reason, after=lines)

    def reject(self, model: ModelRef, *, approver: str, reason: str) -> Decision | None:
        """Keeps on record that a version is not to be the champion; it stays as it is.

        None where the same person has rejected it for the same reason, as a retry does.

        Raises:
            ConfigError: it is the champion.
        """
        with exclusive(self._lock):
            lines = self._settle(model.name)
            if alias_version(self._client, model.name, CHAMPION) == model.version:
                raise ConfigError(
                    f"models:/{model.name}/{model.version} is the champion and cannot be rejected; "
                    f"promote another version, or `nightmill models rollback {model.name}`"
                )
            about = [line.decision for line in lines if line.decision.version == model.version]
            if about and (about[0].action, about[0].approver, about[0].reason) == (
                "rejected", approver, _short(reason),
            ):  # fmt: skip
                return None
            return self._decide(model, "rejected", approver, reason, after=lines)

    def roll_back(
        self, name: str, ref: Callable[[str], ModelRef], *, approver: str, reason: str
    ) -> Decision:
        """Makes the previous champion the champion again; `ref` tells a version's digest.

        Raises:
            ConfigError: the champion is there by a rollback: another one would bring back what was
                rolled back, as where a command is given twice.
            ArtifactError: there is no previous one.
        """
        with exclusive(self._lock):
            lines = self._settle(name)
            champion, previous = (
                alias_version(self._client, name, alias) for alias in (CHAMPION, PREVIOUS)
            )
            if previous is None:
                raise ArtifactError(
                    f"model {name!r} has no previous champion to go back to; promote a version: "
                    f"`nightmill models list {name}` shows them"
                )
            last = _newest_change(lines)
            is_by_rollback = last is not None and last.decision.action == "rolled back"
            if is_by_rollback and last is not None and last.decision.version == champion:
                raise ConfigError(
                    f"models:/{name}/{champion} is the champion by a rollback from version "
                    f"{previous}; to bring that back: `nightmill models promote {name} --version "
                    f"{previous}`"
                )
            return self._decide(ref(previous), "rolled back", approver, reason, after=lines)

    def _decide(
        self, model: ModelRef, action: Action, approver: str, reason: str, *, after: list[_Line]
    ) -> Decision:
        now = dt.datetime.now(dt.UTC)
        if after:  # hosts' clocks differ, and the order of the lines is what counts
            now = max(now, after[0].decision.at + dt.timedelta(milliseconds=1))
        decision = Decision(
            model=model.name,
            version=model.version,
            digest=model.digest,
            action=action,
            before=alias_version(self._client, model.name, CHAMPION),
            approver=approver,
            reason=_short(reason),
            at=now.replace(microsecond=now.microsecond // 1000 * 1000),
            evidence=self._evidence(model),
        )
        run_id = self._record(decision)
        if not any(line.run_id == run_id for line in self._settle(model.name)):
            raise ArtifactError(
                f"models:/{model.name}/{model.version} cannot be {action}: it is not there any more"
            )
        return decision

    def _evidence(self, model: ModelRef) -> EvidenceRecord | None:
        tags = self._client.get_model_version(model.name, model.version).tags
        try:
            return EvidenceRecord.of(self._spec_of(model), code=tags.get(CODE_TAG, ""))
        except (ArtifactError, TransientError) as error:
            # What must happen now, as a rollback, does not wait for it.
            log.warning("decided without evidence on record: %s", error)
            return None

    def _record(self, decision: Decision) -> str:
        """Writes a line; it is there with all of its parts, or not at all."""
        text = decision.model_dump_json()
        pieces = [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]
        # The first ones are for people, who look at the experiment in MLflow.
        tags = {
            _MODEL_TAG: decision.model,
            "nightmill.version": decision.version,
            "nightmill.action": decision.action,
            "nightmill.before": decision.before or "none",
            "nightmill.approver": decision.approver,
            "nightmill.reason": decision.reason,
            "nightmill.digest": decision.digest,
        } | {f"{_PIECE_TAG}{number}": piece for number, piece in enumerate(pieces)}
        made = self._client.create_run(
            self._experiment(),
            run_name=f"{decision.model} version {decision.version} {decision.action}",
            start_time=int(decision.at.timestamp() * 1000),
            tags=tags,
        )
        return str(made.info.run_id)

    def _settle(self, name: str) -> list[_Line]:
        """Makes the aliases what the newest decision says; answers all lines, the newest first.

        Looks again after each change: two hosts may decide at once, and the one that is slower
        must not put its own, older decision over the newer one.
        """
        carried_out = None
        while True:
            lines = list(self._lines(name))
            waiting = [line for line in lines if not line.is_settled]
            change = _newest_change(lines)
            is_late = change is not None and carried_out not in (None, change.run_id)
            if not waiting and not is_late:
                return lines
            if change is not None and (is_late or not change.is_settled):
                carried_out = change.run_id
                self._carry_out(change)
            for line in reversed(waiting):
                if line is not change:
                    self._carry_out(line, moves_aliases=False)

    def _carry_out(self, line: _Line, *, moves_aliases: bool = True) -> None:
        decision = line.decision
        try:
            self._tag(decision)
            if moves_aliases:
                self._move_aliases(decision)
        except MlflowException as error:
            if not is_absent(error):
                raise
            log.warning(
                "models:/%s/%s was to be %s by %s, but is not there any more",
                decision.model, decision.version, decision.action, decision.approver,
            )  # fmt: skip
            self._client.set_terminated(line.run_id, _VOID)
            return
        self._client.set_terminated(line.run_id, _SETTLED)

    def _tag(self, decision: Decision) -> None:
        for tag, text in (
            ("nightmill.decision", decision.action),
            ("nightmill.approver", decision.approver),
            ("nightmill.reason", decision.reason),
        ):
            self._client.set_model_version_tag(decision.model, decision.version, tag, text)

    def _move_aliases(self, decision: Decision) -> None:
        name, version = decision.model, decision.version
        if decision.before is not None:
            self._client.set_registered_model_alias(name, PREVIOUS, decision.before)
        self._client.set_registered_model_alias(name, CHAMPION, version)
        if alias_version(self._client, name, CHALLENGER) == version:
            self._client.delete_registered_model_alias(name, CHALLENGER)

    def _lines(self, name: str) -> Iterator[_Line]:
        experiment = self._client.get_experiment_by_name(HISTORY_EXPERIMENT)
        token = None
        while experiment is not None:
            page = self._client.search_runs(
                [experiment.experiment_id],
                filter_string=f"tags.`{_MODEL_TAG}` = '{name}'",
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            for run in page:
                if run.info.status in (_SETTLED, _OPEN):
                    yield _line(run)
            if not (token := page.token):
                return


def _line(run: Any) -> _Line:
    tags, run_id = run.data.tags, str(run.info.run_id)
    pieces = sum(tag.startswith(_PIECE_TAG) for tag in tags)
    try:
        decision = Decision.model_validate_json(
            "".join(tags.get(f"{_PIECE_TAG}{number}", "") for number in range(pieces))
        )
    except ValidationError as error:
        raise ArtifactError(
            f"run {run_id} of experiment {HISTORY_EXPERIMENT} is not a decision; its tags were "
            f"altered: delete the run in MLflow, or restore them"
        ) from error
    return _Line(run_id, decision, run.info.status == _SETTLED)


def _newest_change(lines: list[_Line]) -> _Line | None:
    return next((line for line in lines if line.decision.makes_champion), None)


def _short(reason: str) -> str:
    return reason if len(reason) <= _REASON_CHARS else f"{reason[: _REASON_CHARS - 1]}…"
