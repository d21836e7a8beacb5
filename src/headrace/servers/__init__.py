"""The embedded servers: started once, shared by commands, and stopped with the last command that uses them."""
