"""The Spark session, and the only code that calls private or Java APIs of Spark."""
