"""What an operator does with a pipeline: verify, replay, erase, maintain and compare."""
