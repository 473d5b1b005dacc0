"""Random inputs for every reader: a result or one of the project's own errors, in little memory and time."""
