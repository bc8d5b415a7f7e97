"""Registered models for people: what there is, what differs, who decided, and files to take."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from schemas.errors import did_you_mean

# Subcommand to module, command in it and one line of help; imported when called, as jobs are.
COMMANDS = {
    "list": ("jobs.models_show", "list_models", "List models, or the versions of one."),
    "show": ("jobs.models_show", "show_model", "Show a version: origin, quality, gates, labels."),
    "diff": ("jobs.models_diff", "diff_models", "Compare two versions."),
    "promote": ("jobs.models_decide", "promote_model", "Make a version the champion."),
    "reject": ("jobs.models_decide", "reject_model", "Keep on record why a version is not to be."),
    "rollback": ("jobs.models_decide", "roll_back", "Make the previous champion the champion."),
    "history": ("jobs.models_history", "show_history", "Show who decided what, when and why."),
    "pull": ("jobs.models_pull", "pull_model", "Put a version's bundle into a folder."),
}


class LazyModels(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; its module is imported here."""
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, _, told) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Hands on what stood before the command's name; adds a did-you-mean to click's error."""
        if args and args[0] not in COMMANDS:
            hint = did_you_mean(args[0], COMMANDS)
            ctx.fail(f"no such command {args[0]!r}{hint}; `nightmill models --help` lists them")
        name, command, rest = super().resolve_command(ctx, args)
        given = [
            part
            for option, path in ctx.params.items()
            if path is not None
            for part in (f"--{option}", str(path))
        ]
        return name, command, [*given, *rest]


@click.group(
    "models",
    cls=LazyModels,
    epilog="\b\nExamples:\n"
    "  nightmill models list\n"
    "  nightmill models show tickets@challenger\n"
    "  nightmill models diff tickets champion challenger\n"
    "  nightmill models rollback tickets\n"
    "  nightmill models pull tickets@champion ./bundle\n",
)
@click.option("--home", type=click.Path(file_okay=False, path_type=Path),
              help="The same as after the command's name.")  # fmt: skip
@click.option("--result", type=click.Path(dir_okay=False, path_type=Path),
              help="The same as after the command's name.")  # fmt: skip
def command(home: Path | None, result: Path | None) -> None:
    """Show registered models, compare them, decide on them, and fetch them."""
