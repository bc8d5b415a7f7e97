"""What is cut is as if it had been masked, in every family of encoders."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.model.gate import TorchEncoder
from pipeline.model.layers import encoder_layers
from pipeline.model.prune.anatomy import layer_parts
from pipeline.model.prune.choose import without_layers
from pipeline.model.prune.cut import drop_layers, is_pruned, keep_parts, shape_of
from pipeline.model.prune.masks import masked
from pipeline.model.prune.stored import PRUNED_FILE, load_pruned, save_pruned
from pipeline.model.recipe import parameter_groups
from schemas.errors import ArtifactError, ConfigError
from schemas.prune import PrunedShape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from pipeline.model.network import Classifier
    from pipeline.model.prune.anatomy import Block
    from pipeline.window import Window

    Make = Callable[[str], Classifier]

KEEPS_HEADS = "longformer"
N_LAYERS, N_HEADS, N_NEURONS = 3, 3, 32
places = st.tuples(
    st.sets(st.integers(0, N_HEADS - 1), min_size=1).map(sorted),
    st.sets(st.integers(0, N_NEURONS - 1), min_size=1).map(sorted),
)
SOME = [([0, 2], [*range(3, 20)]), ([1], [0, 5, 31]), ([0, 1, 2], [*range(N_NEURONS)])]


def logits(model: Classifier, windows: Sequence[Window]) -> np.ndarray:
    return TorchEncoder(model).logits(windows)


def masks(
    model: Classifier, kept: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[tuple[Block, Tensor]]:
    found = []
    for parts, (heads, neurons) in zip(layer_parts(model.encoder), kept, strict=True):
        for block, some in ((parts.heads, heads), (parts.neurons, neurons)):
            mask = torch.zeros(block.n_groups)
            mask[list(some)] = 1.0
            found.append((block, mask))
    return found


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.lists(places, min_size=N_LAYERS, max_size=N_LAYERS))
def test_a_cut_model_answers_as_a_masked_one(
    family: str, classifier_of: Make, some_windows: list[Window],
    kept: list[tuple[list[int], list[int]]],
) -> None:  # fmt: skip
    if family == KEEPS_HEADS:
        kept = [(list(range(N_HEADS)), neurons) for _, neurons in kept]
    model = classifier_of(family)
    with masked(masks(model, kept)):
        expected = logits(model, some_windows)
    whole = logits(model, some_windows)
    before = sum(weight.numel() for weight in model.parameters())
    keep_parts(model.encoder, kept)
    np.testing.assert_allclose(logits(model, some_windows), expected, atol=1e-5)
    after = sum(weight.numel() for weight in model.parameters())
    per_head = 24 * 8 * 4 + 3 * 8  # rows of three matrices and their biases, columns of a fourth
    per_neuron = 24 * 2 + 1
    if family == "modernbert":
        per_head, per_neuron = 24 * 8 * 4, 24 * 3  # no biases, and a gate for each neuron
    gone = sum(
        (N_HEADS - len(heads)) * per_head + (N_NEURONS - len(neurons)) * per_neuron
        for heads, neurons in kept
    )
    assert before - after == gone
    if gone > 2000:  # the masks did something at all
        assert np.abs(whole - expected).max() > 1e-3


def test_dropped_layers_are_as_if_skipped(
    family: str, classifier_of: Make, some_windows: list[Window]
) -> None:
    model = classifier_of(family)
    with without_layers(model.encoder, [1]):
        skipped = logits(model, some_windows)
    assert np.abs(skipped - logits(model, some_windows)).max() > 1e-3
    drop_layers(model.encoder, [1])
    np.testing.assert_array_equal(logits(model, some_windows), skipped)
    assert [layer.layer for layer in shape_of(model.encoder).layers] == [0, 2]
    assert model.encoder.config.num_hidden_layers == 2


def test_a_pruned_encoder_survives_the_disk(
    family: str, classifier_of: Make, some_windows: list[Window], tmp_path: Path
) -> None:
    model = classifier_of(family)
    drop_layers(model.encoder, [1])
    heads = [[0, 1, 2]] * 2 if family == KEEPS_HEADS else [[0, 2], [1]]
    keep_parts(model.encoder, [(heads[0], [*range(3, 20)]), (heads[1], [0, 5, 31])])
    expected = logits(model, some_windows)
    save_pruned(model.encoder, tmp_path, weights=model.encoder.state_dict())
    shape = PrunedShape.read(tmp_path / PRUNED_FILE)
    assert [layer.layer for layer in shape.layers] == [0, 2]
    assert shape.layers[1].neurons == (0, 5, 31)
    config = type(model.encoder.config).from_pretrained(tmp_path)
    loaded = copy.deepcopy(model)
    loaded.encoder = load_pruned(tmp_path, lambda: type(model.encoder)(config)).eval()
    np.testing.assert_array_equal(logits(loaded, some_windows), expected)
    assert shape_of(loaded.encoder) == shape


def test_a_second_cut_counts_from_before_the_first(
    classifier_of: Make, some_windows: list[Window]
) -> None:
    """Of MPNet, whose layers must go on taking their own heads' bias."""
    once, twice = classifier_of("mpnet"), classifier_of("mpnet")
    rest = [([0, 1, 2], [*range(N_NEURONS)])] * 2
    keep_parts(twice.encoder, [([1, 2], [*range(8, 24)]), *rest])
    keep_parts(twice.encoder, [([1], [0, 3, 15]), *rest])
    keep_parts(once.encoder, [([2], [8, 11, 23]), *rest])
    assert shape_of(twice.encoder) == shape_of(once.encoder)
    np.testing.assert_array_equal(logits(twice, some_windows), logits(once, some_windows))


