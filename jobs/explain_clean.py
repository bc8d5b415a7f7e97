"""Shows what cleaning does to a text, and which step does it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.options import Context, job, overrides_argument
from pipeline.clean import Cleaner
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.graphemes import cut_at_grapheme
from pipeline.read import read_shard
from pipeline.rows import RawRow, Rejected
from pipeline.special_tokens import GENERIC_TOKENS
from pipeline.spool import temporary_spool
from pipeline.survey import find_inputs, survey
from pipeline.text_difference import differences, visible
from pipeline.validate import Validator
from schemas.bundle import TOKENIZER_FILE
from schemas.errors import ArtifactError, ConfigError, DataContractError
from schemas.load import load_task
from schemas.partition import parse_date

if TYPE_CHECKING:
    import datetime as dt

    from pipeline.clean import Change
    from pipeline.rows import Record
    from pipeline.text_difference import Span
    from schemas.home import Home
    from schemas.task import TaskConfig

_CONTEXT_CHARS = 40
_COLOURS = {"removed": "red", "added": "green"}
_MARKERS = {"removed": "[-{}-]", "added": "{{+{}+}}"}


@job(
    "explain-clean",
    epilog="\b\nExamples:\n"
    "  nightmill explain-clean tickets --text 'call +49 30 1234567 <b>now</b>'\n"
    "  nightmill explain-clean tickets --date 2026-11-28 --id T-1042\n"
    "  nightmill explain-clean tickets clean.also=[quoted_mail] < mail.txt\n",
)
@click.argument("task")
@click.option("--text", help="The text to clean [default: standard input].")
@click.option("--date", help="Partition of the record, as YYYY-MM-DD; goes with --id.")
@click.option("--id", "record_id", help="Record whose text columns are cleaned.")
@overrides_argument
def command(
    context: Context,
    *,
    task: str,
    text: str | None,
    date: str | None,
    record_id: str | None,
    overrides: tuple[str, ...],
) -> dict[str, Any]:
    """Show a text of TASK before and after cleaning, and which step changed what.

    Control tokens are those of the champion's tokenizer, else of the backbone's. What has no shape
    of its own is written as an escape. The text is printed as it came, personal data included.
    """
    config = load_task(task, context.home, overrides=overrides)
    texts = _texts(config, context.home, text=text, date=date, record_id=record_id)
    tokens, source = special_tokens_for(config, context.home)
    cleaner = Cleaner(config.clean, special_tokens=tokens)
    click.echo(f"cleaner {cleaner.version}, special tokens of {source}")
    explained = {name: _explain(name, text, cleaner, config) for name, text in texts.items()}
    steps = {change.step for found in explained.values() for change in found}
    return {
        "cleaner_version": cleaner.version,
        "special_tokens_of": source,
        "active": list(config.clean.active),
        "changed": sorted(steps),
        "changes": {
            name: [{"pass": change.pass_number, "step": change.step} for change in found]
            for name, found in explained.items()
        },
    }


def _texts(
    task: TaskConfig, home: Home, *, text: str | None, date: str | None, record_id: str | None
) -> dict[str, str]:
    """What is cleaned, by name: the columns of a record, or one text."""
    if date is None and record_id is None:
        return {"text": sys.stdin.read() if text is None else text}
    if date is None or record_id is None:
        raise ConfigError("--date and --id name a record together; give both, or --text")
    if text is not None:
        raise ConfigError("--text and --id name two texts; give one of them")
    return _record_texts(task, home, parse_date(date, name="--date"), record_id)


def special_tokens_for(task: TaskConfig, home: Home) -> tuple[tuple[str, ...], str]:
    """The special tokens a text of the task is cleaned for, and whose they are."""
    for path, source in ((_champions(task, home), task.model_uri), (_backbones(task), "backbone")):
        if path is not None and path.is_file():
            return BackboneTokenizer(path).special_tokens, source
    return GENERIC_TOKENS, "the common tokenizers (neither champion nor backbone is at hand)"


def _champions(task: TaskConfig, home: Home) -> Path | None:
    """The tokenizer of the model that scores; a home without a registry is not given one."""
    if task.model_uri.startswith("path:"):
        return Path(task.model_uri.removeprefix("path:")) / TOKENIZER_FILE
    database = home.tracking_uri.removeprefix("sqlite:///")
    if database != home.tracking_uri and not Path(database).is_file():
        return None
    from pipeline.engines.registry import Registry  # noqa: PLC0415 - MLflow takes seconds

    try:
        return Registry(home).fetch(task.model_uri)[1] / TOKENIZER_FILE
    except ArtifactError:
        return None


def _backbones(task: TaskConfig) -> Path | None:
    from pipeline.model.backbone import locate  # noqa: PLC0415 - transformers takes seconds

    try:
        return Path(locate(task.train.backbone)) / TOKENIZER_FILE
    except ArtifactError:
        return None


def _record_texts(task: TaskConfig, home: Home, day: dt.date, record_id: str) -> dict[str, str]:
    found = _find_record(task, home, day, record_id)
    if isinstance(found, Rejected):
        raise DataContractError(
            f"record {record_id!r} of {day} is rejected before cleaning: {found.reason} "
            f"({found.detail})"
        )
    # A record has the joined columns before the body as one text.
    names = ["+".join(task.data.text_columns[:-1]), task.data.text_columns[-1]]
    return dict(zip(names[-len(found.texts) :], found.texts, strict=True))


def _find_record(task: TaskConfig, home: Home, day: dt.date, record_id: str) -> Record | Rejected:
    validator = Validator(task.data, task.contract)
    with temporary_spool(home, task.name) as spool:
        found = survey(
            find_inputs(task.data.incoming, home, date=day),
            data=task.data,
            home=home,
            rows_per_shard=task.score.rows_per_shard,
            spool=spool,
            unique_columns=task.contract.unique_columns,
        )
        for row in (row for shard in found.shards for row in read_shard(shard)):
            checked = validator.check(row, day) if isinstance(row, RawRow) else row
            if checked.record_id == record_id:
                return checked
    rows = sum(shard.rows for shard in found.shards)
    raise ConfigError(f"--id {record_id!r}: none of the {rows} rows of {day} has this id")


def _explain(name: str, text: str, cleaner: Cleaner, task: TaskConfig) -> tuple[Change, ...]:
    cut = cut_at_grapheme(text, task.window.max_chars)
    changes = cleaner.explain(cut)
    note = "" if cut == text else f" (first {len(cut)} of {len(text)} characters)"
    click.echo(f"\n{_bold(f'{name} before')}{note}\n{visible(cut)}")
    for change in changes:
        click.echo(f"\n{_bold(change.step)} (pass {change.pass_number})")
        click.echo("".join(map(_shown, differences(change.before, change.after))))
    after = changes[-1].after if changes else cut
    click.echo(f"\n{_bold(f'{name} after')}\n{visible(after) if changes else '(nothing changed)'}")
    return changes


def _shown(span: Span) -> str:
    """A span as it is, or coloured in a terminal, or between markers in a pipe."""
    text = visible(span.text)
    if span.kind == "same":
        if len(text) <= 2 * _CONTEXT_CHARS:
            return text
        return f"{text[:_CONTEXT_CHARS]} … {text[-_CONTEXT_CHARS:]}"
    text = text.replace("\n", "\\n")
    if sys.stdout.isatty():
        return click.style(text, fg=_COLOURS[span.kind], underline=span.kind == "added")
    return _MARKERS[span.kind].format(text)


def _bold(text: str) -> str:
    return click.style(text, bold=True) if sys.stdout.isatty() else f"== {text}"
