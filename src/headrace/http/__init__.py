"""The HTTP client, and the server, gate and limits that Headrace's HTTP servers share."""
