"""What HTTP servers and clients of Headrace share."""
