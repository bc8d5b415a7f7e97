"""Arrow schemas of what Nightmill writes. They are explicit, never inferred from data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from schemas.task import HeadConfig


def quarantine_schema() -> pa.Schema:
    """Rejected rows: where each came from, the stage and reason, and what it was.

    `raw` is null or cut short by policy; `raw_sha256` and `raw_bytes` are of the whole row.
    """
    import pyarrow as pa  # noqa: PLC0415 - a scheduler that reads schemas has no use for it

    return pa.schema(
        [
            pa.field("record_id", pa.string()),
            pa.field("source_file", pa.string(), nullable=False),
            pa.field("source_row", pa.int64(), nullable=False),
            pa.field("stage", pa.string(), nullable=False),
            pa.field("reason", pa.string(), nullable=False),
            pa.field("detail", pa.string(), nullable=False),
            pa.field("raw", pa.binary()),
            pa.field("raw_sha256", pa.string(), nullable=False),
            pa.field("raw_bytes", pa.int64(), nullable=False),
            pa.field("contract_version", pa.string(), nullable=False),
        ]
    )


def scores_schema(heads: Mapping[str, HeadConfig]) -> pa.Schema:
    """Scored rows: the answers of every head, the decision, and the lineage of the row.

    A `single` head gives `H` (its label), `H_confidence` and `H_scores` (a probability for each
    label, in label order); a `multi` head gives `H` (a list of labels) and the same two. `spans`
    says where each window lies in the cleaned body, in characters, end exclusive; `H_window` is
    the index of the window that speaks most for the answer. A head with `outside` gives `H_scope`,
    how well its labels fit the text (null where the model has no rule for it), and `H_outside`,
    whether that is too little.
    """
    import pyarrow as pa  # noqa: PLC0415

    span = pa.struct([pa.field("start", pa.int32()), pa.field("end", pa.int32())])
    fields = [pa.field("record_id", pa.string(), nullable=False)]
    for name, head in heads.items():
        label = pa.string() if head.kind == "single" else pa.list_(pa.string())
        fields += [
            pa.field(name, label, nullable=False),
            pa.field(f"{name}_confidence", pa.float32(), nullable=False),
            pa.field(f"{name}_scores", pa.list_(pa.float32()), nullable=False),
            pa.field(f"{name}_window", pa.int32(), nullable=False),
        ]
        if head.outside is not None:
            fields += [
                pa.field(f"{name}_scope", pa.float32()),
                pa.field(f"{name}_outside", pa.bool_(), nullable=False),
            ]
    fields += [
        pa.field("decision", pa.string(), nullable=False),
        pa.field("lang", pa.string(), nullable=False),
        pa.field("n_windows", pa.int32(), nullable=False),
        pa.field("spans", pa.list_(span), nullable=False),
        pa.field("truncated", pa.bool_(), nullable=False),
        pa.field("flags", pa.list_(pa.string()), nullable=False),
        pa.field("text_hash", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("source_row", pa.int64(), nullable=False),
        pa.field("partition_date", pa.date32(), nullable=False),
        pa.field("model_name", pa.string(), nullable=False),
        pa.field("model_version", pa.string(), nullable=False),
        pa.field("model_digest", pa.string(), nullable=False),
        pa.field("cleaner_version", pa.string(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
    ]
    return pa.schema(fields)
