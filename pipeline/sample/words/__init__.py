"""What people write, by language: plain data for the grammar in `pipeline.sample.grammar`.

In a template `[a|b]` is a choice and `{slot}` is filled from the language's own slots or from the
made-up values of `pipeline.sample.grammar` (order numbers, amounts, addresses).
"""
