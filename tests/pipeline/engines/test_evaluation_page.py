"""The page: its numbers, that it stands alone, and that it holds no text of a record."""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pipeline.engines.evaluation_page import write_evaluation_page
from pipeline.engines.evaluation_plots import (
    confusion_plot,
    curve_plot,
    reliability_plot,
    trials_plot,
)
from pipeline.heads import head_slices
from pipeline.model.bundling import Bundled
from pipeline.model.comparison import ChampionComparison
from pipeline.model.evaluation import Told, evaluate
from pipeline.model.findings import Diagnosis, Finding
from pipeline.model.head_quality import Bin
from pipeline.model.label_errors import Suspect
from pipeline.model.labelled import Example, label_matrix
from pipeline.model.metrics import head_metrics
from pipeline.model.outputs import Outputs
from pipeline.window import Window
from schemas.bundle import BundleSpec, Host
from schemas.paired import PairedResult
from schemas.searched import Searched, Trial
from schemas.task import HeadConfig, TaskConfig

if TYPE_CHECKING:
    from pathlib import Path

WORD_OF_A_TEXT = "Wendeltreppe"
HISTORY = [
    {"epoch": 1, "train_loss": 1.0, "valid_loss": 0.8, "valid_macro_f1": 0.6, "grad_norm_mean": 3},
    {"epoch": 2, "train_loss": 0.5, "valid_loss": 0.6, "valid_macro_f1": 0.8},
]
ASPECT = HeadConfig(
    kind="aspect", column="views", labels=("bad", "good"), aspects=("food", "staff")
)


def examples(n: int = 80) -> list[Example]:
    """Two languages, lengths from 4 to 23 tokens, the last record without a queue."""
    made = []
    for row in range(n):
        ids = tuple(range(4 + row % 20))
        made.append(
            Example(
                f"t<{row}>", str(row), "test", "en" if row % 4 else "de",
                (WORD_OF_A_TEXT, WORD_OF_A_TEXT),
                (Window(ids, (0,) * len(ids), 0, 1),),
                {
                    "queue": row % 3 if row < n - 1 else None, "topics": (row % 2, 0),
                    "views": (row % 3, 0),
                },
            )
        )  # fmt: skip
    return made


def logits(rows: list[Example], width: int) -> Outputs:
    """Answers that are right but for each tenth queue."""
    values = []
    for number, row in enumerate(rows):
        queue = row.targets["queue"]
        said = 0 if queue is None else (int(str(queue)) + (number % 10 == 0)) % 3
        line = [-2.0] * width
        line[said] = 3.0
        line[3] = 4.0 if number % 2 else -4.0
        for aspect, choice in enumerate((number % 3, 0)):
            line[5 + aspect * 3 + choice] = 5.0
        values.append(np.array([line]))
    tokens = tuple(np.array([row.windows[0].n_tokens]) for row in rows)
    return Outputs(tuple(values), tokens)


@pytest.fixture
def bundled(tiny_task: TaskConfig) -> Bundled:
    task = tiny_task.model_copy(update={"heads": {**tiny_task.heads, "views": ASPECT}})
    rows, heads = examples(), head_slices(task.heads)
    outputs = logits(rows, heads[-1].columns.stop)
    langs = [row.lang for row in rows]
    metrics = {
        head.name: head_metrics(
            outputs.scores(head), label_matrix(rows, head.name, head.config), head,
            seed=1, langs=langs,
        )
        for head in heads
    }  # fmt: skip
    baseline = {"accuracy": 0.4321, "macro_f1": 0.3219, "rows": 79, "train_rows": 640}
    spec = BundleSpec(
        task=task, label_digests={}, temperatures={}, cleaner_version="1-c", special_tokens=(),
        variant="fp32", files={}, backbone="package:small", training_run="run<1>",
        data_digest="d", metrics=metrics, gates=(), host=Host(cpu_features=(), onnxruntime="1"),
        baseline_metrics={"queue": {"majority": baseline, "tfidf_linear": baseline}},
    )  # fmt: skip
    return Bundled(spec, outputs, rows)


def told(**changes: Any) -> Told:
    finding = Finding(
        kind="overfitting", severity="warning", evidence="valid loss rose", advice="try less"
    )
    suspects = [
        Suspect(record_id=f"s{n}", head="queue", given="billing", likely="shipping", confidence=0.9)
        for n in range(30)
    ]
    base = Told(
        history=HISTORY, best_epoch=2, rows={"train": 640, "valid": 80, "test": 80},
        diagnosis=Diagnosis(
            findings=(finding,), label_errors={"queue": 30}, judged={"queue": 800},
            agreement={"queue": 0.875},
        ),
        suspects=suspects,
    )  # fmt: skip
    return replace(base, **changes)


