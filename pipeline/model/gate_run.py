"""All variants of a model through all gates; one that fails is saved where the task asks for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import head_slices
from pipeline.model.facts import facts_gates, measure_facts
from pipeline.model.gate import TorchEncoder, Watch, parity_gate, variant_gates
from pipeline.model.gate_inputs import parity_batches
from pipeline.model.outputs import Outputs, run_encoder
from pipeline.model.sweep import Sample, rescue
from pipeline.model.text_features import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from pipeline.model.variants import VariantMaker
    from pipeline.window import Window
    from schemas.bundle import GateResult, VariantFacts
    from schemas.sweep import Sweep
    from schemas.task import TaskConfig, Variant


@dataclass(frozen=True)
class Measured:
    """The variants as they would ship, and what was measured of each.

    `said` is what each says of the validation records.
    """

    files: Mapping[Variant, Path]
    gates: Sequence[GateResult]
    facts: dict[Variant, VariantFacts]
    said: Mapping[Variant, Outputs]
    sweeps: tuple[Sweep, ...] = ()


def measure_variants(
    model: Classifier,
    splits: Mapping[str, list[Example]],
    task: TaskConfig,
    maker: VariantMaker,
    *,
    odd: Sequence[Window],
    pad_id: int,
) -> Measured:
    """Makes FP32 and the preferred variants and measures each; `odd` windows stand beside texts.

    A variant that was saved by leaving parts FP32 takes the place of the one that failed.

    Raises:
        ArtifactError, ConfigError: see `VariantMaker.make_all`.
    """
    return _GateRun(model, splits, task, maker, odd, pad_id).run()


@dataclass
class _GateRun:
    model: Classifier
    splits: Mapping[str, list[Example]]
    task: TaskConfig
    maker: VariantMaker
    odd: Sequence[Window]
    pad_id: int
    _again: dict[Path, VariantFacts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._heads = head_slices(self.task.heads)
        self._pooling = self.task.train.window_pooling
        self._config = self.task.compress
        self._watch = Watch(self.odd)
        self._timed = [example.windows[0] for example in self.splits["valid"]]
        # All validation records, and training records where these are fewer than gates want.
        more = max(0, self._config.gate_texts - len(self.splits["valid"]))
        self._texts = self.splits["valid"] + self.splits["train"][:more]
        self._reference = TorchEncoder(self.model)
        self._wanted = run_encoder(self._reference, self._texts, pooling=self._pooling)

    def run(self) -> Measured:
        self._files = self.maker.make_all()
        made = dict(self._files)
        gates = [self._parity()]
        for variant, path in made.items():
            gates += self._quality(variant, path)
        facts = measure_facts(made, self._timed)
        gates += facts_gates(facts, self._config)
        done = rescue(
            self.maker, self._files, gates, measure=self._measure_again, take_sample=self._sample
        )
        saved = {name: path for name, path in self._files.items() if path != made[name]}
        return Measured(
            files=self._files,
            gates=done.gates,
            facts=facts | {name: self._again[path] for name, path in saved.items()},
            said={name: self._watch.said[path] for name, path in self._files.items()},
            sweeps=tuple(done.sweeps),
        )

    def _parity(self) -> GateResult:
        batches = parity_batches(
            [example.windows[0] for example in self._texts], pad_id=self.pad_id,
            limit=self.task.window.max_tokens, odd=self.odd,
        )  # fmt: skip
        fp32 = OnnxEncoder(self._files["fp32"])
        return parity_gate(self._reference, fp32, batches, config=self._config)

    def _quality(self, variant: Variant, path: Path) -> list[GateResult]:
        return variant_gates(
            variant, path,
            texts=self._texts, n_valid=len(self.splits["valid"]), reference=self._wanted,
            heads=self._heads, config=self._config, watch=self._watch,
        )  # fmt: skip

    def _measure_again(self, variant: Variant, path: Path) -> list[GateResult]:
        """Gates of a variant that was changed, beside FP32; size and speed alone if these fail."""
        facts = measure_facts({"fp32": self._files["fp32"], variant: path}, self._timed)
        self._again[path] = facts[variant]
        gates = [gate for gate in facts_gates(facts, self._config) if gate.variant == variant]
        if not all(gate.passed for gate in gates):
            return gates
        return [*self._quality(variant, path), *gates]

    def _sample(self) -> Sample:
        texts = sampled(
            self.splits["valid"], limit=self._config.sweep_texts, seed=self.task.train.seed
        )
        return Sample.of(self._files["fp32"], texts, self._heads, pooling=self._pooling)
