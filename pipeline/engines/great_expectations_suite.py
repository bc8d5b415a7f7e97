"""Great Expectations asks what is expected of a partition, and writes its pages about it.

A thin adapter: what to ask is `pipeline.expectations`, what to ask it of the partition's profile.
Importing Great Expectations takes five seconds; only the job that writes pages imports this.
"""

from __future__ import annotations

import logging
import shutil
from html import escape
from typing import TYPE_CHECKING, Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pandas as pd
from great_expectations.data_context.types import base as chatty_module

from pipeline.column_rules import OneOf
from pipeline.compact_columns import Words
from pipeline.engines.quality_pages import CheckedExpectation, observed_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.expectations import Expected
    from pipeline.partition_profile import Column

# No sample values, for the pages are read by many and the rows are customers' words; and no lists
# of rows, which would take more memory than the rows themselves.
_RESULT_FORMAT = {"result_format": "SUMMARY", "partial_unexpected_count": 0}


def check_partition(
    asked: Sequence[Expected], measured: Mapping[str, Column], *, pages: Path, name: str
) -> tuple[CheckedExpectation, ...]:
    """What became of each expectation; Great Expectations' own pages are put into `pages`.

    `name` is the partition's, `task date=D`.
    """
    frame = pd.DataFrame({column: _series(values) for column, values in measured.items()})
    task, _, run = name.partition(" ")
    expectations = [_expectation(each, number) for number, each in enumerate(asked)]
    suite = gx.ExpectationSuite(name=task, expectations=expectations)
    results = _run(_context(), suite, frame, pages=pages, run=run)
    found = {result.expectation_config.meta["number"]: result for result in results}
    return tuple(_checked(each, found[number]) for number, each in enumerate(asked))


def _expectation(asked: Expected, number: int) -> Any:
    settings: dict[str, Any] = {
        "severity": "critical" if asked.critical else "warning",
        # Shown as it is, in place of their own words, which know no `column: rule`.
        "description": escape(asked.sentence, quote=False),
        "meta": {"number": number},
    }
    if asked.measured is not None:
        settings["column"] = asked.measured
    if asked.kind == "values":
        settings["mostly"] = asked.mostly
    if isinstance(asked.demand, OneOf):
        return gxe.ExpectColumnValuesToBeInSet(value_set=list(asked.demand.values), **settings)
    settings |= {"min_value": asked.demand.low, "max_value": asked.demand.high}
    if asked.kind == "rows":
        return gxe.ExpectTableRowCountToBeBetween(**settings)
    if asked.kind == "mean":
        return gxe.ExpectColumnMeanToBeBetween(**settings)
    return gxe.ExpectColumnValuesToBeBetween(**settings)


def _series(column: Column) -> pd.Series[Any]:
    """The column as it lies in memory: types are explicit, nothing is inferred."""
    if isinstance(column, Words):
        return pd.Series(pd.Categorical.from_codes(column.codes, pd.Index(column.categories)))
    return pd.Series(column.values, copy=False)


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
    context: Any, suite: gx.ExpectationSuite, frame: pd.DataFrame, *, pages: Path, run: str
) -> list[Any]:
    """Results of all expectations; the pages are written on the way."""
    context.add_data_docs_site(site_name="pages", site_config=_site(pages))
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
        run_id=gx.RunIdentifier(run_name=run),
    )
    return [result for each in outcome.run_results.values() for result in each.results]


def _site(folder: Path) -> dict[str, Any]:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {
            "class_name": "TupleFilesystemStoreBackend",
            "base_directory": str(folder),
        },
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }


def _checked(asked: Expected, result: Any) -> CheckedExpectation:
    found = result.result
    return CheckedExpectation(
        asked,
        passed=bool(result.success),
        observed=observed_in_words(asked.kind, found),
        failure_count=int(found.get("unexpected_count") or 0),
        fraction=float(found.get("unexpected_percent") or 0.0) / 100,
    )
