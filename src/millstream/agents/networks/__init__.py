"""Function approximators that run forwards and carry gradients back over one flat vector of weights."""
