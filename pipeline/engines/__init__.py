"""One thin module per third-party engine; nothing else in `pipeline` imports them."""
