"""Looking at a computation: pictures of its graph."""
