from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.model.record_logits import record_logits
from pipeline.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier

ONE, TWO = Window((2, 45, 3), (0, 0, 0), 0, 1), Window((2, 21, 50, 51, 52, 3), (0,) * 6, 0, 1)


def with_windows(example: Example, *windows: Window) -> Example:
    return type(example)(**{**vars(example), "windows": windows})


def test_the_mean_weighs_windows_by_tokens(
    tiny_model: Classifier, make_example: Callable[..., Example]
) -> None:
    long, short, other = (
        with_windows(make_example("r"), *windows) for windows in ((ONE, TWO), (TWO,), (ONE,))
    )
    both, alone = record_logits(tiny_model, [long, short], pad_id=0)
    first = record_logits(tiny_model, [other], pad_id=0)
    np.testing.assert_allclose(both, (3 * first[0] + 6 * alone) / 9, atol=1e-5)
    assert record_logits(tiny_model, [], pad_id=0).shape == (0, 5)


def test_max_and_first(tiny_model: Classifier, make_example: Callable[..., Example]) -> None:
    long, short, other = (
        with_windows(make_example("r"), *windows) for windows in ((ONE, TWO), (TWO,), (ONE,))
    )
    (one, two) = record_logits(tiny_model, [other, short], pad_id=0)
    (best,) = record_logits(tiny_model, [long], pad_id=0, how="max")
    np.testing.assert_allclose(best, np.maximum(one, two), atol=1e-5)
    (first,) = record_logits(tiny_model, [long], pad_id=0, how="first")
    np.testing.assert_allclose(first, one, atol=1e-5)
    assert not np.allclose(first, best)
