"""Long-running commands: landing and building live, generators, the web server and the demo."""
