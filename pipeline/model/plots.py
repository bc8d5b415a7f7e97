"""Pictures of a training run: curves, confusion, reliability."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pipeline.heads import HeadSlice, head_slices
from pipeline.model.head_quality import Bin, confusion_counts, known_answers, reliability
from pipeline.model.labelled import label_matrix

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from pipeline.model.bundling import Bundled
    from schemas.training import TrainingRun

_MAX_TICKS = 30


def plot_run(bundled: Bundled, place: TrainingRun) -> None:
    """Writes `curves.png` and, for each head, a reliability plot and (single) a confusion."""
    place.page.mkdir(parents=True, exist_ok=True)
    progress = json.loads((place.folder / "progress.json").read_text())
    _save(_curves, place.page / "curves.png", progress["history"])
    spec = bundled.spec
    for head in head_slices(spec.task.heads, spec.temperatures):
        target = label_matrix(bundled.test, head.name, head.config)
        truth, predicted, scores = known_answers(bundled.test_outputs.scores(head), target, head)
        if not len(truth):
            continue
        bins = reliability(truth, predicted, scores, head)
        _save(_reliability, place.page / f"reliability_{head.name}.png", bins, head)
        if head.config.kind == "single":
            counts = confusion_counts(truth, predicted, len(head.config.labels))
            _save(_confusion, place.page / f"confusion_{head.name}.png", counts, head)


def _save(draw: Any, path: Path, *data: Any) -> None:
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    FigureCanvasAgg(figure)  # no global state, no display
    draw(figure.subplots(), *data)
    figure.savefig(path, dpi=120)


def _curves(axes: Axes, history: list[dict[str, float]]) -> None:
    epochs = [row["epoch"] for row in history]
    for name in ("train_loss", "valid_loss", "valid_macro_f1"):
        axes.plot(epochs, [row[name] for row in history], marker="o", label=name.replace("_", " "))
    axes.set(xlabel="epoch", title="Training", xticks=epochs)
    axes.grid(alpha=0.3)
    axes.legend()


def _confusion(axes: Axes, table: npt.NDArray[np.int64], head: HeadSlice) -> None:
    labels = head.config.labels
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="truth", title=f"{head.name}: share of each true label")
    if len(labels) > _MAX_TICKS:
        return
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    for row, column in np.ndindex(table.shape):
        if table[row, column]:
            colour = "white" if share[row, column] > 0.5 else "black"
            axes.text(column, row, f"{int(table[row, column])}", ha="center", va="center",
                      color=colour, fontsize=8)  # fmt: skip


def _reliability(axes: Axes, bins: Sequence[Bin], head: HeadSlice) -> None:
    axes.plot([0, 1], [0, 1], linestyle="--", color="grey", label="calibrated")
    axes.plot(
        [each.confidence for each in bins],
        [each.accuracy for each in bins],
        marker="o", label=head.name,
    )  # fmt: skip
    axes.set(xlabel="confidence", ylabel="share right", title=f"{head.name}: reliability on test",
             xlim=(0, 1), ylim=(0, 1))  # fmt: skip
    axes.grid(alpha=0.3)
    axes.legend()
