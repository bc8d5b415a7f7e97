"""The work itself: text steps, scoring, models. Plain Python; engines are handed in."""