PAIRED = PairedResult(
    rows=79, accuracy=0.8, accuracy_gain=0.1, accuracy_gain_interval=(0.02, 0.18), macro_f1=0.79,
    macro_f1_gain=0.11, macro_f1_gain_interval=(0.03, 0.19), only_new=12, only_champion=4,
    p_value=0.0768,
)  # fmt: skip
CHAMPION = ChampionComparison(version="7", heads={"queue": PAIRED}, notes=("Head 'x' differs.",))


def page(bundled: Bundled, folder: Path, **changes: Any) -> str:
    path = folder / "evaluation.html"
    champion = changes.pop("champion", CHAMPION)
    write_evaluation_page(evaluate(bundled, told(**changes), champion), path)
    return path.read_text(encoding="utf-8")


def words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL))


def test_a_page_stands_alone_and_holds_no_text(bundled: Bundled, tmp_path: Path) -> None:
    text = page(bundled, tmp_path)
    assert re.findall(r"https?:|<script|<img|<link|src=|url\(|@import| on\w+=", text) == []
    assert WORD_OF_A_TEXT not in text
    assert "<title>tiny run&lt;1&gt;: evaluation</title>" in text
    assert "prefers-color-scheme: dark" in text


def test_a_page_tells_what_becomes_of_texts_that_no_label_fits(
    bundled: Bundled, tmp_path: Path
) -> None:
    assert "that none fits" not in words(page(bundled, tmp_path))
    measured = {"inside_kept": 0.951, "outside_caught": 0.625, "outside_rows": 1000}
    metrics = bundled.spec.metrics
    queue = metrics["queue"].model_copy(update=measured)
    spec = bundled.spec.model_copy(update={"metrics": {**metrics, "queue": queue}})
    shown = words(page(replace(bundled, spec=spec), tmp_path))
    assert "Of texts that a label fits 95.1% stay with the model." in shown
    assert "Of 1,000 that none fits 62.5% go to people." in shown


def test_a_page_has_the_figures_of_each_head(bundled: Bundled, tmp_path: Path) -> None:
    shown = words(page(bundled, tmp_path))
    queue, topics = bundled.spec.metrics["queue"], bundled.spec.metrics["topics"]
    assert queue.accuracy == pytest.approx(71 / 79)
    for figures in (
        f"this model {queue.accuracy:.4f} {queue.accuracy_interval[0]:.3f} to ",
        "n = 79 records with a known label",
        f"topics: macro-F1 {topics.macro_f1:.3f}",
        "All answers of a record are right in 100.0% of them",
        "always the majority 0.4321 0.3219 79", "linear model over TF-IDF 0.4321",
        "Baselines are fitted on 640 training records",
        "champion, version 7 0.8000 0.7900 79",
        "better than the champion : macro-F1 +0.1100 (+0.0300 to +0.1900)",
        "This model alone is right on 12 of them, the champion alone on 4 "
        "(McNemar's exact test: p = 0.0768)",
        "Head &#x27;x&#x27; differs.",
        "the run has 640 train, 80 valid, 80 test records",
        "food:good", "staff:bad",
    ):  # fmt: skip
        assert figures in re.sub(r" ([,.])", r"\1", shown)


def test_a_page_has_slices_with_their_counts(bundled: Bundled, tmp_path: Path) -> None:
    shown = words(page(bundled, tmp_path))
    assert re.search(r"By language .* en 59 0\.\d{4} 0\.\d{3} to .* de 20 – – ", shown)
    assert "Slices with few records are only counted" in shown
    assert "4 to 8 tokens 20" in shown


def test_a_page_has_slices_by_time(bundled: Bundled, tmp_path: Path) -> None:
    assert "By time" not in words(page(bundled, tmp_path))
    days = [dt.date(2026, 1, 9), dt.date(2026, 9, 9), None]
    dated = [replace(row, day=days[0 if n < 40 else 1]) for n, row in enumerate(bundled.test)]
    dated[0] = replace(dated[0], day=None)
    shown = words(page(replace(bundled, test=dated), tmp_path))
    told = r"2026-01 39 0\.\d{4} .* 2026-09 39 0\.\d{4} .* unknown 1 –"
    assert re.search(f"By time Time n Accuracy 95 % Macro-F1 95 % {told}", shown)


SEARCHED = Searched(
    fingerprint="f",
    trials=(
        Trial(number=0, settings={"learning_rate": 2e-4, "batch_size": 32},
              macro_f1=(0.5, 0.7, 0.75), outcome="finished", seconds=61.2),
        Trial(number=1, settings={"learning_rate": 6e-4, "batch_size": 16},
              macro_f1=(0.6, 0.9, 0.875), outcome="finished", seconds=70.0),
        Trial(number=2, settings={"learning_rate": 1e-5, "batch_size": 64},
              macro_f1=(0.125,), outcome="stopped", seconds=20.0),
        Trial(number=3, settings={"learning_rate": 1e-2, "batch_size": 32},
              outcome="failed", error="DivergenceError: loss <nan>"),
    ),
    winner=1, why="trial 1 has the highest validation macro-F1 of 4", epochs=3,
    sample_fraction=0.5, not_searched=("dropout",),
)  # fmt: skip


