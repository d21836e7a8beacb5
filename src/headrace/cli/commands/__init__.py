"""The commands: parse arguments, call one function, render."""
