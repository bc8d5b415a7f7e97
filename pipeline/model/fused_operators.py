"""Which operators a graph runs as, and whether those that save time were fused."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import onnx
import onnxruntime as ort

from pipeline.engines.onnx_session import CPU_PROVIDER, SLOWER_FUSIONS, session_options
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

Target = Literal["cpu", "gpu"]
# Encoders that fuse on the versions in use; that they still do is tested for each.
FAMILIES = (
    "bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "modernbert", "longformer",
)  # fmt: skip
_NORMS = ("LayerNormalization", "SkipLayerNormalization")
_GELUS = ("Gelu", "BiasGelu", "FastGelu", "QuickGelu")
# Attention as one operator gains nothing on a CPU; that its scale goes into the product does.
_ATTENTION = ("FusedMatMul", "Attention", "MultiHeadAttention")
# What is left over where a norm or GELU was not put together.
_LOOSE = ("Erf", "ReduceMean")


def optimised_operators(path: Path) -> Counter[str]:
    """Operators of the model at `path`, as ONNX Runtime runs it on this host's CPU.

    Operators of other domains go by their name as well.
    """
    with TemporaryDirectory() as folder:
        optimised = Path(folder) / "optimised.onnx"
        options = session_options(1)
        options.optimized_model_filepath = str(optimised)
        # Beside the graph, which alone is read: weights need no second copy in memory.
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", "weights"
        )
        ort.InferenceSession(
            str(path), options, providers=[CPU_PROVIDER], disabled_optimizers=SLOWER_FUSIONS
        )
        return operators(optimised)


def operators(path: Path) -> Counter[str]:
    """Operators of the model at `path` as it is written."""
    graph = onnx.load(str(path), load_external_data=False).graph
    return Counter(node.op_type for node in graph.node)


def check_fusions(found: Mapping[str, int], config: Any, *, target: Target) -> None:
    """Makes sure that layer norms, GELU and attention were fused as `target` wants them.

    `config` is the encoder's. A family that is not known to fuse is warned of instead.

    Raises:
        ArtifactError: a known family did not: an exporter or optimiser of another version writes
            it in another way, and every night would take longer for it.
    """
    family = str(getattr(config, "model_type", "unknown"))
    missing = missing_fusions(found, config, target=target)
    if not missing:
        return
    what = f"{family} encoder, graph for the {target}: {'; '.join(missing)}"
    if family in FAMILIES:
        raise ArtifactError(
            f"{what}; install the versions of torch, transformers and onnxruntime that "
            f"constraints.txt names"
        )
    log.warning("%s: it scores rightly, but slower than it could", what)


def missing_fusions(found: Mapping[str, int], config: Any, *, target: Target) -> list[str]:
    """What should have been fused and was not, in words; empty where all is as it should be."""
    layers = int(config.num_hidden_layers)
    wanted: dict[str, tuple[tuple[str, ...], int]] = {"layer norms": (_NORMS, 2 * layers)}
    if _activation(config) == "gelu":
        wanted["GELU"] = (_GELUS, layers)
    if target == "cpu":
        wanted["scaled attention products"] = (_ATTENTION, layers)
    missing = []
    for name, (kinds, at_least) in wanted.items():
        if (n := sum(found.get(kind, 0) for kind in kinds)) < at_least:
            missing.append(f"{n} {name}, expected {at_least}")
    loose = {kind: found[kind] for kind in _LOOSE if found.get(kind)}
    if loose:
        parts = ", ".join(f"{n} {kind}" for kind, n in loose.items())
        missing.append(f"{parts} left over from norms or GELU")
    return missing


def _activation(config: Any) -> str:
    """The activation's name; BERT, DistilBERT and ModernBERT each have a key of their own."""
    for key in ("hidden_act", "activation", "hidden_activation"):
        if isinstance(name := getattr(config, key, None), str):
            return name
    return ""
