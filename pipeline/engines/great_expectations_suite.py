"""The contract as a Great Expectations suite over a partition, and its pages.

Importing Great Expectations takes five seconds; only the job that writes pages imports this.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pandas as pd
from great_expectations.data_context.types import base as chatty_module

from pipeline.engines.quality_pages import (
    INDEX,
    CheckedExpectation,
    QualityReport,
    expected_in_words,
    finish_pages,
    observed_in_words,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.partition_profile import PartitionProfile
    from schemas.task import ContractConfig, TaskConfig

# No sample values: the pages are read by many, the rows are customers' words.
_RESULT_FORMAT = {"result_format": "SUMMARY", "partial_unexpected_count": 0}


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The start of the pages, and what was found."""

    page: Path
    expectations: tuple[CheckedExpectation, ...]

    @property
    def failures(self) -> tuple[CheckedExpectation, ...]:
        """The expectations that the partition does not meet, warnings among them."""
        return tuple(each for each in self.expectations if not each.passed)


def build_suite(task: TaskConfig, *, rows: int) -> gx.ExpectationSuite:
    """The expectations of a task; a partition without rows is only counted."""
    contract = task.contract
    expectations: list[Any] = [
        gxe.ExpectTableRowCountToBeBetween(min_value=contract.min_rows, severity="critical")
    ]
    if rows:
        expectations += [*_about_texts(task), *_about_ids(contract), *_about_columns(contract)]
        expectations.append(
            gxe.ExpectColumnMeanToBeBetween(
                column="row_rejected",
                max_value=contract.max_reject_fraction,
                severity="critical",
                notes="Share of rows that would not be scored.",
            )
        )
    return gx.ExpectationSuite(name=task.name, expectations=expectations)


def check_partition(task: TaskConfig, profile: PartitionProfile, *, folder: Path) -> SuiteResult:
    """Checks a partition by its profile and replaces the pages in `folder`, named `date=D`."""
    frame = _frame(profile.columns)
    pages = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    suite = build_suite(task, rows=len(frame))
    results = _run(_context(), suite, frame, pages=pages, name=folder.name)
    report = QualityReport(
        task=task.name,
        partition=folder.name.removeprefix("date="),
        rows=profile.rows,
        by_reason={str(reason): count for reason, count in profile.by_reason.items()},
        expectations=tuple(map(_checked, results)),
    )
    finish_pages(pages, report)
    _replace_folder(pages, folder)
    return SuiteResult(folder / INDEX, report.expectations)


def _about_texts(task: TaskConfig) -> list[Any]:
    contract = task.contract
    exist = [
        gxe.ExpectColumnToExist(column=f"{column}_chars", severity="critical")
        for column in task.data.text_columns
    ]
    return [
        *exist,
        gxe.ExpectColumnValuesToNotBeNull(
            column="text_chars",
            mostly=_tolerated(contract),
            severity="critical",
            notes="Rows with a text that is not blank.",
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="text_chars",
            min_value=contract.min_text_chars,
            max_value=contract.max_text_chars,
            mostly=_tolerated(contract),
            severity="critical",
        ),
    ]


def _about_ids(contract: ContractConfig) -> list[Any]:
    """A repeated id only warns: its later rows are rejected one by one, and counted as such."""
    mostly = _tolerated(contract)
    return [
        gxe.ExpectColumnValuesToNotBeNull(column="record_id", mostly=mostly, severity="critical"),
        gxe.ExpectColumnValuesToBeUnique(column="record_id", mostly=mostly, severity="warning"),
    ]


def _about_columns(contract: ContractConfig) -> list[Any]:
    expectations: list[Any] = []
    for column, rule in contract.columns.items():
        rejects = rule.severity == "reject"
        shared = {
            "column": column,
            "mostly": _tolerated(contract) if rejects else 1.0,
            "severity": "critical" if rejects else "warning",
        }
        if rule.required:
            expectations.append(gxe.ExpectColumnValuesToNotBeNull(**shared))
        if rule.allowed is not None:
            expectations.append(
                gxe.ExpectColumnValuesToBeInSet(value_set=list(rule.allowed), **shared)
            )
    return expectations


def _tolerated(contract: ContractConfig) -> float:
    return 1.0 - contract.max_reject_fraction


def _frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    return pd.DataFrame({name: _series(values) for name, values in columns.items()})


def _series(values: Sequence[Any]) -> pd.Series[Any]:
    """Types are explicit: what pandas infers would change with the night's nulls."""
    is_number = all(value is None or isinstance(value, int | float) for value in values)
    return pd.Series(list(values), dtype="float64" if is_number else "object")


def _context() -> Any:
    # On import this module of theirs gives its logger a level of its own, so that what the entry
    # point set for all of Great Expectations does not reach it.
    logging.getLogger(chatty_module.__name__).setLevel(logging.NOTSET)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    # It comes with a site of its own in a new temporary folder, which nobody would remove.
    spare = context.variables.data_docs_sites["local_site"]["store_backend"]["base_directory"]
    context.delete_data_docs_site("local_site")
    shutil.rmtree(spare, ignore_errors=True)
    return context


def _run(
    context: Any, suite: gx.ExpectationSuite, frame: pd.DataFrame, *, pages: Path, name: str
) -> list[Any]:
    """Results of all expectations; the pages are written on the way."""
    context.add_data_docs_site(
        site_name="pages",
        site_config={
            "class_name": "SiteBuilder",
            "show_how_to_buttons": False,
            "store_backend": {
                "class_name": "TupleFilesystemStoreBackend",
                "base_directory": str(pages),
            },
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        },
    )
    asset = context.data_sources.add_pandas("partition").add_dataframe_asset(suite.name)
    definition = gx.ValidationDefinition(
        name=suite.name,
        data=asset.add_batch_definition_whole_dataframe("rows"),
        suite=context.suites.add(suite),
    )
    checkpoint = gx.Checkpoint(
        name=suite.name,
        validation_definitions=[context.validation_definitions.add(definition)],
        actions=[gx.checkpoint.UpdateDataDocsAction(name="pages", site_names=["pages"])],
        result_format=_RESULT_FORMAT,
    )
    outcome = context.checkpoints.add(checkpoint).run(
        batch_parameters={"dataframe": frame},
        run_id=gx.RunIdentifier(run_name=name),
    )
    return [result for run in outcome.run_results.values() for result in run.results]


def _checked(result: Any) -> CheckedExpectation:
    settings, found = result.expectation_config, result.result
    return CheckedExpectation(
        check=settings.type,
        column=settings.kwargs.get("column"),
        critical=str(getattr(settings.severity, "value", settings.severity)) == "critical",
        passed=bool(result.success),
        expected=expected_in_words(settings.type, settings.kwargs),
        observed=observed_in_words(settings.type, found, passed=bool(result.success)),
        failure_count=int(found.get("unexpected_count") or 0),
        fraction=float(found.get("unexpected_percent") or 0.0) / 100,
    )


def _replace_folder(new: Path, folder: Path) -> None:
    """Puts `new` where `folder` was; pages of an earlier run would only mislead."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
