"""Which windows go into one call of the CPU engine: windows of equal length, never padded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.calibration import Calibration, Speed
    from schemas.task import Variant

Batching = Literal["auto", "one", "equal_length"]

# Less than this is noise, and a call of one window needs no neighbours to wait for.
_LEAST_GAIN = 1.03


@dataclass(frozen=True)
class BatchTable:
    """Windows a call, by their length: `(up to tokens, rows)`, shortest first; else one a call.

    Rows are powers of two, so that a rest is made up of sizes that were checked as well.
    """

    steps: tuple[tuple[int, int], ...] = ()

    def rows(self, n_tokens: int) -> int:
        """How many windows of `n_tokens` go into a call."""
        return next((rows for limit, rows in self.steps if n_tokens <= limit), 1)

    def __str__(self) -> str:
        """For logs and people: `16 windows a call to 16 tokens, 4 to 32, else 1`."""
        if not self.steps:
            return "1 window a call"
        (limit, rows), *others = self.steps
        first = f"{rows} windows a call to {limit} tokens"
        return ", ".join([first, *(f"{rows} to {limit}" for limit, rows in others), "else 1"])


ONE_A_CALL = BatchTable()


def depends_on_neighbours(variant: Variant) -> bool:
    """Dynamic INT8 takes its activation scale from the whole call."""
    return variant == "int8_dynamic"


def check_batching(batching: Batching, variant: Variant) -> None:
    """Makes sure that a bundle of `variant` may be scored the way `score.batching` asks for.

    Raises:
        ConfigError: it may not.
    """
    if batching == "equal_length" and depends_on_neighbours(variant):
        raise ConfigError(
            f"score.batching equal_length: a bundle of variant {variant} takes its activation "
            f"scale from the whole call, so a text's scores would depend on its neighbours; "
            f"set score.batching=auto, or bundle with compress.prefer=[int8_static]"
        )


def batch_table(calibration: Calibration, batching: Batching) -> BatchTable:
    """The fastest table that leaves all scores as they are; `equal_length` wants several a call.

    Raises:
        ConfigError: `equal_length`, and on this host a call's neighbours move the logits.
    """
    if batching == "one":
        return ONE_A_CALL
    if not calibration.same_bytes:
        if batching == "equal_length":
            raise ConfigError(
                "score.batching equal_length: on this host the model's logits are not the same "
                "bytes in a batch as alone; set score.batching=auto"
            )
        return ONE_A_CALL
    least_gain = _LEAST_GAIN if batching == "auto" else 0.0
    steps = []
    for n_tokens in sorted({speed.n_tokens for speed in calibration.speeds}):
        rows = _best_rows(calibration.speeds, n_tokens, least_gain=least_gain)
        if rows > 1:
            steps.append((n_tokens, rows))
        elif batching == "auto":
            break  # longer windows fill the kernels by themselves
    return BatchTable(tuple(steps))


def _best_rows(speeds: Sequence[Speed], n_tokens: int, *, least_gain: float) -> int:
    by_rows = {speed.rows: speed.tokens_per_s for speed in speeds if speed.n_tokens == n_tokens}
    alone = by_rows.pop(1)
    rows = max(by_rows, key=by_rows.__getitem__, default=1)
    return rows if rows > 1 and by_rows[rows] >= least_gain * alone else 1


def equal_length_calls(lengths: Sequence[int], table: BatchTable) -> Iterator[list[int]]:
    """Indices of the windows of each call: every window once, all of a call equally long."""
    by_length: dict[int, list[int]] = {}
    for index, n_tokens in enumerate(lengths):
        by_length.setdefault(n_tokens, []).append(index)
    for n_tokens, indices in by_length.items():
        rows, start = table.rows(n_tokens), 0
        while start < len(indices):
            while rows > len(indices) - start:
                rows //= 2
            yield indices[start : start + rows]
            start += rows


def expected_tokens_per_s(
    calibration: Calibration, table: BatchTable, *, window_tokens: float
) -> float:
    """Tokens a second of one thread on windows of about `window_tokens`, by what was measured."""
    measured = sorted(
        (speed.n_tokens, speed.tokens_per_s)
        for speed in calibration.speeds
        if speed.rows == table.rows(speed.n_tokens)
    )
    before = measured[0]
    for here in measured:
        if here[0] >= window_tokens:
            share = (window_tokens - before[0]) / (here[0] - before[0]) if here > before else 1.0
            return before[1] + max(0.0, share) * (here[1] - before[1])
        before = here
    return before[1]