def test_a_copy_of_a_pruned_model_stands_alone(
    classifier_of: Make, some_windows: list[Window]
) -> None:
    """As sharded training and the curve make one."""
    model = classifier_of("mpnet")
    keep_parts(model.encoder, SOME)
    expected = logits(model, some_windows)
    twin = copy.deepcopy(model)
    keep_parts(twin.encoder, [([0], [0]), ([0], [0]), ([0], [0])])
    np.testing.assert_array_equal(logits(model, some_windows), expected)
    assert is_pruned(twin.encoder)


def test_what_was_frozen_stays_frozen(classifier_of: Make) -> None:
    model = classifier_of("bert")
    layer_parts(model.encoder)[0].neurons.reader.weight.requires_grad = False
    keep_parts(model.encoder, SOME)
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert frozen == ["encoder.encoder.layer.0.output.dense.weight"]


def test_rates_by_layer_follow_the_new_depth(classifier_of: Make, toy_config: Callable) -> None:
    from pipeline.model.recipe import choose_recipe

    model = classifier_of("bert")
    drop_layers(model.encoder, [2])
    config = toy_config(layer_decay=0.5, learning_rate=1e-3)
    recipe = choose_recipe(config, n_train=10, hidden_size=24)
    rates = {group["lr"] for group in parameter_groups(model, config, recipe)}
    assert rates == {1e-2, 1e-3, 5e-4, 2.5e-4}  # heads, layers 1 and 0, embeddings


def test_longformers_heads_stay(classifier_of: Make) -> None:
    model = classifier_of("longformer")
    with pytest.raises(ConfigError, match="'longformer' needs all of its heads; set it to 0"):
        keep_parts(model.encoder, SOME)


def test_layers_that_cannot_go_are_named(classifier_of: Make) -> None:
    encoder = classifier_of("bert").encoder
    for wrong in ([3], [0, 1, 2]):
        with pytest.raises(ConfigError, match=r"layers: got \[.*\] of an encoder with the layers"):
            drop_layers(encoder, wrong)
    assert len(encoder_layers(encoder)) == N_LAYERS
    with pytest.raises(ConfigError, match="layer 0 of this family is unlike the others"):
        drop_layers(classifier_of("modernbert").encoder, [0])


def test_an_unknown_family_is_refused(classifier_of: Make) -> None:
    encoder = classifier_of("bert").encoder
    encoder.config.model_type = "albert"
    with pytest.raises(ConfigError, match="of the family 'albert' cannot be pruned, only bert"):
        shape_of(encoder)


def test_a_shape_of_other_weights_is_an_artifact_error(classifier_of: Make, tmp_path: Path) -> None:
    model = classifier_of("bert")
    keep_parts(model.encoder, SOME)
    save_pruned(model.encoder, tmp_path, weights=model.encoder.state_dict())
    shape = PrunedShape.read(tmp_path / PRUNED_FILE)
    few = shape.layers[0].model_copy(update={"neurons": (1, 2)})
    PrunedShape(layers=(few, *shape.layers[1:])).write(tmp_path / PRUNED_FILE)
    with pytest.raises(ArtifactError, match=r"or pruned\.json is not of its weights"):
        load_pruned(tmp_path, lambda: classifier_of("bert").encoder)
