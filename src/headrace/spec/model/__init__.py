"""What a pipeline is: frozen values."""
