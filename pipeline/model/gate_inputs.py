"""Inputs that are no user's: odd texts through the tokenizer, random ids of all lengths, padding.

They show what no ordinary text shows, and may travel with a bundle, since nobody wrote them.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

from pipeline.batch import window_inputs
from pipeline.bundle import text_flow
from pipeline.flow import Prepared
from pipeline.prompt import prompted
from pipeline.rows import Record
from pipeline.window import Tokens, Window, make_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from pipeline.engines.tokenizer import BackboneTokenizer
    from schemas.task import TaskConfig

PARITY_LENGTHS = (1, 2, 3, 7, 16, 33, 64, 128, 256, 512)
ODD_TEXTS = (
    "",
    "a",
    "The parcel came 3 days late and the invoice was wrong: €24.90!",
    "Bitte prüfen Sie die Nr. 7781, ¿dónde está mi pedido? Le colis n'est jamais arrivé.",
    "荷物が届きません。 쿠폰이 작동하지 않습니다. 支付失败，请退款。",
    "لم يصل الطرد بعد \u202e123\u202c. ההזמנה לא הגיעה. पार्सल नहीं आया",
    "👨‍👩‍👧‍👦 🇩🇪🇪🇸 👍🏽 ❤️",
    "e\u0301 n\u0303 Å ﬁ ① Ⅻ ½ ㎏ Ｆｕｌｌ ｗｉｄｔｈ",
    "z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308 zero\u200bwidth\u200djoin\ufeff",
    "\u0000 \u0007 \ufffd \ue000 \U0010fffd \u00ad",
    "[CLS] [SEP] [MASK] <s> </s> <pad> <unk> ##ing ▁the Ġthe",
    "http://x.example/?a=1&b=<b>2</b> user@x.example C:\\temp \"quoted\" 'single' `tick`",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "0 1 2 3.14159 -1e10 1,000,000 ٣٤٥ ४५६ 0x1F",
    "!!! ??? ... ,,, ;;; ((( ))) --- ___ *** ###",
)  # fmt: skip


def odd_windows(
    texts: Sequence[str], tokenizer: BackboneTokenizer, task: TaskConfig
) -> list[Window]:
    """The first window of each text, which stands in every text column, not cleaned before."""
    flow = text_flow(task, tokenizer)
    # As many texts as the flow makes of the columns: it joins all before the body.
    width = min(2, len(task.data.text_columns))
    return [flow.windows(_prepared((text,) * width)).windows[0] for text in texts]


def _prepared(texts: tuple[str, ...]) -> Prepared:
    return Prepared(
        record=Record("odd", "", 0, texts, {}, b""), texts=texts, text_hash="", lang="und",
        flags=(), truncated=False,
    )  # fmt: skip


def random_windows(tokenizer: BackboneTokenizer, task: TaskConfig, *, seed: int) -> list[Window]:
    """Windows of ids drawn from the whole vocabulary, of many lengths up to `window.max_tokens`.

    Control ids stand where the task's windows have them, and may be drawn as well.
    """
    chooser = random.Random(seed)  # noqa: S311 - inputs that anybody may know
    asked = prompted(tokenizer, task.prompt)
    width = min(2, len(task.data.text_columns))
    template = asked.pair if width == 2 else asked.single
    ids = [token for token in range(tokenizer.vocabulary_size) if token != tokenizer.pad_id]
    windows: list[Window] = []
    for length in parity_lengths(task.window.max_tokens):
        drawn = chooser.choices(ids, k=max(1, length - template.n_control))
        parts = [*[Tokens((), ())] * (width - 1), Tokens(tuple(drawn), ((0, 1),) * len(drawn))]
        windows += make_windows(
            parts, ("x",) * width, template=template, config=task.window
        ).windows[:1]
    return windows


def parity_lengths(limit: int) -> list[int]:
    """Lengths in tokens from 1 to `limit`, both among them."""
    return sorted({length for length in (*PARITY_LENGTHS, limit) if length <= limit})


def parity_batches(
    windows: Sequence[Window],
    *,
    pad_id: int,
    limit: int | None = None,
    odd: Sequence[Window] = (),
) -> list[dict[str, npt.NDArray[np.int64]]]:
    """Batches of 1, 2 and 3 rows over many lengths and pad patterns, an all-padding row included.

    Lengths go up to `limit`, else to the longest window: the encoder may have no more positions.
    Each of the `odd` windows stands alone and, padded, beside the next one.
    """
    longest = limit or max(window.n_tokens for window in windows)
    ids = _repeated([token for window in windows for token in window.input_ids], longest)
    types = _repeated([token for window in windows for token in window.type_ids], longest)
    cut = [
        Window(tuple(ids[:length]), tuple(types[:length]), 0, 0)
        for length in parity_lengths(longest)
    ]
    batches = [window_inputs([window], pad_id=pad_id) for window in [*cut, *odd]]
    pairs = [*zip(cut, reversed(cut), strict=True), *pairwise(odd)]
    batches += [window_inputs([a, b], pad_id=pad_id) for a, b in pairs]
    batches += [window_inputs([cut[0], window, cut[-1]], pad_id=pad_id) for window in cut]
    empty = window_inputs([cut[-1], cut[0]], pad_id=pad_id)
    empty["attention_mask"][1] = 0
    return [*batches, empty]


def _repeated(values: list[int], length: int) -> list[int]:
    return values * (1 + length // len(values))
