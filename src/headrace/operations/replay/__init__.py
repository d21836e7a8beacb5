"""Messages that were landed are read again, and what became of them is put right."""
