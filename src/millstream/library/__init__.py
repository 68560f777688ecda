"""The parts of a training as objects in a user's hands: environment, replay buffers, agent; thin, over the rooms."""