def test_a_page_tells_how_the_recipe_was_found(bundled: Bundled, tmp_path: Path) -> None:
    assert "Search of the recipe" not in page(bundled, tmp_path)
    text = page(bundled, tmp_path, searched=SEARCHED)
    shown = re.sub(r" ([,.])", r"\1", words(text))
    for figures in (
        "Trial 1 has the highest validation macro-F1 of 4. Each of 4 trials had up to 3 epochs on "
        "50 % of the training records. Not searched, as the task file says them: dropout.",
        "Trial learning_rate batch_size Macro-F1 By epoch Epochs Ended Seconds "
        "1 chosen 0.0006 16 0.9000 0.600 0.900 0.875 3/3 finished 70 "
        "0, the recipe&#x27;s own 0.0002 32 0.7500 0.500 0.700 0.750 3/3 finished 61 "
        "2 1e-05 64 0.1250 0.125 1/3 stopped early as one of the weaker ones (ASHA) 20 "
        "3 0.01 32 – 0/3 failed: DivergenceError: loss &lt;nan&gt; 0",
    ):
        assert figures.replace("&#x27;", "'") in shown.replace("&#x27;", "'")
    assert "trial 2, epoch 1: 0.1250" in text
    assert text.index("Search of the recipe") > text.index("<h2>Training</h2>")


def test_trials_are_drawn_with_the_chosen_one_on_top() -> None:
    drawn = trials_plot("T", [(4, [0.5, 0.75]), (2, [0.25])], chosen=4)
    assert drawn.count("<polyline") == 2
    assert drawn.count("<circle") == 3
    assert drawn.index("trial 2, epoch 1") < drawn.index("trial 4, epoch 2: 0.7500")
    assert drawn.count('class="name"') == 1
    assert trials_plot("T", [], chosen=0) == ""


def test_a_page_tells_diagnosis_and_suspects(bundled: Bundled, tmp_path: Path) -> None:
    text = page(bundled, tmp_path)
    shown = words(text)
    assert "overfitting Valid loss rose. Try less." in shown
    assert (
        "A linear model doubts 30 labels that it had not seen (head queue: 30 of n = 800, the "
        "model agrees with 87.5 % of the labels)" in shown
    )
    assert "s19 queue billing shipping 0.90" in shown
    assert "s20 queue" not in shown
    assert '<li class="warning">' in text


def test_a_page_without_findings_says_so(bundled: Bundled, tmp_path: Path) -> None:
    clean = words(page(bundled, tmp_path, diagnosis=Diagnosis(), suspects=()))
    assert "Nothing stands out." in clean
    assert "No head was checked" in clean
    old = words(page(bundled, tmp_path, diagnosis=None, suspects=(), history=[]))
    assert "before there were diagnoses" in old
    assert "No epoch was recorded" in old
    first = words(page(bundled, tmp_path, champion=ChampionComparison(notes=("None yet.",))))
    assert "Champion None yet." in first


def test_epochs_show_what_was_recorded(bundled: Bundled, tmp_path: Path) -> None:
    shown = words(page(bundled, tmp_path))
    assert (
        "Epoch Train loss Valid loss Macro-F1 Gradient norm 1 1.0000 0.8000 0.6000 3 2 0.5000"
        in (shown)
    )
    assert "Tokens/s" not in shown


def test_curves_leave_out_what_is_not_finite() -> None:
    drawn = curve_plot("Loss", [1, 2, 3], [("train", [1.0, math.nan, 0.5])], best=3)
    assert drawn.count("<circle") == 2
    assert "nan" not in drawn
    assert curve_plot("Loss", [1], [("train", [math.inf])], best=1) == ""
    single = curve_plot("Loss", [1], [("train", [0.3]), ("valid", [0.4])], best=1)
    assert "epoch 1: valid 0.4" in single


def test_a_dot_tells_its_bin() -> None:
    drawn = reliability_plot(
        "R", [Bin(rows=3, confidence=0.5, accuracy=0.25), Bin(rows=1, confidence=1, accuracy=1)],
        note="n = 4",
    )  # fmt: skip
    assert "confidence 0.500: 25.0% of 3 answers right" in drawn
    assert drawn.count("<circle") == 2


def test_many_labels_have_colours_without_numbers() -> None:
    few = confusion_plot("C", ["a", "b<"], [[2, 1], [0, 3]], note="n")
    assert "a answered as b&lt;: 1 (33%)" in few
    assert few.count('<text class="cell"') == 3
    names = [f"l{n}" for n in range(25)]
    many = confusion_plot("C", names, np.eye(25, dtype=int).tolist(), note="n")
    assert many.count('<rect class="cell"') == 25
    assert '<text class="cell"' not in many
