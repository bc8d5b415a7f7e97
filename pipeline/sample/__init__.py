"""Sample tickets and reviews with the dirt of real inboxes; the same seed gives the same bytes."""
