"""What commands share: locks, retries, and sessions that land or build."""
