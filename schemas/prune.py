"""How a fine-tuned encoder is made smaller, and what that left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from schemas.manifest import Count, Document
from schemas.section import Fraction, Section

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

Share = Annotated[float, Field(ge=0, lt=1)]
LayerNumber = Annotated[int, Field(ge=0)]


class PruneConfig(Section):
    """What is cut out of the fine-tuned encoder, so that its matrices become smaller.

    `heads` and `neurons` are the shares of attention heads and feed-forward neurons that go, the
    least important of all layers first; a layer keeps at least one head and eight neurons. `layers`
    names layers that go, counted from 0, or says how many: the `top` ones, or with `layer_choice`
    `least_harm` one after another those without which the training loss rises least.

    Importance is measured on `sample_records` training records. `neuron_score` `taylor` is the
    loss's expected slope along a neuron (Molchanov et al. 2017), `magnitude` looks at the weights
    alone. Heads always go by the slope (Michel et al. 2019).

    After the cut the model learns for `recovery_epochs` epochs, at half of the recipe's rates or at
    `recovery_learning_rate`. `curve` are shares at which the validation macro-F1 is measured on
    `sample_records` records, without recovery; none leave the measurement out.
    """

    heads: Share = 0.0
    neurons: Share = 0.0
    layers: tuple[LayerNumber, ...] | Count = 0
    layer_choice: Literal["top", "least_harm"] = "top"
    neuron_score: Literal["taylor", "magnitude"] = "taylor"
    sample_records: Annotated[int, Field(ge=8)] = 256
    recovery_epochs: Annotated[int, Field(ge=0)] = 1
    recovery_learning_rate: Annotated[float, Field(gt=0)] | None = None
    curve: tuple[Share, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)

    @model_validator(mode="after")
    def _something_is_cut(self) -> Self:
        if not (self.heads or self.neurons or self.layers):
            raise ValueError(
                "prune cuts nothing: set heads, neurons or layers, or leave compress.prune out"
            )
        if not isinstance(self.layers, int) and len(set(self.layers)) != len(self.layers):
            raise ValueError(f"layers names one twice: {list(self.layers)}")
        return self


def without_pruned_adapters(task: TaskConfig) -> TaskConfig:
    """The same task, where nothing is cut that has adapters; a validator of tasks.

    Raises:
        ValueError: there is.
    """
    if task.train.adapter is not None and task.compress.prune is not None:
        raise ValueError(
            "compress.prune cuts the layers that train.adapter puts adapters behind: leave one of "
            "them out"
        )
    return task


class KeptLayer(Document):
    """What is left of one layer; all numbers count from 0 in the encoder before any cut."""

    layer: LayerNumber
    heads: Annotated[tuple[Count, ...], Field(min_length=1)]
    neurons: Annotated[tuple[Count, ...], Field(min_length=1)]


class PrunedShape(Document):
    """`pruned.json` beside a checkpoint's weights: what is left, from the lowest layer up."""

    layers: Annotated[tuple[KeptLayer, ...], Field(min_length=1)]


class ModelSize(Document):
    """What a classifier weighs; `forward_mflops` is for one window of the sample's mean length.

    Megabytes are estimates of the exported file, from the count of parameters.
    """

    parameters: Count
    forward_mflops: float
    megabytes_fp32: float
    megabytes_int8: float


class CurvePoint(Document):
    """The model without a `share` of one kind of its parts, before it recovers.

    `flops_share` is what is left of the whole model's work.
    """

    part: Literal["heads", "neurons"]
    share: Share
    valid_macro_f1: Fraction
    flops_share: Fraction
    size: ModelSize


class LayerSummary(Document):
    """How much is left of one layer: a row for people."""

    layer: LayerNumber
    heads: Count
    neurons: Count


class Cut(Document):
    """`cut.json`: the cut model is complete and may recover.

    Both figures of macro-F1 are on all validation records, before and after the cut. `flops_share`
    is what is left of the work.
    """

    fingerprint: str
    layers: tuple[LayerSummary, ...]
    before: ModelSize
    after: ModelSize
    flops_share: Fraction
    valid_macro_f1_whole: Fraction
    valid_macro_f1_cut: Fraction
    curve: tuple[CurvePoint, ...] = ()


class Pruning(Cut):
    """`pruning.json`: the pruned checkpoint is complete, and this is what it cost.

    `valid_macro_f1` is that of the model that ships. `best_epoch` is the epoch of recovery that
    ships, 0 where none was better than the cut alone; `history` has a row for each.
    """

    valid_macro_f1: Fraction
    best_epoch: Count
    history: tuple[dict[str, float], ...] = ()
    seconds: float


class PruningFolder:
    """What the step leaves for itself while it is not done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def cut(self) -> Path:
        """Written when `start` is complete."""
        return self.folder / "cut.json"

    @property
    def start(self) -> Path:
        """The checkpoint of the cut model."""
        return self.folder / "start"

    @property
    def recovered(self) -> Path:
        """The checkpoint of the recovered model."""
        return self.folder / "recovered"

    @property
    def progress(self) -> Path:
        """Written when `recovered` is complete."""
        return self.folder / "progress.json"

    def cut_by(self, fingerprint: str) -> Cut | None:
        """The cut that is kept, None where there is none of these settings."""
        if not self.cut.exists():
            return None
        cut = Cut.read(self.cut)
        return cut if cut.fingerprint == fingerprint else None
