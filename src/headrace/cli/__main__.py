"""`python -m headrace.cli`."""

from headrace.cli.app import main

main()
