"""Lines that many derivations have in common."""

Lines = tuple[str, ...]

BROADCAST = "an operand that was broadcast stands in several y: its gradient is the sum over those"
COPY: Lines = (
    "every y is one of the x in another place",
    "so every gx is the gy of its place; where one x has several, they add up",
)


def of_one_element(*lines: str) -> Lines:
    """The derivation of an operation whose y_i depends on x_i alone; lines: what its slope is."""
    return ("each y_i depends on x_i alone, so one factor is left:  gx_i = gy_i dy_i/dx_i", *lines)
