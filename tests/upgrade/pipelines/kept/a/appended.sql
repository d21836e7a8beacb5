SELECT id, k, g, amount * 2 AS doubled, at FROM kept.events WHERE n IS NOT NULL
