"""The layers of Darknet networks, with the operations and losses that only they need."""
