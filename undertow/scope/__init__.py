"""Pages in the browser: the way back of one network, step by step; trainings as they run."""
