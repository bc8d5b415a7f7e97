"""What every job shares on the command line: the home, the result file, and how errors end."""

from __future__ import annotations

import functools
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click
import yaml

from jobs.lease import lease_watched
from jobs.lineage import lineage_told
from jobs.logs import bound, configure_logging
from schemas.errors import BUG_EXIT_CODE, NightmillError
from schemas.home import Home
from schemas.manifest import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.task import TaskConfig

P = ParamSpec("P")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Context:
    """Where a job works and where it puts its result."""

    home: Home
    result: Path | None = None


def job(name: str, *, epilog: str) -> Callable[[Callable[..., dict[str, Any]]], click.Command]:
    """Makes a command of a function that takes a `Context` first and returns its result.

    The result, a small JSON-able dict, is written atomically to `--result` when the job is done,
    so that the file's existence means success. Our own errors become their exit codes.
    """

    def decorate(function: Callable[..., dict[str, Any]]) -> click.Command:
        @click.command(name=name, help=function.__doc__, epilog=epilog)
        @click.option(
            "--home",
            type=click.Path(file_okay=False, path_type=Path),
            envvar="NIGHTMILL_HOME",
            help="Folder of tasks, data, scores and models [default: ./nightmill-home].",
        )
        @click.option(
            "--result",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write the job's small JSON result here when it is done.",
        )
        @functools.wraps(function)
        def command(*, home: Path | None, result: Path | None, **arguments: Any) -> None:
            configure_logging(name)
            with bound(**_named(arguments)):
                sys.exit(run_job(function, Context(Home.find(home), result), **arguments))

        return command

    return decorate


def run_job(function: Callable[..., dict[str, Any]], context: Context, **arguments: Any) -> int:
    """Runs a job and answers its exit code; the result file exists only after success."""
    try:
        with lease_watched(), lineage_told():
            result = function(context, **arguments)
            if context.result is not None:
                write_atomically(context.result, json.dumps(result, indent=2).encode())
    except NightmillError as error:
        log.error("%s: %s", type(error).__name__, error)
        return error.exit_code
    except Exception:
        log.exception("this is a bug in Nightmill")
        return BUG_EXIT_CODE
    return 0


def _named(arguments: dict[str, Any]) -> dict[str, Any]:
    """What log lines say of a job's command line; of a range of dates each date says itself."""
    names = ["task", "run", *([] if arguments.get("through") else ["date"])]
    return {name: arguments.get(name) for name in names}


def overrides_argument(function: Callable[P, Any]) -> Callable[P, Any]:
    """Trailing `key.sub=value` arguments, applied over the task file."""
    return click.argument("overrides", nargs=-1, metavar="[KEY.SUB=VALUE]...")(function)


def dates_options(function: Callable[P, Any]) -> Callable[P, Any]:
    """`--date`, and `--through` for a range of dates that share one start-up."""
    through = click.option("--through", help="Last date of a range that begins at --date.")
    return click.option("--date", required=True, help="Partition to work on, as YYYY-MM-DD.")(
        through(function)
    )


def run_option(function: Callable[P, Any]) -> Callable[P, Any]:
    """`--run`: the name of a training run's folder."""
    return click.option("--run", help="Name of the training run [default: by data and settings].")(
        function
    )


def dry_run_option(function: Callable[P, Any]) -> Callable[P, Any]:
    """`--dry-run`: print the resolved configuration and stop."""
    return click.option(
        "--dry-run", is_flag=True, help="Print the resolved configuration and do nothing."
    )(function)


def show_config(config: TaskConfig, **extra: Any) -> dict[str, Any]:
    """Prints a resolved task as YAML, `extra` as comments before it; answers its digest."""
    for name, value in extra.items():
        click.echo(f"# {name}: {value}")
    click.echo(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False).rstrip())
    return {"dry_run": True, "config_digest": config.digest}
