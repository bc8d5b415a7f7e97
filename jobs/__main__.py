"""The command line: `nightmill JOB …`, the same as `python -m jobs JOB …`."""

from __future__ import annotations

import importlib
import os

import click

from schemas.errors import did_you_mean

# Job name to one line of help. A job's module is imported only when it is called or asked for
# help, so that `nightmill jobs` and a typing error answer at once.
JOBS = {
    "init": "Write a task file for a data file of your own.",
    "sample": "Write sample tickets and reviews, with real-looking dirt.",
    "train": "Fine-tune, bundle and register a model; promote it if it is the first.",
    "plan": "Show how this host would score a task, how fast and for how much.",
    "score": "Score a date's partition into Parquet.",
    "validate": "Check a date's partition against the task's contract and write its pages.",
    "finetune": "Step of train: fine-tune on labelled rows.",
    "pretrain": "Teach the backbone the words of unlabelled texts, before fine-tuning.",
    "prune": "Part of bundle: cut heads, neurons or layers, and see what it costs.",
    "bundle": "Step of train: export, quantize, evaluate and gate.",
    "register": "Step of train: log the bundle to MLflow as challenger.",
    "verify-bundle": "Measure a bundle's gates on this host, which is to score with it.",
    "promote": "Move the champion alias to a registered version.",
    "models": "Show registered models, compare and decide on them, and fetch them.",
    "cascade": "Measure how much a small model may answer for the large one.",
    "quarantine": "Show a date's rejected rows by reason, with masked samples.",
    "replay": "Run a published date's rejected rows again after a fix.",
    "explain-clean": "Show what cleaning does to a text, step by step.",
    "arrived": "Say whether a date's input is there.",
    "monitor": "Say whether a night is as the ones before it: ok, watch or retrain.",
    "report": "Show what was scored: rows, quarantine, quality, samples.",
}


def module_of(name: str) -> str:
    """The module of a job."""
    return f"jobs.{name.replace('-', '_')}"


class LazyJobs(click.Group):
    """A group whose commands are modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Job names in the order people meet them."""
        return [*JOBS, "jobs"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a job; its module is imported here."""
        if cmd_name == "jobs":
            return list_jobs
        if cmd_name not in JOBS:
            return None
        command: click.Command = importlib.import_module(module_of(cmd_name)).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of jobs without importing them."""
        with formatter.section("Jobs"):
            formatter.write_dl([*JOBS.items(), ("jobs", "List the jobs.")])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Adds a did-you-mean to click's own error."""
        if args and args[0] not in self.list_commands(ctx):
            hint = did_you_mean(args[0], self.list_commands(ctx))
            ctx.fail(f"no such job {args[0]!r}{hint}; `nightmill jobs` lists them")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyJobs,
    epilog="\b\nExamples:\n"
    "  nightmill init tickets.csv --text subject --text body --label queue\n"
    "  nightmill train tickets train.epochs=2\n"
    "  nightmill score tickets --date 2026-11-28\n",
)
@click.version_option(package_name="nightmill", prog_name="nightmill")
def app() -> None:
    """Scores tickets and reviews every night.

    Exit codes: 0 done, 2 configuration, 3 data contract, 4 model or gate, 5 some shards failed
    (run it again), 75 passing trouble (run it later), 1 a bug.
    """


@click.command()
def list_jobs() -> None:
    """List the jobs."""
    width = max(map(len, JOBS))
    for name, help_line in JOBS.items():
        click.echo(f"{name:<{width}}  {help_line}")


def main() -> None:
    """Entry point of the console script."""
    # Nothing of ours phones home by default; a user's own setting wins. Threads that wait sleep:
    # spinning ones slow each other down several times over where another job shares the cores.
    for variable, value in {
        "RAY_USAGE_STATS_ENABLED": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Seconds in all where a server is away, not minutes: whoever started the job tries again.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "DO_NOT_TRACK": "1",
        "GX_ANALYTICS_ENABLED": "false",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_WAIT_POLICY": "PASSIVE",
    }.items():
        os.environ.setdefault(variable, value)
    app()


if __name__ == "__main__":
    main()
